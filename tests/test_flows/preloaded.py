"""What a command imports, in the order in which it does; loaded by the fork server once for all commands."""

from tokmill.flows.server.settings import prepare_terminal_run

prepare_terminal_run()
