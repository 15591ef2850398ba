"""Prefect's settings, as tokmill wants them; to be applied before Prefect is imported.

Whatever the environment already says stays as it is.
"""

import os
from pathlib import Path

from tokmill.flows.errors import ServeError

# What every process of ours has in common: nothing is sent to anybody.
PRIVATE = {"PREFECT_SERVER_ANALYTICS_ENABLED": "false", "DO_NOT_TRACK": "1"}

# A run that is watched in the terminal. The embedded server needs more than its default 20 s on a busy
# machine; what Prefect logs goes to its server, for the UI, and the terminal shows our own display instead.
TERMINAL = {
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL",
}


def prepare_terminal_run() -> None:
    """Set what a run that is started from the command line needs; call it before `import prefect`.

    Raises:
        ServeError: Prefect has no folder to work in.
    """
    require_prefect_home()
    for name, value in {**PRIVATE, **TERMINAL}.items():
        os.environ.setdefault(name, value)


def require_prefect_home() -> None:
    """Make the folder of Prefect's database; without it Prefect warns with every import and then hangs.

    Raises:
        ServeError: it cannot be made, or cannot be written to.
    """
    named = os.environ.get("PREFECT_HOME") or "~/.prefect"
    try:
        home = Path(named).expanduser()
        home.mkdir(parents=True, exist_ok=True)
        problem = "" if os.access(home, os.W_OK | os.X_OK) else "it cannot be written to"
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home folder for ~
        problem = str(error)
    if problem:
        raise ServeError(
            f"Prefect cannot work in its folder {named} ({problem}); set PREFECT_HOME to a folder that can "
            "be written to"
        )
