"""The progress of a group of tasks, for a progress artifact: how much is done, at what pace, how long yet.

    42 % · 2 min 10 s left · 17 of 40 shards · 1,204,112 documents · 310,220,018 tokens · 45.3 MB/s

A group is a stage's task, or all shards of a stage. What the tasks that have ended did is in their metrics;
what the others have done so far they report. Shards are planned to be of about one size, so the share of
shards is the share of the work. The pace is that of the work of this run; what was cached does not count.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tokmill.flows.figures import counted, span
from tokmill.tasks.core.context import StageProgress
from tokmill.tasks.core.stage import How, Scalar

_MEASURED: Final = {"documents": "num_documents", "tokens": "num_tokens", "bytes": "num_bytes"}
_ALMOST: Final = 0.99
_MEGA: Final = 1_000_000


@dataclass
class GroupProgress:
    """What is known of a group.

    Attributes:
        began: when its first task began, in seconds of a monotonic clock; None before.
        num_tasks: its tasks.
        num_ended: those that have ended.
        num_reused: those of them that did no work.
        num_failed: those of them that failed.
        at_work: title → what a task reported last; None if it has reported nothing.
        done: amounts of the tasks that made something: documents, tokens, bytes.
    """

    began: float | None = None
    num_tasks: int = 1
    num_ended: int = 0
    num_reused: int = 0
    num_failed: int = 0
    at_work: dict[str, StageProgress | None] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)

    @property
    def complete(self) -> bool:
        """Whether every task of the group has ended."""
        return self.num_ended >= self.num_tasks

    def start(self, title: str, now: float) -> None:
        """A task begins."""
        self.began = now if self.began is None else self.began
        self.at_work[title] = None

    def report(self, title: str, progress: StageProgress) -> None:
        """A task at work reports how far it is."""
        if title in self.at_work:
            self.at_work[title] = progress

    def end(self, title: str, how: How | None, metrics: Mapping[str, Scalar]) -> None:
        """A task has ended; `how` is None if it failed."""
        self.at_work.pop(title, None)
        self.num_ended += 1
        self.num_reused += how in {"cached", "waited"}
        self.num_failed += how is None
        if how == "made":
            for unit, name in _MEASURED.items():
                amount = metrics.get(name)
                if isinstance(amount, int):
                    self.done[unit] = self.done.get(unit, 0) + amount

    @property
    def share(self) -> float:
        """How much of the group's work is done, from 0 to 1; 1 only when all tasks have ended."""
        share = (self.num_ended + self._at_work) / max(self.num_tasks, 1)
        return share if self.complete else min(share, _ALMOST)

    @property
    def _at_work(self) -> float:
        reports = [report for report in self.at_work.values() if report is not None and report.total > 0]
        return sum(min(report.done / report.total, 1.0) for report in reports)

    def words(self, now: float) -> str:
        """Return the progress in words, at a time of the same clock."""
        seconds = max(now - (now if self.began is None else self.began), 1e-9)
        left = self._seconds_left(seconds)
        pace = f"{span(left)} left" if left else f"{span(seconds)} so far"
        shards = f"{self.num_ended:,} of {counted(self.num_tasks, 'shard')}" if self.num_tasks > 1 else ""
        failed = f"{self.num_failed:,} failed" if self.num_failed else ""
        parts = [
            f"{100 * self.share:.0f} %" if self.share else "",
            f"{span(seconds)} in all" if self.complete else pace,
            shards,
            *self._amounts(seconds),
            failed,
        ]
        return " · ".join(part for part in parts if part)

    def _seconds_left(self, seconds: float) -> float:
        """The time that the rest takes at the pace so far; 0 if there is no pace yet."""
        worked = self.num_ended - self.num_reused + self._at_work
        return seconds * max(self.num_tasks * (1 - self.share), 0) / worked if worked > 0 else 0.0

    def _amounts(self, seconds: float) -> list[str]:
        """Documents, tokens and pace; a task that is at work may have another unit, such as merges."""
        amounts = dict(self.done)
        for report in self.at_work.values():
            for unit, amount in ({} if report is None else {**report.also, report.unit: report.done}).items():
                amounts[unit] = amounts.get(unit, 0) + amount
        text = amounts.pop("bytes", 0)
        words = [f"{amount:,} {unit}" for unit, amount in amounts.items() if amount]
        if text:
            return [*words, f"{text / _MEGA / seconds:,.1f} MB/s"]
        unit, amount = next(reversed(amounts.items()), ("", 0))
        return [*words, f"{amount / seconds:,.0f} {unit}/s"] if amount and unit != "documents" else words
