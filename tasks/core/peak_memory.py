"""The most memory that this process held while a stage ran.

The kernel knows the peak of the process's whole life. If that rose while the stage ran, it is the stage's
peak, exactly. If not, the largest of some samples is taken. Stages that run at the same time in one process
cannot be told apart: each is given what all of them held together. Where there is no /proc, nothing is known.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_SAMPLE_SECONDS = 0.1
_STATUS = Path("/proc/self/status")


@dataclass(eq=False)
class Peak:
    """What was held so far.

    Attributes:
        num_bytes: the peak of the resident memory; None where it cannot be measured. Complete once the
            block of `peak_memory` has ended.
    """

    num_bytes: int | None = None

    def sample(self, held: int | None) -> None:
        """Note what is held now."""
        if held is not None:
            self.num_bytes = max(held, self.num_bytes or 0)


class _Sampler:
    """One thread of this process that samples for all stages at work; it ends when there are none."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._peaks: set[Peak] = set()
        self._idle = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, peak: Peak) -> None:
        with self._lock:
            self._peaks.add(peak)
            self._idle.clear()
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="tokmill-memory", daemon=True)
                self._thread.start()

    def remove(self, peak: Peak) -> None:
        with self._lock:
            self._peaks.discard(peak)
            if not self._peaks:
                self._idle.set()

    def _run(self) -> None:
        while not self._idle.wait(_SAMPLE_SECONDS):
            held = held_bytes()
            with self._lock:
                for peak in self._peaks:
                    peak.sample(held)
        with self._lock:
            self._thread = None
            if self._peaks:  # one came between the last look and now
                self._idle.clear()
                self._thread = threading.Thread(target=self._run, name="tokmill-memory", daemon=True)
                self._thread.start()


_SAMPLER = _Sampler()


def _begin_anew() -> None:
    """A forked process has no thread of its parent, and maybe a lock that nobody will let go."""
    global _SAMPLER  # noqa: PLW0603 - one per process
    _SAMPLER = _Sampler()


os.register_at_fork(after_in_child=_begin_anew)


@contextmanager
def peak_memory() -> Iterator[Peak]:
    """Measure the peak of the block; the value is complete after it."""
    before, peak, sampler = _of_life(), Peak(held_bytes()), _SAMPLER
    sampler.add(peak)
    try:
        yield peak
    finally:
        sampler.remove(peak)
        after = _of_life()
        rose = before is not None and after is not None and after > before
        peak.sample(after if rose else held_bytes())


def held_bytes() -> int | None:
    """Return the resident memory of this process; None where it cannot be measured."""
    return _status("VmRSS:")


def _of_life() -> int | None:
    return _status("VmHWM:")


def _status(name: str) -> int | None:
    try:
        with _STATUS.open("rb") as lines:
            key = name.encode()
            found = next((line for line in lines if line.startswith(key)), None)
    except OSError:
        return None
    return None if found is None else int(found.split()[1]) * 1024
