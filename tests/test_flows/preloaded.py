"""The imports of a command, in order; loaded once by the fork server for all commands."""

from tokmill.flows.server.settings import prepare_terminal_run

prepare_terminal_run()
