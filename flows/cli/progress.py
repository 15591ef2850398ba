"""Shows a run's progress: one line per group of tasks.

On a terminal all groups are shown at once, active ones with a bar and a clock. Elsewhere (a log, a pipe) each
group prints one line when it is done, and after a silence those at work do: after three seconds at first, and
a twentieth of the run's age later. Both write to standard error, and say which kernel is compiled.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal, Self

from rich.console import Console, RenderableType
from rich.console import Group as Stack
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from tokmill.flows.cli.output import OneLine, visible
from tokmill.flows.figures import counted, span
from tokmill.flows.run.events import Event, RunState
from tokmill.flows.run.progress import Group
from tokmill.tokenizer.jit.machine_code import compiling

_SILENT_SECONDS, _SILENT_SHARE, _LOOK_SECONDS = 2.5, 0.05, 0.5
_USUAL_KERNELS = 40  # that a first run compiles (benchmarks/first_run.py counts them)
_NAMES_SHOWN = 3
_NAME, _COUNT, _BAR, _CLOCK = len("merge_counts[*]"), 7, 18, 8
"""Columns of a group's name (more if it is longer), of its counts, its outcome or its bar, and its time."""


class Display(ABC):
    """Takes up a part of the screen with the groups of a run, in the order of their first event."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.run = RunState()
        self._began = self._spoke = time.monotonic()
        self._awaited = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:  # noqa: B027
        """Show the run's end; after a failure what was shown stays, and so do plain lines."""

    def __call__(self, event: Event, run: RunState) -> None:
        """Show an event."""
        self.run = run
        if event.what == "awaited":
            self._awaited = f"{event.text} "
        with run.lock:
            if event.what == "noted":
                self.write(Text(f"  {visible(event.text)}", style="dim"))
            elif event.group is not None and event.what not in {"submitted", "started"}:
                self.changed(event.group)

    def kept(self, store: str) -> str:
        """Describe the work that stays in the store if the run ends now."""
        with self.run.lock:
            done = sum(len(group.rows) for group in self.run.groups.values())
        if not done:
            return f"no task is done yet, and {store} is unchanged"
        return f"{counted(done, 'task')} of the run {'is' if done == 1 else 'are'} done and kept in {store}"

    def write(self, line: Text) -> None:
        """Print a line; if the reader is gone (`2>&1 | head`), the run continues without output."""
        self._spoke = time.monotonic()
        try:
            self.console.print(line, soft_wrap=True)
        except (OSError, SystemExit):  # rich ends the process when a pipe breaks
            self.console.quiet = True

    def aside(self) -> str:
        """Return what is done beside the groups' work: `compiling kernel 3 of about 40: merge_pairs`."""
        if found := compiling():
            name, number = found
            all_of_them = f" of about {_USUAL_KERNELS}" if number <= _USUAL_KERNELS else ""
            return f"compiling kernel {number}{all_of_them}: {name}"
        since = span(time.monotonic() - self._began)
        return "" if self.run.groups else f"starting {self._awaited}… {since}"

    @abstractmethod
    def changed(self, group: Group) -> None:
        """Show the new state of `group`; called with the lock held."""


class PlainProgress(Display):
    """Prints one line per finished group, and after a silence what is at work."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._over = threading.Event()

    def __enter__(self) -> Self:
        threading.Thread(target=self._watch, name="progress", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            self.break_silence()

    def break_silence(self) -> None:
        """Print what is at work if there has been no line for long."""
        with self.run.lock:
            now = time.monotonic()
            if now - self._spoke < max(_SILENT_SECONDS, _SILENT_SHARE * (now - self._began)):
                return
            for group in self.run.groups.values():
                if group.at_work:
                    self._print(group, "at work")
            if words := self.aside():
                self.write(Text(f"  {words}", style="dim"))

    def changed(self, group: Group) -> None:
        """Print the group if it is done."""
        if group.complete:
            self._print(group, group.outcome)

    def _print(self, group: Group, outcome: str) -> None:
        width = max(14, *map(len, self.run.groups))
        line = f"{group.name:<{width}} {group.count:>7}  {outcome:<18} {group.clock:>8}  {group.figures}"
        self.write(Text(line.rstrip()))


class LiveProgress(Display):
    """Shows every group as a line, which stays after a failure; a successful run's summary replaces it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._spinner, self._below = Spinner("dots", style="cyan"), Spinner("dots", style="cyan")
        self._live = Live(console=console, get_renderable=self.drawn, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        self._live.stop()
        if kind is not None:
            ended = [group for group in self.run.groups.values() if group.num_ended]
            self.console.print(_lines(ended))

    def changed(self, group: Group) -> None:
        """Do nothing: `Live` redraws by itself."""

    def drawn(self) -> RenderableType:
        """Return the current lines."""
        with self.run.lock:
            groups = list(self.run.groups.values())
            lines = _lines(groups[-(self.console.height - 2) :], self._spinner)
            words, idle = self.aside(), not any(group.at_work for group in groups)
        if words or idle:  # the run looks into the store, or Prefect starts
            self._below.update(text=OneLine(Text(words, style="dim")))
            return Stack(lines, self._below)
        return lines


def _lines(groups: Sequence[Group], spinner: Spinner | None = None) -> Table:
    """Return a line for each group; only its last column gives way on a narrow terminal."""
    made, name_width = Table.grid(padding=(0, 1)), max([_NAME, *(len(group.name) for group in groups)])
    for width in (1, name_width, _COUNT, _BAR, _CLOCK):
        justify: Literal["left", "right"] = "right" if width in {_COUNT, _CLOCK} else "left"
        made.add_column(min_width=width, max_width=width, justify=justify, no_wrap=True)
    made.columns[-1].style = "dim"
    made.add_column(style="dim")
    for group in groups:
        # rich would read names in brackets as markup in a str
        shards = [name.partition("[")[2].removesuffix("]") for name in group.at_work]
        shards = [*shards[:_NAMES_SHOWN], *["…"] * (len(shards) > _NAMES_SHOWN)] * (group.num_tasks > 1)
        tail = OneLine(Text(group.figures or ", ".join(shards)))
        style = "red" if group.failed else "green" if group.has_made else "cyan"
        outcome = Text(group.outcome, style=style) if group.complete else _bar(group)
        ended = Text("✗", style="bold red") if group.failed else Text("✓", style="green")
        ended = ended if group.complete or group.num_failed else Text("·", style="dim")
        mark = ended if group.complete or spinner is None or group.began is None else spinner
        made.add_row(mark, Text(group.name), group.count, outcome, group.clock, tail)
    return made


def _bar(group: Group) -> RenderableType:
    if group.num_tasks > 1:
        return ProgressBar(total=group.num_tasks, completed=group.num_ended, width=_BAR)
    if group.pace:
        return ProgressBar(total=group.pace.progress.total, completed=group.pace.progress.done, width=_BAR)
    return Text("at work" if group.at_work else "", style="dim")


def display(console: Console) -> Display:
    """Return a live display for a terminal, plain lines elsewhere."""
    return LiveProgress(console) if console.is_interactive else PlainProgress(console)
