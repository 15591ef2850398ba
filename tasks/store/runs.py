"""Runs: what a flow run asked for and got, and how it ended; `<store>/runs/<run id>.json` is the truth."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from tasks.errors import StoreError
from tasks.stage import ArtifactRef, How
from tasks.store.moments import Moment
from tasks.store.provenance import Provenance
from tasks.store.regular import read_regular

State: TypeAlias = Literal["running", "completed", "failed", "cancelled"]

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_MOST_BYTES = 256 << 20


class RunArtifact(BaseModel):
    """An artifact that a run asked for: the task's title, the artifact, and how the task came by it."""

    model_config = ConfigDict(frozen=True)

    task: str
    ref: ArtifactRef
    how: How

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_versions(cls, data: Any) -> Any:
        """Read what was noted before waiting was told apart from making: `cached`, true or false."""
        if isinstance(data, dict) and isinstance(data.get("cached"), bool) and "how" not in data:
            return {**data, "how": "cached" if data["cached"] else "made"}
        return data


class Run(BaseModel):
    """One flow run.

    Attributes:
        run_id: unique; Prefect's flow run id.
        profile: the profile's name.
        parameters: the resolved profile.
        state: `running` until it is finished; a run that was killed stays so.
        message: why it failed; empty otherwise.
        started, ended: UTC, ISO 8601.
    """

    model_config = ConfigDict(frozen=True)

    run_id: str
    profile: str = ""
    parameters: Mapping[str, Any] = {}
    state: State = "running"
    message: str = ""
    started: Moment
    ended: Moment | None = None
    artifacts: list[RunArtifact] = []
    provenance: Provenance = Provenance()


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
        return Run.model_validate_json(read_regular(path, _MOST_BYTES))
    except FileNotFoundError as error:
        raise StoreError(f"there is no run {path.stem}: {path} does not exist") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read as a run: {error.strerror}") from error
    except ValidationError as error:
        raise StoreError(f"{path} cannot be read as a run: {error.errors()[0]['msg']}") from error
