"""Estimate the speed and the remaining time of a task from its progress reports.

The displayed speed is the recent one. A task that works in rounds (training counts pairs, then merges them)
pauses now and then, and an estimate from such a pause would be far too long. So the remaining time is
computed from the recent speed or the speed of the second half of the task so far, whichever is faster.
"""

import time
from collections import deque

from tokmill.flows.cli.figures import span
from tokmill.tasks.core.progress import StageProgress

_OF_LATE_SECONDS = 5.0
_APART_SECONDS = 0.2


class Pace:
    """The progress reports of a task, and the speed estimated from them."""

    def __init__(self) -> None:
        self._told: deque[tuple[float, int]] = deque()
        self._began = 0.0
        self.advance = StageProgress(0, 0, "")

    def note(self, advance: StageProgress, now: float | None = None) -> None:
        """Add a progress report, at a time of a monotonic clock."""
        now = time.monotonic() if now is None else now
        self.advance = advance
        if not self._told:
            self._began = now
        if not self._told or now - self._told[-1][0] >= _APART_SECONDS:
            self._told.append((now, advance.done))
        while len(self._told) > 2 and now - self._told[1][0] >= self._latter_half(now):
            self._told.popleft()

    def a_second(self, now: float, since: float = _OF_LATE_SECONDS) -> float:
        """The amount done per second, in the `since` seconds before the last report.

        0 if there are too few reports. The time since the last report lowers it.
        """
        last, done = self._told[-1]
        began, before = self._told[0]
        for moment, so_far in self._told:
            if last - moment < since:
                break
            began, before = moment, so_far
        return (done - before) / (now - began) if now > began else 0.0

    def words(self, now: float | None = None) -> str:
        """`8,100 merges/s, 2.4 s left (12,300/31,744)`."""
        done, total, unit = self.advance
        now = time.monotonic() if now is None else now
        of_late = self.a_second(now)
        pace = max(of_late, self.a_second(now, self._latter_half(now)))
        if pace <= 0 or done >= total:
            return f"{done:,}/{total:,} {unit}"
        return f"{of_late:,.0f} {unit}/s, {span((total - done) / pace)} left ({done:,}/{total:,})"

    def _latter_half(self, now: float) -> float:
        return max(_OF_LATE_SECONDS, (now - self._began) / 2)
