"""What a run tells while it runs.

A run is many tasks, and many of them are shards of one step: `encode[code/3]` is shard 3 of source `code` in
the group `encode[*]`. A `Reporter` is told of each task as it starts and ends and shows the group: one line a
group, never one a shard. Whoever maps a task over shards says first how many there are (`expect`); a task
of a group that nobody announced is a group of one.

`Silent` shows nothing. `flows.cli.progress` has the two that a person sees: live on a terminal, plain lines
elsewhere. Reporters are called from several threads at once and must never make a run fail.
"""

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

from tokmill.tasks.core.progress import StageProgress
from tokmill.tasks.core.stage import ArtifactRef, How, Scalar

_SHARD = re.compile(r"(?P<step>[^\[]+)\[(.*/)?\d+\]")


class Reporter(Protocol):
    """Is told of a run's progress; called from any thread."""

    def expect(self, group: str, num_tasks: int) -> None:
        """`num_tasks` tasks of `group` (`encode[*]`) are about to be submitted."""

    def on_start(self, task_name: str) -> None:
        """A task (`encode[code/3]`, `ingest`) begins to work; not called for one found in the cache."""

    def on_progress(self, task_name: str, advance: StageProgress) -> None:
        """A task that takes long tells how far it is, as often as it likes."""

    def on_finish(
        self, task_name: str, how: How, seconds: float, ref: ArtifactRef, metrics: Mapping[str, Scalar]
    ) -> None:
        """A task ended well: how it came by its artifact, how long that took, and what it is."""

    def on_fail(self, task_name: str, message: str) -> None:
        """A task failed; `message` is the error's own text."""

    def note(self, text: str) -> None:
        """Something worth a line of its own: a kernel that compiles, a damaged artifact set aside."""


class Silent:
    """A reporter that shows nothing."""

    def expect(self, group: str, num_tasks: int) -> None:
        """Ignore it."""

    def on_start(self, task_name: str) -> None:
        """Ignore it."""

    def on_progress(self, task_name: str, advance: StageProgress) -> None:
        """Ignore it."""

    def on_finish(
        self, task_name: str, how: How, seconds: float, ref: ArtifactRef, metrics: Mapping[str, Scalar]
    ) -> None:
        """Ignore it."""

    def on_fail(self, task_name: str, message: str) -> None:
        """Ignore it."""

    def note(self, text: str) -> None:
        """Ignore it."""


def group_of(task_name: str) -> str:
    """Return the group that a task is shown under: `encode[code/3]` → `encode[*]`, `ingest` → `ingest`."""
    shard = _SHARD.fullmatch(task_name)
    return f"{shard['step']}[*]" if shard else task_name


class _Notes(logging.Handler):
    """Passes what our packages log as a warning on to a reporter."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self.reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one message on."""
        self.reporter.note(record.getMessage())


@contextmanager
def noting_warnings(reporter: Reporter) -> Iterator[None]:
    """Have warnings of `tasks` and `tokenizer` (a kernel that compiles, a damaged artifact) become notes."""
    notes = _Notes(reporter)
    loggers = [logging.getLogger(package) for package in ("tokmill.tasks", "tokmill.tokenizer")]
    for logger in loggers:
        logger.addHandler(notes)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(notes)
