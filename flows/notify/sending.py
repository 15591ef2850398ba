"""Delivers a message: several attempts, with growing pauses, within a bounded time.

Nothing that happens here reaches the run: the work is done in threads of its own, for whose end the run
waits no longer than `seconds_of`. What could not be delivered is told to the caller as one sentence, which
has the name of the address and never the address.
"""

import json
import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from typing import Any

from tokmill.flows.notify.command import run_command
from tokmill.flows.notify.delivery import DeliveryError
from tokmill.flows.notify.webhook import post
from tokmill.flows.profile.notify import Notify

_FIRST_PAUSE_SECONDS = 0.5
HURRIED_SECONDS = 1.5
"""What is left for a message if the process is about to be ended."""


def deliver(notify: Notify, message: Mapping[str, Any], warn: Callable[[str], None], hurried: bool) -> None:
    """Send a message by every way that is wanted, side by side.

    Args:
        notify: the ways.
        message: what is told; JSON values.
        warn: called with one sentence per way that failed.
        hurried: whether the process is about to be ended: there is one attempt, and a short one.
    """
    body, timeout = json.dumps(message, ensure_ascii=False).encode(), _timeout(notify, hurried)
    ways: dict[str, Callable[[], None]] = {}
    if notify.webhook is not None:
        webhook = notify.webhook
        ways[f"webhook {webhook}"] = lambda: post(webhook, body, timeout)
    if notify.command:
        ways[f"command {notify.command[0]}"] = lambda: run_command(notify.command, message, body, timeout)
    attempts = [_Attempts(name, way, 1 if hurried else notify.attempts) for name, way in ways.items()]
    until = HURRIED_SECONDS if hurried else seconds_of(notify)
    for one in attempts:
        one.start()
    for one in attempts:
        if problem := one.problem_within(until):
            warn(f"notify: {one.name} {problem}; the run is not affected")


def seconds_of(notify: Notify) -> float:
    """Return how long the delivery of a message may take."""
    pauses = sum(_FIRST_PAUSE_SECONDS * 2.0**number for number in range(notify.attempts))
    return notify.attempts * notify.timeout + pauses


def _timeout(notify: Notify, hurried: bool) -> float:
    return min(notify.timeout, HURRIED_SECONDS) if hurried else notify.timeout


class _Attempts:
    """The attempts to deliver a message in one way, in a thread that does not keep the process alive."""

    def __init__(self, name: str, way: Callable[[], None], most: int) -> None:
        self.name = name
        self._way = way
        self._most = most
        self._problem = ""
        self._over = threading.Event()
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin; the thread has the caller's context, with Prefect's settings in it."""
        work = copy_context().run
        threading.Thread(target=work, args=(self._try,), name="notify", daemon=True).start()

    def problem_within(self, seconds: float) -> str:
        """Wait for the end, and return what is wrong, or nothing."""
        if not self._ended.wait(seconds):
            self._over.set()
            return f"did not end within {seconds:g} s"
        return self._problem

    def _try(self) -> None:
        for number in range(self._most):
            if number and self._over.wait(_FIRST_PAUSE_SECONDS * 2 ** (number - 1)):
                break
            try:
                self._way()
            except DeliveryError as error:
                self._problem = f"failed ({error})"
                if not error.passing:
                    break
            except Exception as error:  # its text may have the address
                self._problem = f"failed ({type(error).__name__})"
                break
            else:
                self._problem = ""
                break
        self._ended.set()
