"""Progress reports of a run.

Most tasks of a run are shards of a stage: `encode[code/3]` is shard 3 of source `code` in the group
`encode[*]`, and `merge_counts[code/0-31]` is about several shards. The executor calls a `Reporter` when a
task starts and ends. A reporter shows one line per group. The executor announces the number of tasks before
it submits them (`expect`); a group that was not announced has one task.

A `Reporter` itself shows nothing; `flows.cli.progress` has a live display, and plain lines.
Reporters are called from several threads and must never make a run fail.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from tokmill.flows.results import RunRow
from tokmill.flows.run.dag import Step
from tokmill.tasks.core.context import StageProgress


class Reporter:
    """Receives a run's progress; its methods are called from any thread, and do nothing here."""

    def expect(self, group: str, num_tasks: int) -> None:
        """`num_tasks` more tasks of `group` (`encode[*]`) are about to be submitted."""

    def on_submit(self, step: Step) -> None:
        """A task, whose inputs are published, is about to be submitted."""

    def on_start(self, task_name: str) -> None:
        """A task (`encode[code/3]`, `ingest`) starts; not called for a cached task, or in another process."""

    def on_progress(self, task_name: str, progress: StageProgress) -> None:
        """A long task of this process reports how much of its work is done, at any rate it likes."""

    def on_finish(self, row: RunRow) -> None:
        """A task succeeded: how it got its artifact, and in what time."""

    def on_fail(self, task_name: str, message: str) -> None:
        """A task failed; `message` is the text of its error."""

    def on_refuse(self, task_name: str, message: str) -> None:
        """A task's artifact was published, and did not pass its gate, which ends the run."""

    def note(self, text: str) -> None:
        """A message for the user: a kernel is compiled, a damaged artifact was set aside."""


class Both(Reporter):
    """Passes everything on to two reporters."""

    def __init__(self, first: Reporter, second: Reporter) -> None:
        for name in vars(Reporter):
            if not name.startswith("_"):
                setattr(self, name, partial(_tell, getattr(first, name), getattr(second, name)))


def _tell(first: Callable[..., None], second: Callable[..., None], *said: Any) -> None:
    first(*said)
    second(*said)


class _Notes(logging.Handler):
    """Passes warnings of our packages to a reporter."""

    def __init__(self, reporter: Reporter) -> None:
        super().__init__(logging.WARNING)
        self.reporter = reporter

    def emit(self, record: logging.LogRecord) -> None:
        """Pass one message to the reporter."""
        self.reporter.note(record.getMessage())


@contextmanager
def noting_warnings(reporter: Reporter) -> Iterator[None]:
    """Report warnings of `tasks` and `tokenizer` (a kernel is compiled, an artifact is damaged) as notes."""
    notes = _Notes(reporter)
    loggers = [logging.getLogger(package) for package in ("tokmill.tasks", "tokmill.tokenizer")]
    for logger in loggers:
        logger.addHandler(notes)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(notes)
