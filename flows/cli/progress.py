"""Shows a run's progress: one line per group of tasks.

On a terminal all groups are shown at once, active ones with a bar and a clock. Elsewhere (a log, a pipe) each
group prints one line when it is done, and a long one its progress now and then. Both write to standard error.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tokmill.flows.cli.output import OneLine, visible
from tokmill.flows.figures import counted, key_figures, outcome_words, span
from tokmill.flows.pace import Pace
from tokmill.flows.results import RunRow, group_of
from tokmill.flows.run.progress import Reporter
from tokmill.tasks.core.context import StageProgress
from tokmill.tasks.core.stage import Scalar

_SIGN_OF_LIFE_SECONDS = 10.0
_NAMES_SHOWN = 3
_NAME, _COUNT, _BAR, _CLOCK = len("merge_counts[*]"), 7, 18, 8
"""Columns of a group's name (more if it is longer), of its counts, its outcome or its bar, and its time."""


@dataclass
class TaskGroup:
    """The state of a group of tasks: their number, the active ones, and the outcomes of the others."""

    name: str
    num_tasks: int = 1
    ended_as: Counter[str] = field(default_factory=Counter)
    refused: bool = False
    at_work: dict[str, None] = field(default_factory=dict)
    began: float | None = None
    ended: float | None = None
    last_printed: float = 0.0
    seconds_of_work: float = 0.0
    pace: Pace | None = None
    kind: str = ""
    metrics: Mapping[str, Scalar] = field(default_factory=dict)

    @property
    def num_done(self) -> int:
        """Number of tasks that ended, failures included."""
        return self.ended_as.total()

    @property
    def complete(self) -> bool:
        """Whether every task of the group ended."""
        return self.num_done >= self.num_tasks

    @property
    def failed(self) -> bool:
        """Whether a task failed, or a gate did."""
        return self.refused or bool(self.ended_as["failed"])

    @property
    def count(self) -> str:
        """`3/8`, or nothing for a group of one."""
        return f"{self.num_done}/{self.num_tasks}" if self.num_tasks > 1 else ""

    @property
    def outcome(self) -> str:
        """`made`, `cached`, `3 made, 5 cached, 2 waited for`, `failed`, `gate failed`."""
        if self.refused:
            return "gate failed"
        return outcome_words({how: self.ended_as[how] for how in ("made", "cached", "waited for", "failed")})

    @property
    def seconds(self) -> float:
        """Wall time from the first task's start to the last one's end; the reported time of a single task."""
        if self.num_tasks == 1 and self.seconds_of_work:
            return self.seconds_of_work
        if self.began is None:
            return 0.0
        return (time.monotonic() if self.ended is None else self.ended) - self.began

    @property
    def clock(self) -> str:
        """The wall time as text, or nothing if no work was done."""
        return span(self.seconds) if self.began is not None or self.seconds_of_work else ""

    @property
    def figures(self) -> str:
        """Progress, then key figures, of a single task; nothing for a group of shards."""
        if self.num_tasks > 1:
            return ""
        if not self.complete:
            return self.pace.words() if self.pace else ""
        return key_figures(self.kind, self.metrics)


class Display(Reporter, ABC):
    """Takes up a part of the screen; keeps the groups in the order of their first report."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.groups: dict[str, TaskGroup] = {}
        self.lock = threading.RLock()

    def expect(self, group: str, num_tasks: int) -> None:
        """`num_tasks` more tasks of `group` are about to be submitted."""
        with self.lock:
            known = self.groups.get(group)
            self.groups[group] = known or TaskGroup(group, 0)
            self.groups[group].num_tasks += num_tasks
            self.groups[group].ended = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        pass

    def on_start(self, task_name: str) -> None:
        """A task begins to work."""
        with self.lock:
            group = self._group(task_name)
            group.began = time.monotonic() if group.began is None else group.began
            group.at_work[task_name] = None

    def on_progress(self, task_name: str, progress: StageProgress) -> None:
        """A task reports its progress."""
        with self.lock:
            group = self._group(task_name)
            group.pace = group.pace or Pace()
            group.pace.note(progress)
            self.changed(group)

    def on_finish(self, row: RunRow) -> None:
        """A task succeeded."""
        with self.lock:
            group = self._group(row.task)
            group.seconds_of_work += row.seconds
            group.kind, group.metrics = row.ref.kind, row.metrics
            self._ended_one(group, row.task, "waited for" if row.how == "waited" else row.how)

    def on_fail(self, task_name: str, message: str) -> None:
        """A task failed; its message is shown once, when the run ends."""
        with self.lock:
            self._ended_one(self._group(task_name), task_name, "failed")

    def on_refuse(self, task_name: str, message: str) -> None:
        """An artifact did not pass its gate."""
        with self.lock:
            group = self._group(task_name)
            group.refused = True
            self.changed(group)

    def note(self, text: str) -> None:
        """Print a line of its own."""
        with self.lock:
            self.write(Text(f"  {visible(text)}", style="dim"))

    def kept(self, store: str) -> str:
        """Describe the work that stays in the store if the run ends now."""
        with self.lock:
            done = sum(group.num_done - group.ended_as["failed"] for group in self.groups.values())
        if not done:
            return f"no task is done yet, and {store} is unchanged"
        return f"{counted(done, 'task')} of the run {'is' if done == 1 else 'are'} done and kept in {store}"

    def write(self, line: Text) -> None:
        """Print a line; if the reader is gone (`2>&1 | head`), the run continues without output."""
        try:
            self.console.print(line, soft_wrap=True)
        except (OSError, SystemExit):  # rich ends the process when a pipe breaks
            self.console.quiet = True

    @abstractmethod
    def changed(self, group: TaskGroup) -> None:
        """Show the new state of `group`; called with the lock held."""

    def _ended_one(self, group: TaskGroup, task_name: str, how: str) -> None:
        group.at_work.pop(task_name, None)
        group.ended_as[how] += 1
        group.ended = time.monotonic() if group.complete else None
        self.changed(group)

    def _group(self, task_name: str) -> TaskGroup:
        name = group_of(task_name)
        return self.groups.setdefault(name, TaskGroup(name))


class PlainProgress(Display):
    """Prints one line per finished group, and fewer and fewer lines for long ones."""

    def changed(self, group: TaskGroup) -> None:
        """Print the group if it is done, or if it has worked twice as long as at its last line."""
        if group.complete:
            self._print(group, group.outcome)
        elif group.seconds > max(_SIGN_OF_LIFE_SECONDS, 2 * group.last_printed):
            group.last_printed = group.seconds
            self._print(group, "at work")

    def _print(self, group: TaskGroup, outcome: str) -> None:
        width = max(14, *map(len, self.groups))
        line = f"{group.name:<{width}} {group.count:>7}  {outcome:<18} {group.clock:>8}  {group.figures}"
        self.write(Text(line.rstrip()))


class LiveProgress(Display):
    """Shows every group as a line, which stays after a failure; a successful run's summary replaces it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._spinner = Spinner("dots", style="cyan")
        self._began = time.monotonic()
        self._live = Live(console=console, get_renderable=self.drawn, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        self._live.stop()
        if kind is not None:
            ended = [group for group in self.groups.values() if group.num_done]
            self.console.print(Group(*(_row(group, _mark(group), self._name_width()) for group in ended)))

    def changed(self, group: TaskGroup) -> None:
        """Do nothing: `Live` redraws by itself."""

    def drawn(self) -> RenderableType:
        """Return the current lines."""
        with self.lock:
            width = self._name_width()
            groups = self.groups.values()
            rows = [_row(each, _mark(each) if each.complete else self._spinner, width) for each in groups]
            num_at_work = sum(bool(group.at_work) for group in self.groups.values())
        if not num_at_work:
            # the run looks into the store, or Prefect starts
            idle = Table.grid(padding=(0, 1))
            what = "" if rows else f"starting … {span(time.monotonic() - self._began)}"
            idle.add_row(self._spinner, Text(what, style="dim"))
            rows.append(idle)
        return Group(*rows[-(self.console.height - 2) :])

    def _name_width(self) -> int:
        return max(_NAME, *map(len, self.groups), 0)


def _row(group: TaskGroup, mark: RenderableType, name_width: int) -> Table:
    """Return the line of a group; only its last column gives way on a narrow terminal."""
    row = Table.grid(padding=(0, 1))
    for width in (1, name_width, _COUNT, _BAR, _CLOCK):
        right = width in {_COUNT, _CLOCK}
        row.add_column(min_width=width, max_width=width, justify="right" if right else "left", no_wrap=True)
    row.columns[-1].style = "dim"
    row.add_column(style="dim")
    # rich would read names in brackets as markup in a str.
    name, tail = Text(group.name), Text(group.figures or _names_at_work(group))
    style = "red" if group.failed else "green" if group.ended_as["made"] else "cyan"
    outcome = Text(group.outcome, style=style) if group.complete else _bar(group)
    row.add_row(mark, name, group.count, outcome, group.clock, OneLine(tail))
    return row


def _mark(group: TaskGroup) -> Text:
    if not group.complete and not group.ended_as["failed"]:
        return Text("·", style="dim")
    return Text("✗", style="bold red") if group.failed else Text("✓", style="green")


def _bar(group: TaskGroup) -> RenderableType:
    if group.num_tasks == 1 and group.pace:
        return ProgressBar(total=group.pace.progress.total, completed=group.pace.progress.done, width=_BAR)
    if group.num_tasks == 1:
        return Text("at work" if group.at_work else "", style="dim")
    return ProgressBar(total=group.num_tasks, completed=group.num_done, width=_BAR)


def _names_at_work(group: TaskGroup) -> str:
    """The active shards: `code/3, english/0`."""
    if group.num_tasks == 1:
        return ""
    names = [name.partition("[")[2].removesuffix("]") for name in group.at_work]
    return ", ".join(names[:_NAMES_SHOWN]) + (" …" if len(names) > _NAMES_SHOWN else "")


def display(console: Console) -> Display:
    """Return a live display for a terminal, plain lines elsewhere."""
    return LiveProgress(console) if console.is_interactive else PlainProgress(console)
