"""How fast a task goes and how long it will take, from what it told of late."""

import time
from collections import deque

from flows.cli.figures import span
from tasks.advance import Advance

_OF_LATE_SECONDS = 5.0
_APART_SECONDS = 0.2


class Pace:
    """What a task tells of its advance, and what follows from it."""

    def __init__(self) -> None:
        self._told: deque[tuple[float, int]] = deque()
        self.advance = Advance(0, 0, "")

    def note(self, advance: Advance, now: float | None = None) -> None:
        """Take in what a task tells, at some time of a clock that only goes forward."""
        now = time.monotonic() if now is None else now
        self.advance = advance
        if not self._told or now - self._told[-1][0] >= _APART_SECONDS:
            self._told.append((now, advance.done))
        while len(self._told) > 2 and now - self._told[1][0] >= _OF_LATE_SECONDS:
            self._told.popleft()

    def a_second(self, now: float) -> float:
        """How much was done in a second of late; 0 if that cannot be told yet. Silence slows it down."""
        (began, before), (_, done) = self._told[0], self._told[-1]
        return (done - before) / (now - began) if now > began else 0.0

    def words(self, now: float | None = None) -> str:
        """`8,100 merges/s, 2.4 s left (12,300/31,744)`."""
        done, total, unit = self.advance
        a_second = self.a_second(time.monotonic() if now is None else now)
        if a_second <= 0 or done >= total:
            return f"{done:,}/{total:,} {unit}"
        return f"{a_second:,.0f} {unit}/s, {span((total - done) / a_second)} left ({done:,}/{total:,})"
