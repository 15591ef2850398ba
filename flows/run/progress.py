"""How far a group of tasks is, at what pace, and how long yet: for a terminal, a notebook and a page.

A group is a stage's task, or all shards of a stage: `encode[code/3]` is shard 3 of source `code` in the group
`encode[*]`. Shards are planned to be of about one size, so the share of shards is the share of the work.
"""

import time
from collections import Counter, deque
from dataclasses import dataclass, field
from typing import Final

from tokmill.flows.figures import key_figures, outcome_words, size, span
from tokmill.flows.results import RunRow
from tokmill.tasks.core.context import StageProgress

_ALMOST: Final = 0.99
_MEGA: Final = 1_000_000
_RECENT_SECONDS: Final = 5.0
_LEAST_INTERVAL_SECONDS: Final = 0.2
_LEAST_SHARE: Final = 0.02


class Pace:
    """The progress reports of a task, and the speed estimated from them.

    The displayed speed is the recent one. A task that works in rounds (training counts pairs, then merges
    them) pauses now and then, and an estimate from such a pause would be far too long. So the remaining time
    is computed from the recent speed or the speed of the second half of the task so far, whichever is faster.
    It is shown once 2 % is done: the first steps wait for kernels to be compiled. A report of other work than
    before (another unit, another total, less done) restarts the estimate.
    """

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
        for moment, amount in self._reports:
            if last - moment < since:
                break
            began, before = moment, amount
        return (done - before) / (now - began) if now > began else 0.0

    def words(self, now: float | None = None) -> str:
        """`2.4 s left · 8,100 merges/s · 12,300/31,744`, from which a narrow terminal leaves out the end."""
        done, total, unit = self.progress[:3]
        now = time.monotonic() if now is None else now
        recent = self.per_second(now)
        pace = max(recent, self.per_second(now, self._latter_half(now)))
        amount = f"{size(done)} of {size(total)}" if unit == "bytes" else f"{done:,}/{total:,}"
        if pace <= 0 or not total * _LEAST_SHARE <= done < total:
            return amount if unit == "bytes" else f"{amount} {unit}"
        speed = f"{recent / _MEGA:,.1f} MB/s" if unit == "bytes" else f"{recent:,.0f} {unit}/s"
        return f"{span((total - done) / pace)} left · {speed} · {amount}"

    def _latter_half(self, now: float) -> float:
        return max(_RECENT_SECONDS, (now - self._began) / 2)


@dataclass
class Group:
    """What is known of a group of tasks; it began and ended at seconds of a monotonic clock, or not yet."""

    name: str  # `encode[*]`
    num_tasks: int = 1  # its tasks
    refused: bool = False  # whether an artifact of its did not pass its gate
    # title → what a task reported last; None if it has reported nothing
    at_work: dict[str, StageProgress | None] = field(default_factory=dict)
    rows: list[RunRow] = field(default_factory=list)  # those that succeeded, as they ended
    num_failed: int = 0  # those that failed
    pace: Pace | None = None  # of the task that reported last
    began: float | None = None
    ended: float | None = None
    _seconds_of_work: float = 0.0
    _how: Counter[str] = field(default_factory=Counter)

    def expect(self, num_tasks: int) -> None:
        """More tasks are about to be submitted."""
        self.num_tasks += num_tasks
        self.ended = None

    def start(self, title: str, now: float | None = None) -> None:
        """A task begins, at a time of a monotonic clock."""
        if self.began is None:
            self.began = time.monotonic() if now is None else now
        self.at_work[title] = None

    def report(self, title: str, progress: StageProgress) -> None:
        """A task at work reports how far it is."""
        if title in self.at_work:
            self.at_work[title] = progress
        self.pace = self.pace or Pace()
        self.pace.note(progress)

    def finish(self, row: RunRow) -> None:
        """A task has its artifact."""
        self.rows.append(row)
        self._how[row.how] += 1
        self._seconds_of_work += row.seconds
        self._end(row.task)

    def fail(self, title: str) -> None:
        """A task has failed."""
        self.num_failed += 1
        self._end(title)

    def _end(self, title: str) -> None:
        self.at_work.pop(title, None)
        self.ended = time.monotonic() if self.complete else None

    @property
    def num_ended(self) -> int:
        """How many tasks have ended, failures included."""
        return len(self.rows) + self.num_failed

    @property
    def complete(self) -> bool:
        """Whether every task has ended."""
        return self.num_ended >= self.num_tasks

    @property
    def failed(self) -> bool:
        """Whether a task failed, or a gate did."""
        return self.refused or self.num_failed > 0

    @property
    def has_made(self) -> bool:
        """Whether a task has made its artifact."""
        return self._how["made"] > 0

    @property
    def count(self) -> str:
        """`3/8`, or nothing for a group of one."""
        return f"{self.num_ended}/{self.num_tasks}" if self.num_tasks > 1 else ""

    @property
    def outcome(self) -> str:
        """`made`, `cached`, `3 made, 5 cached, 2 waited for`, `failed`, `gate failed`."""
        if self.refused:
            return "gate failed"
        how = {"made": self._how["made"], "cached": self._how["cached"], "waited for": self._how["waited"]}
        return outcome_words({**how, "failed": self.num_failed})

    @property
    def seconds(self) -> float:
        """Wall time from the first task's start to the last one's end; the reported time of a single task."""
        if self.num_tasks == 1 and self._seconds_of_work:
            return self._seconds_of_work
        return self.age(time.monotonic() if self.ended is None else self.ended)

    def age(self, now: float) -> float:
        """Return the seconds since the first task began; 0 if none has begun."""
        return 0.0 if self.began is None else now - self.began

    @property
    def clock(self) -> str:
        """The wall time as text, or nothing if no work was done."""
        return span(self.seconds) if self.began is not None or self._seconds_of_work else ""

    @property
    def figures(self) -> str:
        """Progress, then key figures, of a single task; nothing for a group of shards."""
        if self.num_tasks > 1:
            return ""
        if self.complete:
            return key_figures(self.rows[-1].ref.kind, self.rows[-1].metrics) if self.rows else ""
        return self.pace.words() if self.pace else ""

    @property
    def share(self) -> float:
        """How much of the group's work is done, from 0 to 1; 1 only when all tasks have ended."""
        share = (self.num_ended + self._part_at_work) / max(self.num_tasks, 1)
        return share if self.complete else min(share, _ALMOST)

    @property
    def _part_at_work(self) -> float:
        reports = [report for report in self.at_work.values() if report is not None and report.total > 0]
        return sum(min(report.done / report.total, 1.0) for report in reports)

    def words(self, now: float) -> str:
        """Return the progress as a progress artifact has it: `17/40 · 2 min 10 s left`."""
        age, worked = self.age(now), self.num_ended - self._how["cached"] + self._part_at_work
        left = age * self.num_tasks * (1 - self.share) / worked if worked > 0 else 0.0
        pace = f"{span(left)} left" if left else f"{span(age)} so far"
        if self.num_tasks == 1:
            return self.figures or pace
        return " · ".join(filter(None, (self.count, f"{span(age)} in all" if self.complete else pace)))
