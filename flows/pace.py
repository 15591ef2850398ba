"""Estimate the speed and the remaining time of a task from its progress reports.

The displayed speed is the recent one. A task that works in rounds (training counts pairs, then merges them)
pauses now and then, and an estimate from such a pause would be far too long. So the remaining time is
computed from the recent speed or the speed of the second half of the task so far, whichever is faster. It is
shown once 2 % is done: the first steps wait for kernels to be compiled. A report of other work than before
(another unit, another total, less done) restarts the estimate.
"""

import time
from collections import deque

from tokmill.flows.figures import size, span
from tokmill.tasks.core.context import StageProgress

_RECENT_SECONDS = 5.0
_LEAST_INTERVAL_SECONDS = 0.2
_LEAST_SHARE = 0.02


def size_of(done: int, total: int) -> str:
    """Return how much of a text is done: `1.2 MiB of 3.4 MiB`."""
    return f"{size(done)} of {size(total)}"


class Pace:
    """The progress reports of a task, and the speed estimated from them."""

    def __init__(self) -> None:
        self._reports: deque[tuple[float, int]] = deque()
        self._began = 0.0
        self.progress = StageProgress(0, 0, "")

    def note(self, progress: StageProgress, now: float | None = None) -> None:
        """Add a progress report, at a time of a monotonic clock."""
        now = time.monotonic() if now is None else now
        before, self.progress = self.progress, progress
        if (progress.unit, progress.total) != (before.unit, before.total) or progress.done < before.done:
            self._reports.clear()
        if not self._reports:
            self._began = now
        if not self._reports or now - self._reports[-1][0] >= _LEAST_INTERVAL_SECONDS:
            self._reports.append((now, progress.done))
        while len(self._reports) > 2 and now - self._reports[1][0] >= self._latter_half(now):
            self._reports.popleft()

    def per_second(self, now: float, since: float = _RECENT_SECONDS) -> float:
        """Return the amount done per second, from `since` seconds before the last report until now.

        0 if there are too few reports.
        """
        last, done = self._reports[-1]
        began, before = self._reports[0]
        for moment, so_far in self._reports:
            if last - moment < since:
                break
            began, before = moment, so_far
        return (done - before) / (now - began) if now > began else 0.0

    def words(self, now: float | None = None) -> str:
        """`2.4 s left · 8,100 merges/s · 12,300/31,744`, from which a narrow terminal leaves out the end."""
        done, total, unit = self.progress[:3]
        now = time.monotonic() if now is None else now
        recent = self.per_second(now)
        pace = max(recent, self.per_second(now, self._latter_half(now)))
        if pace <= 0 or not total * _LEAST_SHARE <= done < total:
            return size_of(done, total) if unit == "bytes" else f"{done:,}/{total:,} {unit}"
        left = f"{span((total - done) / pace)} left"
        if unit == "bytes":
            return f"{left} · {recent / 1e6:,.1f} MB/s · {size_of(done, total)}"
        return f"{left} · {recent:,.0f} {unit}/s · {done:,}/{total:,}"

    def _latter_half(self, now: float) -> float:
        return max(_RECENT_SECONDS, (now - self._began) / 2)
