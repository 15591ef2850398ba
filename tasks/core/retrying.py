"""Does work again after a fault that may pass (`tasks.core.faults.may_pass`), after pauses that grow."""

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from tokmill.tasks.core.faults import may_pass
from tokmill.tokenizer.core.stopping import raise_if_stopped

T = TypeVar("T")

_LOG = logging.getLogger(__name__)
_LOOK_SECONDS = 0.1
_never = threading.Event()


def tried_again(work: Callable[[], T], title: str, retries: int, pause: float) -> T:
    """Return what `work` returns, in the first attempt that succeeds; log the others as warnings.

    Args:
        work: does the work; after a failure it leaves nothing behind.
        title: its name in the warnings.
        retries: further attempts.
        pause: seconds before the first of these; before each further one it is twice as long.

    Raises:
        Exception: that of the last attempt, or one that would come again.
        StopRequested: a stop was requested during a pause.
    """
    for number in range(retries):
        try:
            return work()
        except Exception as error:
            if not may_pass(error):
                raise
            attempt = f"attempt {number + 1} of {retries + 1}"
            _LOG.warning("%s: %s failed (%s); the next is in %g s", title, attempt, error, pause * 2**number)
        _wait(pause * 2**number)
    return work()


def _wait(seconds: float) -> None:
    while seconds > 0:
        raise_if_stopped()
        _never.wait(min(seconds, _LOOK_SECONDS))
        seconds -= _LOOK_SECONDS
    raise_if_stopped()
