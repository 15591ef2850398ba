"""What a command imports, in the order in which it does; loaded by the fork server once for all commands."""

from flows.settings import prepare_terminal_run

prepare_terminal_run()

import flows.cli.commands  # noqa: E402
import flows.cli.prefect_server  # noqa: E402
import flows.run  # noqa: E402, F401
