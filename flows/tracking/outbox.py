"""Sends messages one after the other, in a thread of its own, so that a run does not wait for a receiver.

The order is that of `put`. After three messages in a row that were not taken, no further one is tried, and
the end of a run does not wait long for one that neither takes nor refuses: a receiver that is down would
otherwise hold it up. How many were not taken, and why, is told once.
"""

import math
import threading
import time
from collections.abc import Callable
from contextvars import copy_context
from queue import SimpleQueue
from typing import Final

_GIVE_UP_AFTER: Final = 3


class Outbox:
    """Messages on their way to one receiver.

    Args:
        name: of the receiver, for people.
        warn: called with one sentence if messages were not taken.
    """

    def __init__(self, name: str, warn: Callable[[str], None]) -> None:
        self._name = name
        self._warn = warn
        self._waiting: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._num_put = 0
        self._num_taken = 0
        self._in_a_row = 0
        self._problem = ""
        self._last_taken = -math.inf
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._send_all,), name=name, daemon=True
        )
        self._thread.start()

    def put(self, send: Callable[[], None]) -> None:
        """Have a message sent after all that were put before; `send` raises if it is not taken."""
        self._num_put += 1
        self._waiting.put(send)

    def close(self, seconds: float, silence: float = math.inf) -> None:
        """Wait until all messages are sent, but not longer than that.

        Args:
            seconds: how long to wait at most.
            silence: for how many of them to wait for a message to be taken before the others are given up.
        """
        self._waiting.put(None)
        began = self._last_taken = time.monotonic()
        while self._thread.is_alive():
            now = time.monotonic()
            left = min(began + seconds, self._last_taken + silence) - now
            if left <= 0:
                break
            self._thread.join(left)
        lost = self._num_put - self._num_taken
        if lost:
            waited = (
                f"it took longer than {time.monotonic() - began:.0f} s" if self._thread.is_alive() else ""
            )
            why = self._problem or waited
            many = f"{lost} of {self._num_put} messages were" if self._num_put > 1 else "the message was"
            self._warn(f"{self._name}: {many} not taken ({why}); the run is not affected")

    def _send_all(self) -> None:
        while (send := self._waiting.get()) is not None:
            if self._in_a_row >= _GIVE_UP_AFTER:
                continue
            try:
                send()
            except Exception as error:  # its text may have an address with a password in it
                self._problem = f"{type(error).__name__}"
                self._in_a_row += 1
            else:
                self._num_taken += 1
                self._last_taken = time.monotonic()
                self._in_a_row = 0
