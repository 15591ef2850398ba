"""The display of a run's progress: one line per group of tasks.

On a terminal all groups are seen at once, those at work with a bar and a clock. Elsewhere (a log, a pipe)
each group is one plain line when it is done, and a long one says every ten seconds how far it is. Both tell
the same things and write to standard error, so that standard output holds results only.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tokmill.flows.cli.figures import counted, key_figures, outcome_words, span
from tokmill.flows.cli.pace import Pace
from tokmill.flows.run.progress import Reporter, group_of
from tokmill.tasks.core.progress import StageProgress
from tokmill.tasks.core.stage import ArtifactRef, How, Scalar

_SIGN_OF_LIFE_SECONDS = 10.0
_NAMES_SHOWN = 3


class Display(Reporter, Protocol):
    """A reporter that holds a piece of the screen while it is entered."""

    def __enter__(self) -> Self:
        """Begin to show."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the screen back."""
        ...

    def kept(self, store: str) -> str:
        """What a run that ends here leaves in its store, in words."""
        ...


@dataclass
class TaskGroup:
    """The state of one group of tasks: their number, the running ones, and the outcomes of the others."""

    name: str
    num_tasks: int = 1
    num_cached: int = 0
    num_made: int = 0
    num_waited: int = 0
    num_failed: int = 0
    at_work: dict[str, None] = field(default_factory=dict)
    began: float | None = None
    ended: float | None = None
    spoke: float = 0.0
    seconds_of_work: float = 0.0
    pace: Pace | None = None
    kind: str = ""
    metrics: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def num_done(self) -> int:
        """How many of its tasks ended, well or not."""
        return self.num_cached + self.num_made + self.num_waited + self.num_failed

    @property
    def complete(self) -> bool:
        """Whether every task of the group ended."""
        return self.num_done >= self.num_tasks

    @property
    def count(self) -> str:
        """`3/8`, or nothing for a group of one."""
        return f"{self.num_done}/{self.num_tasks}" if self.num_tasks > 1 else ""

    @property
    def outcome(self) -> str:
        """`made`, `cached`, `3 made, 5 cached, 2 waited for`, `failed`."""
        ended = {"made": self.num_made, "cached": self.num_cached, "waited for": self.num_waited}
        return outcome_words({**ended, "failed": self.num_failed})

    @property
    def seconds(self) -> float:
        """Wall time from the first of its tasks to the last; of a single task, what it said itself."""
        if self.num_tasks == 1 and self.seconds_of_work:
            return self.seconds_of_work
        if self.began is None:
            return 0.0
        return (time.monotonic() if self.ended is None else self.ended) - self.began

    @property
    def clock(self) -> str:
        """The wall time in words, or nothing where no work was done."""
        return span(self.seconds) if self.began is not None or self.seconds_of_work else ""

    @property
    def figures(self) -> str:
        """Of a group of one: how far it is, then its key figures; a shard's own say little."""
        if self.num_tasks > 1:
            return ""
        if not self.complete:
            return self.pace.words() if self.pace else ""
        return key_figures(self.kind, self.metrics)


class _Groups(ABC):
    """The groups in the order they were first heard of; the part that both displays share."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.groups: dict[str, TaskGroup] = {}
        self.lock = threading.RLock()

    def expect(self, group: str, num_tasks: int) -> None:
        """`num_tasks` tasks of `group` are about to be submitted, beside those that were before."""
        with self.lock:
            known = self.groups.get(group)
            self.groups[group] = known or TaskGroup(group, 0)
            self.groups[group].num_tasks += num_tasks
            self.groups[group].ended = None

    def on_start(self, task_name: str) -> None:
        """A task begins to work."""
        with self.lock:
            group = self._group(task_name)
            group.began = time.monotonic() if group.began is None else group.began
            group.at_work[task_name] = None

    def on_progress(self, task_name: str, advance: StageProgress) -> None:
        """A task reports its progress."""
        with self.lock:
            group = self._group(task_name)
            group.pace = group.pace or Pace()
            group.pace.note(advance)
            self.changed(group)

    def on_finish(
        self, task_name: str, how: How, seconds: float, ref: ArtifactRef, metrics: Mapping[str, Scalar]
    ) -> None:
        """A task ended well."""
        with self.lock:
            group = self._group(task_name)
            group.at_work.pop(task_name, None)
            group.num_cached += how == "cached"
            group.num_waited += how == "waited"
            group.num_made += how == "made"
            group.seconds_of_work += seconds
            group.kind, group.metrics = ref.kind, metrics
            self._ended_one(group)

    def on_fail(self, task_name: str, message: str) -> None:
        """A task failed; the message itself is shown once, when the run ends."""
        with self.lock:
            group = self._group(task_name)
            group.at_work.pop(task_name, None)
            group.num_failed += 1
            self._ended_one(group)

    def note(self, text: str) -> None:
        """Something worth a line of its own."""
        with self.lock:
            self.write(Text(f"  {text}", style="dim"))

    def kept(self, store: str) -> str:
        """What a run that ends here leaves behind, in words."""
        with self.lock:
            done = sum(group.num_made + group.num_cached + group.num_waited for group in self.groups.values())
        if not done:
            return f"no task was done yet, and {store} is as it was"
        return f"{counted(done, 'task')} of the run {'is' if done == 1 else 'are'} done and kept in {store}"

    def write(self, line: Text) -> None:
        """Print a line; if nobody reads any longer (`2>&1 | head`), the run goes on in silence."""
        try:
            self.console.print(line, soft_wrap=True)
        except (OSError, SystemExit):  # rich ends the process when a pipe breaks
            self.console.quiet = True

    @abstractmethod
    def changed(self, group: TaskGroup) -> None:
        """Show what is new of `group`; called with the lock held."""

    def _ended_one(self, group: TaskGroup) -> None:
        group.ended = time.monotonic() if group.complete else None
        self.changed(group)

    def _group(self, task_name: str) -> TaskGroup:
        name = group_of(task_name)
        return self.groups.setdefault(name, TaskGroup(name))


class PlainProgress(_Groups):
    """One line per finished group, and regular lines for long ones."""

    def __enter__(self) -> Self:
        """Begin to show."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing to give back."""

    def changed(self, group: TaskGroup) -> None:
        """Print the group if it is done, or if it has worked long since its last line."""
        now = time.monotonic()
        if group.complete:
            self._print(group, group.outcome)
        elif now - max(group.spoke, group.began or now) > _SIGN_OF_LIFE_SECONDS:
            group.spoke = now
            self._print(group, "at work")

    def _print(self, group: TaskGroup, outcome: str) -> None:
        line = f"{group.name:<12} {group.count:>7}  {outcome:<18} {group.clock:>8}  {group.figures}"
        self.write(Text(line.rstrip()))


class LiveProgress(_Groups):
    """Every group as a line with a mark, a bar and a clock; cleared when the run ends well.

    What a run did is told better by the summary that follows. One that fails leaves its lines.
    """

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._spinner = Spinner("dots", style="cyan")
        self._began = time.monotonic()
        self._live = Live(console=console, get_renderable=self.drawn, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        """Begin to show."""
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the screen back; after a failure, with what was done."""
        self._live.stop()
        if kind is not None:
            ended = [group for group in self.groups.values() if group.num_done]
            self.console.print(Group(*(_row(group, _mark(group)) for group in ended)))

    def changed(self, group: TaskGroup) -> None:
        """Nothing to do: the clock draws."""

    def drawn(self) -> RenderableType:
        """What the terminal shows now."""
        with self.lock:
            rows = [_row(group, self._sign(group)) for group in self.groups.values()]
            num_at_work = sum(bool(group.at_work) for group in self.groups.values())
        if not num_at_work:
            rows.append(_between(self._spinner, time.monotonic() - self._began, started=bool(rows)))
        return Group(*rows[-(self.console.height - 2) :])

    def _sign(self, group: TaskGroup) -> RenderableType:
        return _mark(group) if group.complete else self._spinner


def _between(spinner: Spinner, seconds: float, *, started: bool) -> Table:
    """The line while no task is at work: Prefect starts, or decides what is cached."""
    row = Table.grid(padding=(0, 1))
    what = "" if started else f"starting Prefect … {span(seconds)}"
    row.add_row(spinner, Text(what, style="dim"))
    return row


def _row(group: TaskGroup, mark: RenderableType) -> Table:
    """One group on one line: mark, name, how many, what became of it, how long, and a bar or figures."""
    row = Table.grid(padding=(0, 1))
    row.add_column(width=1)
    row.add_column(width=10, no_wrap=True)
    row.add_column(width=7, justify="right", no_wrap=True)
    row.add_column(width=18 if group.complete else 24, no_wrap=True)
    row.add_column(width=8, justify="right", style="dim", no_wrap=True)
    row.add_column(style="dim", no_wrap=True, overflow="ellipsis")
    # Names in brackets would be markup in a str.
    name, tail = Text(group.name), Text(group.figures or _names_at_work(group))
    outcome = _styled_outcome(group) if group.complete else _bar(group)
    row.add_row(mark, name, group.count, outcome, group.clock, tail)
    return row


def _mark(group: TaskGroup) -> Text:
    if not group.complete and not group.num_failed:
        return Text("·", style="dim")
    return Text("✗", style="bold red") if group.num_failed else Text("✓", style="green")


def _styled_outcome(group: TaskGroup) -> Text:
    style = "red" if group.num_failed else "green" if group.num_made else "cyan"
    return Text(group.outcome, style=style)


def _bar(group: TaskGroup) -> RenderableType:
    if group.num_tasks == 1 and group.pace:
        return ProgressBar(total=group.pace.advance.total, completed=group.pace.advance.done, width=24)
    if group.num_tasks == 1:
        return Text("at work" if group.at_work else "", style="dim")
    return ProgressBar(total=group.num_tasks, completed=group.num_done, width=24)


def _names_at_work(group: TaskGroup) -> str:
    """The shards at work: `code/3, english/0`."""
    if group.num_tasks == 1:
        return ""
    names = [name.partition("[")[2].removesuffix("]") for name in group.at_work]
    return ", ".join(names[:_NAMES_SHOWN]) + (" …" if len(names) > _NAMES_SHOWN else "")


def display(console: Console) -> Display:
    """Return the display that fits the console: live on a terminal, plain lines elsewhere."""
    return LiveProgress(console) if console.is_interactive else PlainProgress(console)
