"""The record of a flow run, `<store>/runs/<run id>.json`: its parameters, its artifacts, and how it ended."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef, How
from tokmill.tasks.store.moments import Moment
from tokmill.tasks.store.provenance import Provenance
from tokmill.tasks.store.storage import STORAGE

State: TypeAlias = Literal["running", "completed", "failed", "crashed", "cancelled", "suspended"]
"""Prefect's states: the process of a `crashed` run was ended from outside, a person ended a `cancelled` one,
and a `suspended` one waits to be resumed."""

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_MOST_BYTES = 256 << 20


class RunArtifact(BaseModel):
    """An artifact of a run: the task's title, the artifact, and how the task obtained it."""

    model_config = ConfigDict(frozen=True)

    task: str
    ref: ArtifactRef
    how: How

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_versions(cls, data: Any) -> Any:
        """Read the earlier form, `cached: true` or `false`, which did not distinguish waiting from making."""
        if isinstance(data, dict) and isinstance(data.get("cached"), bool) and "how" not in data:
            return {**data, "how": "cached" if data["cached"] else "made"}
        return data


class Attempt(BaseModel):
    """One execution of a flow run.

    Attributes:
        state: `running` until it is finished; see `tasks.store.settling` for one whose process has died.
        message: why it did not complete; empty otherwise.
        started, ended: UTC, ISO 8601.
        artifacts: in the order of the DAG.
    """

    model_config = ConfigDict(frozen=True)

    state: State = "running"
    message: str = ""
    started: Moment
    ended: Moment | None = None
    artifacts: list[RunArtifact] = []
    provenance: Provenance = Provenance()


class Run(Attempt):
    """One flow run, in its latest attempt.

    Attributes:
        run_id: unique; Prefect's flow run id.
        profile: the profile's name.
        parameters: the resolved profile.
        earlier: its earlier attempts; a run that is retried or resumed keeps its id.
    """

    run_id: str
    profile: str = ""
    parameters: Mapping[str, Any] = {}
    earlier: list[Attempt] = []

    def as_earlier(self) -> list[Attempt]:
        """Return all its attempts, to be the `earlier` of the next one."""
        return [*self.earlier, Attempt.model_validate(self.model_dump(include=set(Attempt.model_fields)))]


def run_path(folder: Path, run_id: str) -> Path:
    """Return the file of a run; raises StoreError for an id that cannot be a file's name."""
    if not _RUN_ID.fullmatch(run_id):
        raise StoreError(f"run id {run_id!r} cannot be used: it must match {_RUN_ID.pattern}, e.g. a UUID")
    return folder / f"{run_id}.json"


def read_run(path: Path) -> Run:
    """Read a run's file.

    Raises:
        StoreError: there is none, or it cannot be read.
    """
    try:
        return Run.model_validate_json(STORAGE.read(path, _MOST_BYTES))
    except FileNotFoundError as error:
        raise StoreError(f"there is no run {path.stem}: {path} does not exist") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read as a run: {error.strerror}") from error
    except ValidationError as error:
        raise StoreError(f"{path} cannot be read as a run: {error.errors()[0]['msg']}") from error
