"""Runs the command that tells of a run: for machines without a server."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from tokmill.flows.notify.delivery import DeliveryError

_VARIABLES = {
    "TOKMILL_EVENT": "event",
    "TOKMILL_RUN": "run",
    "TOKMILL_PROFILE": "profile",
    "TOKMILL_STATE": "state",
    "TOKMILL_STORE": "store",
}


def run_command(command: Sequence[str], message: Mapping[str, Any], body: bytes, timeout: float) -> None:
    """Run a command without a shell, with the message on its standard input; its output goes to stderr.

    Args:
        command: the program and its arguments.
        message: what is told; some of it is in environment variables, too.
        body: the message as JSON.
        timeout: in seconds; then the command is killed, with its children.

    Raises:
        DeliveryError: it cannot be started, fails, or does not end in time.
    """
    told = {name: str(message[key]) for name, key in _VARIABLES.items() if message[key] is not None}
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=sys.stderr.fileno(),  # standard output has results only
            env={**os.environ, **told},
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or type(error).__name__
        raise DeliveryError(f"it cannot be started: {said}", passing=False) from None
    try:
        process.communicate(body, timeout)
    except subprocess.TimeoutExpired:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise DeliveryError(f"it did not end within {timeout:g} s and was killed") from None
    if process.returncode:
        raise DeliveryError(f"exit code {process.returncode}")
