"""The records of flow runs, and what people say of them afterwards: tags, their ends, and notes.

A remark is a file that is created once and never changed, so any number of people and machines may annotate
one run, also while it is executed. Of two remarks on one tag, the later one counts.
"""

import re
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef, How, Scalar
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.disk import reported_as
from tokmill.tasks.store.layout import Layout, printable
from tokmill.tasks.store.names import RunId, check_run_id
from tokmill.tasks.store.provenance import Machine, Moment, Provenance, as_text, user_name, utc_now

State: TypeAlias = Literal["running", "completed", "failed", "crashed", "cancelled", "suspended"]
"""Prefect's states: the process of a `crashed` run was ended from outside, a person ended a `cancelled` one,
and a `suspended` one waits to be resumed."""

Url: TypeAlias = Annotated[str, StringConstraints(pattern=r"^https?://[^\s<>\"']+$")]
"""Of a web page; a record from elsewhere may not bring a script in its place."""

Action: TypeAlias = Literal["tag", "untag", "note"]

TAG_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,99}"
_TAG = re.compile(TAG_PATTERN)
_MOST_CHARS: Final = 10_000
_MOST_REMARK_BYTES: Final = 1 << 20
_MOST_BYTES = 256 << 20


class StartedBy(BaseModel):
    """Who started an attempt, and how.

    Attributes:
        how: `command` (a command line), `library` (a call from Python), `page` (a person at the Prefect UI),
            `program` (a request to the server), `schedule`, `automation`, `deployment` (the server does not
            tell which of these), `retry` (of an attempt that ended), or `resume` (of one that was suspended).
    """

    model_config = ConfigDict(frozen=True)

    how: str = ""
    user: str = ""  # of the machine, or who was signed in at the page; empty if nobody was
    detail: str = ""  # the command line, or the name of the deployment


class RunInput(BaseModel):
    """What a run began with: the files of a source, or an artifact that the store had.

    Attributes:
        kind, fingerprint: of the artifact; None for files.
        num_files, num_bytes: of the files; None where they are not known.
    """

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
    """An artifact of a run: the task's title, the artifact, and how the task obtained it.

    `seconds` is how long the task made it or waited for it, and `peak_bytes` what memory that took; None if
    it was cached, or is not known.
    """

    model_config = ConfigDict(frozen=True)

    task: str
    ref: ArtifactRef
    how: How
    seconds: float | None = None
    peak_bytes: int | None = None


class _Execution(BaseModel):
    """How an attempt is executed: by which code, by whom, where, and with which packages (name → version)."""

    model_config = ConfigDict(frozen=True)

    provenance: Provenance = Provenance()
    started_by: StartedBy = StartedBy()
    machine: Machine = Machine()
    packages: Mapping[str, str] = {}


class _Description(BaseModel):
    """What a run is.

    Attributes:
        tags, notes: those of the profile's `[experiment]`; more may be added by remarks.
    """

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
    """One execution of a flow run.

    Attributes:
        state: `running` until it is finished; see `Catalog.settle` for one whose process has died.
        started, ended: UTC, ISO 8601.
        artifacts: in the order of the DAG; of an attempt that did not complete, those that it had by then.
    """

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
        return Run.model_validate_json(disk.read(path, _MOST_BYTES))
    except FileNotFoundError as error:
        raise StoreError(f"there is no run {path.stem}: {path} does not exist") from error
    except (OSError, ValidationError) as error:
        raise StoreError(f"{path} cannot be read as a run: {_reason(error)}") from error


def _reason(error: OSError | ValidationError) -> str | None:
    return error.strerror if isinstance(error, OSError) else error.errors()[0]["msg"]


def write_run(layout: Layout, run: Run) -> Path:
    """Write a run's file, and return it."""
    path = run_path(layout.runs, run.run_id)
    with reported_as(f"run {run.run_id} cannot be recorded"):
        shared.replace(path, run.model_dump_json(indent=1).encode("utf-8") + b"\n")
    return path


def begin_run(layout: Layout, run_id: str, begun: Begun) -> Run:
    """Write the record of a run that begins; an earlier attempt of the same run is kept with it."""
    path = run_path(layout.runs, run_id)
    known = {name: getattr(begun, name) for name in Begun.model_fields}
    earlier = []
    if shared.bring(path, sure=True):
        before = read_run(path)
        if before.state == "running":
            ended = {"state": "crashed", "message": "it was begun again before it had ended"}
            before = before.model_copy(update=ended)
        earlier = before.as_earlier()
        again = "resume" if before.state == "suspended" else "retry"
        known["started_by"] = begun.started_by.model_copy(update={"how": again})
    run = Run(run_id=run_id, started=utc_now(), earlier=earlier, **known)
    write_run(layout, run)
    return run


def end_run(layout: Layout, run_id: str, state: State, message: str, found: Found) -> Run:
    """Write how a run ended, and what it has."""
    run = read_run(run_path(layout.runs, run_id))
    end = {"state": state, "message": printable(message), "ended": utc_now(), "metrics": dict(found.metrics)}
    had = {"artifacts": list(found.artifacts), "inputs": list(found.inputs)}
    run = run.model_copy(update=end | had)
    write_run(layout, run)
    return run


def crash_run(layout: Layout, run_id: str, message: str, heard_ns: int) -> Run | None:
    """Write the end of a run whose process has died; None if it has one already, or does not exist."""
    try:
        run = read_run(run_path(layout.runs, run_id))
    except StoreError:  # it was never written, or is reported when its rows are read
        return None
    if run.state != "running":
        return None
    ended = max(as_text(datetime.fromtimestamp(heard_ns / 1e9, UTC)), run.started)
    run = run.model_copy(update={"state": "crashed", "message": message, "ended": ended})
    write_run(layout, run)
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
        shared.create(path, remark.model_dump_json(indent=1).encode("utf-8") + b"\n")
    return path


def check_remark(action: Action, text: str) -> None:
    """Raise StoreError unless the text can be a tag, or a note."""
    if action != "note":
        if not _TAG.fullmatch(text):
            raise StoreError(f"tag {text!r} cannot be used: it must match {_TAG.pattern}, e.g. 'baseline'")
    elif not text.strip() or len(text) > _MOST_CHARS:
        raise StoreError(f"a note has from 1 to {_MOST_CHARS:,} characters, and this one has {len(text):,}")


def read_remark(path: Path) -> Remark:
    """Read a remark's file."""
    try:
        remark = Remark.model_validate_json(disk.read(path, _MOST_REMARK_BYTES))
    except (OSError, ValidationError) as error:
        raise StoreError(f"{path} cannot be read as a remark on a run: {_reason(error)}") from error
    if remark.run_id != path.name.partition(".")[0]:
        raise StoreError(f"{path} is a remark on run {remark.run_id}, which does not belong there")
    return remark


def remark_paths(layout: Layout, run_id: str = "") -> list[Path]:
    """Return the files of all remarks, or of those on one run, in order of run and time."""
    start = f"{run_id}." if run_id else ""
    names = sorted(entry.name for entry in disk.entries(layout.annotations))
    remarks = (name for name in names if name.endswith(".json") and name[0] != "." and name.isascii())
    return [layout.annotations / name for name in remarks if name.startswith(start)]
