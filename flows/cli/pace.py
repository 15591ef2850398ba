"""How fast a task goes and how long it will take, from what it told.

How fast it goes is told of late. A task that goes by rounds (training looks for pairs, then merges them)
stands still now and then: to go by such a moment would make minutes of the last seconds. So what is left is
reckoned by the pace of late or by that of the latter half of its time, whichever is faster.
"""

import time
from collections import deque

from tokmill.flows.cli.figures import span
from tokmill.tasks.core.progress import StageProgress

_OF_LATE_SECONDS = 5.0
_APART_SECONDS = 0.2


class Pace:
    """What a task tells of its advance, and what follows from it."""

    def __init__(self) -> None:
        self._told: deque[tuple[float, int]] = deque()
        self._began = 0.0
        self.advance = StageProgress(0, 0, "")

    def note(self, advance: StageProgress, now: float | None = None) -> None:
        """Take in what a task tells, at some time of a clock that only goes forward."""
        now = time.monotonic() if now is None else now
        self.advance = advance
        if not self._told:
            self._began = now
        if not self._told or now - self._told[-1][0] >= _APART_SECONDS:
            self._told.append((now, advance.done))
        while len(self._told) > 2 and now - self._told[1][0] >= self._latter_half(now):
            self._told.popleft()

    def a_second(self, now: float, since: float = _OF_LATE_SECONDS) -> float:
        """How much was done in a second, in the `since` seconds before the last that was told.

        0 if that cannot be told yet. Silence slows it down.
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
