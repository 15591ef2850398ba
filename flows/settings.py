"""Prefect's settings, as tokmill wants them; to be applied before Prefect is imported.

Whatever the environment already says stays as it is.
"""

import os

# What every process of ours has in common: nothing is sent to anybody.
PRIVATE = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}

# A run that is watched in the terminal. The embedded server needs more than its default 20 s on a busy
# machine; what Prefect logs goes to its server, for the UI, and the terminal shows our own display instead.
TERMINAL = {
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
}


def prepare_terminal_run() -> None:
    """Set what a run that is started from the command line needs; call it before `import prefect`."""
    for name, value in {**PRIVATE, **TERMINAL}.items():
        os.environ.setdefault(name, value)
