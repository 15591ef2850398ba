"""The records of flow runs, and what people say of them afterwards: tags, their ends, and notes.

A remark is a file that never changes, so any number of machines may annotate a run; of two on one tag, the
later one counts.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef, How, Scalar
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.disk import reported_as
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.names import RunId, check_run_id
from tokmill.tasks.store.provenance import Machine, Moment, Provenance, user_name, utc_now

State: TypeAlias = Literal["running", "completed", "failed", "crashed", "cancelled", "suspended"]
"""Prefect's states: the process of a `crashed` run was ended from outside, a person ended a `cancelled` one,
and a `suspended` one waits to be resumed."""

Url: TypeAlias = Annotated[str, StringConstraints(pattern=r"^https?://[^\s<>\"']+$")]
"""Of a web page; a record from elsewhere may not bring a script in its place."""

Action: TypeAlias = Literal["tag", "untag", "note"]

TAG_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,99}"
_TAG = re.compile(TAG_PATTERN)
_MOST_CHARS: Final = 10_000


class StartedBy(BaseModel):
    """Who started an attempt, and how."""

    model_config = ConfigDict(frozen=True)

    # `command` (a command line), `library` (a call from Python), `page` (a person at the Prefect UI),
    # `program` (a request to the server), `schedule`, `automation`, `deployment` (the server does not tell
    # which of these), `retry` (of an attempt that ended), or `resume` (of one that was suspended)
    how: str = ""
    user: str = ""  # of the machine, or who was signed in at the page; empty if nobody was
    detail: str = ""  # the command line, or the name of the deployment


class RunInput(BaseModel):
    """What a run began with: the files of a source, or an artifact (kind, fingerprint) that the store had."""

    model_config = ConfigDict(frozen=True)

    role: str  # `source`, `parallel`, or the role that the artifact has as a stage's input
    name: str  # of the source, or of the artifact
    digest: str  # over the files' names and digests; the artifact's content digest
    kind: str | None = None
    fingerprint: str | None = None
    num_files: int | None = None
    num_bytes: int | None = None
    origin: str | None = None  # the folder or URL of the files


class Override(BaseModel):
    """A field of the profile that this run was given another value for: its own value, and the run's."""

    model_config = ConfigDict(frozen=True)

    field: str
    before: Any = None
    after: Any = None


class RunArtifact(BaseModel):
    """An artifact of a run: the task's title, the artifact, and how, in what time and memory it was made."""

    model_config = ConfigDict(frozen=True)

    task: str
    ref: ArtifactRef
    how: How
    seconds: float | None = None
    peak_bytes: int | None = None


class _Execution(BaseModel):
    model_config = ConfigDict(frozen=True)

    provenance: Provenance = Provenance()
    started_by: StartedBy = StartedBy()
    machine: Machine = Machine()
    packages: Mapping[str, str] = {}


class _Description(BaseModel):
    """What a run is; its tags and notes are the profile's own, beside those of remarks."""

    model_config = ConfigDict(frozen=True)

    name: str = ""  # what people call it; Prefect's name of the flow run
    profile: str = ""  # the profile's name
    parameters: Mapping[str, Any] = {}  # the resolved profile
    overrides: list[Override] = []  # what it was given of other values than the profile's own
    experiment: str = ""  # the experiment that it belongs to; empty for none
    tags: list[str] = []
    notes: str = ""
    url: Url | None = None  # of its page at the Prefect server; None without one


class Begun(_Execution, _Description):
    """What is known of a run when an attempt of it begins."""


class Attempt(_Execution):
    """One execution of a flow run: its artifacts in the order of the DAG, as far as it came."""

    state: State = "running"
    message: str = ""  # why it did not complete; empty otherwise
    started: Moment
    ended: Moment | None = None
    artifacts: list[RunArtifact] = []
    inputs: list[RunInput] = []  # what it began with
    metrics: Mapping[str, Scalar] = {}  # of its artifacts, as `kind.metric`; shards and cells left out

    def num(self, how: How) -> int:
        """Return how many artifacts it has that were made, cached or waited for."""
        return sum(artifact.how == how for artifact in self.artifacts)

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that a stage took; None if it made nothing, or it is not known."""
        return max((each.peak_bytes for each in self.artifacts if each.peak_bytes is not None), default=None)


class Run(Attempt, _Description):
    """One flow run, in its latest attempt; `run_id` is Prefect's flow run id.

    A run that is retried or resumed keeps its id, and has its earlier attempts in `earlier`.
    """

    run_id: RunId
    earlier: list[Attempt] = []

    def as_earlier(self) -> list[Attempt]:
        """Return all its attempts, to be the `earlier` of the next one."""
        return [*self.earlier, Attempt.model_validate(self.model_dump(include=set(Attempt.model_fields)))]


class Found(NamedTuple):
    """What an attempt has by the time that it ends."""

    artifacts: Sequence[RunArtifact] = ()
    inputs: Sequence[RunInput] = ()
    metrics: Mapping[str, Scalar] = {}


NOTHING: Final = Found()


def run_path(folder: Path, run_id: str) -> Path:
    """Return the file of a run; raises StoreError for an id that cannot be a file's name."""
    check_run_id(run_id)
    return folder / f"{run_id}.json"


def read_run(path: Path) -> Run:
    """Read a run's file."""
    shared.bring(path, sure=True)
    try:
        return shared.read_model(path, Run, "a run")
    except FileNotFoundError as error:
        raise StoreError(f"there is no run {path.stem}: {path} does not exist") from error


def write_run(layout: Layout, run: Run) -> Run:
    """Write a run's file, and return the run."""
    with reported_as(f"run {run.run_id} cannot be recorded"):
        shared.replace(run_path(layout.runs, run.run_id), run.model_dump_json(indent=1).encode() + b"\n")
    return run


class Remark(BaseModel):
    """One remark on a run: by whom, when, and the text of a tag or a note."""

    model_config = ConfigDict(frozen=True)

    run_id: RunId
    action: Action
    text: Annotated[str, Field(min_length=1, max_length=_MOST_CHARS)]
    moment: Moment
    user: str = ""


def annotate(layout: Layout, run_id: str, action: Action, text: str) -> Path:
    """Add a remark to a run, and return its file."""
    check_remark(action, text)
    moment = utc_now()
    remark = Remark(run_id=run_id, action=action, text=text, moment=moment, user=user_name())
    name = f"{run_id}.{re.sub('[^0-9]', '', moment)}-{uuid.uuid4().hex[:8]}.json"
    path = layout.annotations / name
    with reported_as(f"run {run_id} cannot be annotated"):
        shared.create(path, remark.model_dump_json(indent=1).encode() + b"\n")
    return path


def check_remark(action: Action, text: str) -> None:
    """Raise StoreError unless the text can be a tag, or a note."""
    if action != "note" and not _TAG.fullmatch(text):
        raise StoreError(f"tag {text!r} cannot be used: it must match {_TAG.pattern}, e.g. 'baseline'")
    if action == "note" and not (text.strip() and len(text) <= _MOST_CHARS):
        raise StoreError(f"a note has from 1 to {_MOST_CHARS:,} characters, and this one has {len(text):,}")


def read_remark(path: Path) -> Remark:
    """Read a remark's file."""
    remark = shared.read_model(path, Remark, "a remark on a run")
    if remark.run_id != path.name.partition(".")[0]:
        raise StoreError(f"{path} is a remark on run {remark.run_id}, which does not belong there")
    return remark


def remark_paths(layout: Layout, run_id: str) -> list[Path]:
    """Return the files of the remarks on a run, in order of time."""
    names = sorted(entry.name for entry in disk.entries(layout.annotations))
    ours = (name for name in names if name.startswith(f"{run_id}.") and name.endswith(".json"))
    return [layout.annotations / name for name in ours if name.isascii()]
