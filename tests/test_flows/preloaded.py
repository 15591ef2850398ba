"""What a command imports, in the order in which it does; loaded by the fork server once for all commands."""

from tokmill.flows.settings import prepare_terminal_run

prepare_terminal_run()

import tokmill.flows.cli.commands  # noqa: E402
import tokmill.flows.prefect_server  # noqa: E402
import tokmill.flows.run  # noqa: E402, F401
