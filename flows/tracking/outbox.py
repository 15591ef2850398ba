"""Sends messages one after the other, in a thread of its own, so that a run does not wait for a receiver.

The order is that of `put`. After three messages in a row that were not taken, no further one is tried: a
receiver that is down would otherwise hold up the end of the run. How many were not taken, and why, is told
once.
"""

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
        self._thread = threading.Thread(
            target=copy_context().run, args=(self._send_all,), name=name, daemon=True
        )
        self._thread.start()

    def put(self, send: Callable[[], None]) -> None:
        """Have a message sent after all that were put before; `send` raises if it is not taken."""
        self._num_put += 1
        self._waiting.put(send)

    def close(self, seconds: float) -> None:
        """Wait until all messages are sent, but not longer than that."""
        self._waiting.put(None)
        began = time.monotonic()
        self._thread.join(seconds)
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
                self._in_a_row = 0
