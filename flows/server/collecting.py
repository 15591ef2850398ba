"""Collects the server's garbage in a thread of its own, so that this never stops the event loop.

A cursor of a failed statement is garbage in a cycle. Freeing it takes the mutex of its connection to SQLite,
which another thread has while its next statement waits for the database's lock: up to Prefect's 60 seconds.
If Python collects garbage on the event loop just then, nobody is answered and the transaction that has the
lock cannot end, so the whole server stands still for a minute. In a thread, only this thread waits.
"""

import gc
import threading

_PAUSE_SECONDS = 0.5


def collect_elsewhere() -> None:
    """From now on, collect this process's garbage in a thread; what there is by now stays."""
    gc.disable()
    gc.freeze()  # the modules: they are never garbage, and need not be looked through
    threading.Thread(target=_collect_for_ever, name="collecting", daemon=True).start()


def _collect_for_ever() -> None:
    never = threading.Event()
    while not never.wait(_PAUSE_SECONDS):
        due = _oldest_due()
        if due is not None:
            gc.collect(due)


def _oldest_due() -> int | None:
    """Return the oldest generation that Python would collect by now; None if it is none."""
    counts, thresholds = gc.get_count(), gc.get_threshold()
    return max((number for number in range(3) if counts[number] > thresholds[number] > 0), default=None)
