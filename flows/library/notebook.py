"""A run's progress in a notebook: one table that is drawn again in its place until the run is done."""

import sys
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, Self

from rich.text import Text

from tokmill.flows.cli.output import messages
from tokmill.flows.cli.progress import Display, display
from tokmill.flows.run.events import Listener
from tokmill.flows.run.progress import Group
from tokmill.tokenizer.core import markup

_REDRAWN_SECONDS = 0.25


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook; IPython is not imported for that."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


class NotebookProgress(Display):
    """Draws every group of tasks as a row of a table, a few times a second."""

    def __init__(self) -> None:
        super().__init__(messages())
        self._notes: list[str] = []
        self._drawn_at = 0.0
        self._handle: Any = None

    def __enter__(self) -> Self:
        from IPython.display import display as displayed  # noqa: PLC0415 - only kernels have it

        self._handle = displayed(_bundle(self._table()), raw=True, display_id=True)
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        """Take the display away; after a failure it stays."""
        remarks = markup.sheet("Run", *map(markup.note, self._notes)) if self._notes else ""
        self._draw(self._table() if kind is not None else remarks)

    def changed(self, group: Group) -> None:
        """Draw again, unless that was a moment ago."""
        if time.monotonic() - self._drawn_at > _REDRAWN_SECONDS:
            self._draw(self._table())

    def write(self, line: Text) -> None:
        """Keep a note; it is shown with the table."""
        self._notes.append(line.plain.strip())
        self._draw(self._table())

    def _table(self) -> str:
        with self.run.lock:
            rows = [
                (
                    "✗" if group.num_failed else "✓" if group.complete else "…",
                    *(group.name, group.count, group.outcome or "at work", group.clock, group.figures),
                )
                for group in self.run.groups.values()
            ]
        columns = ("", "stage", "tasks", "result", "time", "figures")
        return markup.sheet(
            "Run", markup.grid(columns, rows, ("tasks", "time")), *map(markup.note, self._notes)
        )

    def _draw(self, html: str) -> None:
        self._drawn_at = time.monotonic()
        with suppress(Exception):  # a run does not fail because nobody can see it
            self._handle.update(_bundle(html), raw=True)


def _bundle(html: str) -> dict[str, str]:
    """Return what is shown: the table, and a word where no HTML can be."""
    return {"text/html": html, "text/plain": "tokmill: progress of a run"}


def shown(progress: bool | None) -> AbstractContextManager[Listener | None]:
    """Return what shows a run's progress: a table in a notebook; elsewhere nothing, or lines on request."""
    if progress is not False and in_notebook():
        return NotebookProgress()
    return display(messages()) if progress else nullcontext()
