"""What a run did: one row per task; terminal, pages, record, OpenLineage and MLflow tell of these."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from tokmill.tasks.core.stage import ArtifactRef, How, Scalar

_Row = TypeVar("_Row", bound=Any)
_SHARD = re.compile(r"(?P<step>[^\[]+)\[(.*/)?\d+(-\d+)?\]")


@dataclass(frozen=True)
class RunRow:
    """One task of a run.

    Attributes:
        task: the title that people see, e.g. `encode[english/3]`.
        ref: the artifact.
        how: whether the task made the artifact, found it, or waited for another process to make it.
        seconds: wall time of making or waiting; 0 if it was cached.
        began: start time, in seconds of a clock that is common to all tasks of the run.
        peak_bytes: the most memory that was held while it was made; None if that is not known.
    """

    task: str
    ref: ArtifactRef
    how: How
    seconds: float
    metrics: Mapping[str, Scalar]
    began: float = 0.0
    peak_bytes: int | None = None

    @property
    def name(self) -> str:
        """The artifact's name, e.g. `quickstart.english/3`."""
        return self.ref.name


def wall_seconds(rows: Sequence[RunRow]) -> float:
    """Return the time from the start of the first task to the end of the last."""
    return max(row.began + row.seconds for row in rows) - min(row.began for row in rows)


@dataclass(frozen=True)
class RunResult:
    """The result of a run that succeeded.

    Attributes:
        run_id: the run's key in the catalog; the Prefect flow run's id.
        rows: one per task, in the order of the DAG.
        refs: kind → the run's artifact of that kind (kinds of mapped stages are left out).
    """

    run_id: str
    rows: Sequence[RunRow]
    refs: Mapping[str, ArtifactRef]

    @property
    def num_made(self) -> int:
        """How many tasks made their artifact."""
        return sum(row.how == "made" for row in self.rows)

    @property
    def num_cached(self) -> int:
        """How many tasks found their artifact in the store."""
        return sum(row.how == "cached" for row in self.rows)

    @property
    def num_waited(self) -> int:
        """How many tasks waited until another process had made their artifact."""
        return sum(row.how == "waited" for row in self.rows)


def group_of(task_name: str) -> str:
    """Return the group that a task is shown under: `encode[code/3]` → `encode[*]`, `ingest` → `ingest`."""
    shard = _SHARD.fullmatch(task_name)
    return f"{shard['step']}[*]" if shard else task_name


def by_group(rows: Iterable[_Row]) -> dict[str, list[_Row]]:
    """Return what has a `task` by group, in the order in which the groups first appear."""
    groups: dict[str, list[_Row]] = {}
    for row in rows:
        groups.setdefault(group_of(row.task), []).append(row)
    return groups
