"""The record of a flow run, `<store>/runs/<run id>.json`: its parameters, its artifacts, and how it ended.

Every run has one from its start, whoever executes it, and every attempt of it is kept. What a person says of
a run afterwards is kept beside it (`tasks.store.runs`), since the process of the run may write its
record at the same time.

A remark:

    <store>/annotations/<run id>.<moment>-<random>.json    one remark: a tag, the end of a tag, or a note

A file is created once and never changed, so that any number of people and machines may annotate one run at
the same time, also while it is executed, and the history stays. The tags of a run are those of its record and
of its remarks: of two remarks on one tag, the later one counts.
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
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.leases import Dead, lease_path, read_leases
from tokmill.tasks.store.names import RunId, check_run_id
from tokmill.tasks.store.provenance import Machine, Moment, Provenance, as_text, user_name, utc_now

State: TypeAlias = Literal["running", "completed", "failed", "crashed", "cancelled", "suspended"]
"""Prefect's states: the process of a `crashed` run was ended from outside, a person ended a `cancelled` one,
and a `suspended` one waits to be resumed."""

Url: TypeAlias = Annotated[str, StringConstraints(pattern=r"^https?://[^\s<>\"']+$")]
"""Of a web page; a record from elsewhere may not bring a script in its place."""

_MOST_BYTES = 256 << 20


class StartedBy(BaseModel):
    """Who started an attempt, and how.

    Attributes:
        how: `command` (a command line), `library` (a call from Python), `page` (a person at the Prefect UI),
            `program` (a request to the server), `schedule`, `automation`, `deployment` (the server does not
            tell which of these), `retry` (of an attempt that ended), or `resume` (of one
            that was suspended).
        user: of the machine, or who was signed in at the page; empty if nobody was.
        detail: the command line, or the name of the deployment.
    """

    model_config = ConfigDict(frozen=True)

    how: str = ""
    user: str = ""
    detail: str = ""


class RunInput(BaseModel):
    """What a run began with: the files of a source, or an artifact that the store had.

    Attributes:
        role: `source`, `parallel`, or the role that the artifact has as a stage's input.
        name: of the source, or of the artifact.
        digest: over the files' names and digests; the artifact's content digest.
        kind, fingerprint: of the artifact; None for files.
        num_files, num_bytes: of the files; None where they are not known.
        origin: the folder or URL of the files.
    """

    model_config = ConfigDict(frozen=True)

    role: str
    name: str
    digest: str
    kind: str | None = None
    fingerprint: str | None = None
    num_files: int | None = None
    num_bytes: int | None = None
    origin: str | None = None


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


class Attempt(BaseModel):
    """One execution of a flow run.

    Attributes:
        state: `running` until it is finished; see `settle` for one whose process has died.
        message: why it did not complete; empty otherwise.
        started, ended: UTC, ISO 8601.
        artifacts: in the order of the DAG; of an attempt that did not complete, those that it had by then.
        inputs: what it began with.
        metrics: of its artifacts, as `kind.metric`; shards and cells left out.
        provenance: of the code and the process.
        started_by: who started it, and how.
        machine: that it was executed on.
        packages: name → version, of all that were installed.
    """

    model_config = ConfigDict(frozen=True)

    state: State = "running"
    message: str = ""
    started: Moment
    ended: Moment | None = None
    artifacts: list[RunArtifact] = []
    inputs: list[RunInput] = []
    metrics: Mapping[str, Scalar] = {}
    provenance: Provenance = Provenance()
    started_by: StartedBy = StartedBy()
    machine: Machine = Machine()
    packages: Mapping[str, str] = {}

    def num(self, how: How) -> int:
        """Return how many artifacts it has that were made, cached or waited for."""
        return sum(artifact.how == how for artifact in self.artifacts)

    @property
    def peak_bytes(self) -> int | None:
        """The most memory that a stage took; None if it made nothing, or it is not known."""
        return max((each.peak_bytes for each in self.artifacts if each.peak_bytes is not None), default=None)


class Run(Attempt):
    """One flow run, in its latest attempt.

    Attributes:
        run_id: unique; Prefect's flow run id.
        name: what people call it; Prefect's name of the flow run.
        profile: the profile's name.
        parameters: the resolved profile.
        overrides: what it was given of other values than the profile's own.
        experiment: the experiment that it belongs to; empty for none.
        tags, notes: those of the profile's `[experiment]`; more may be added (`tasks.store.runs`).
        url: of its page at the Prefect server; None without one.
        earlier: its earlier attempts; a run that is retried or resumed keeps its id.
    """

    run_id: RunId
    name: str = ""
    profile: str = ""
    parameters: Mapping[str, Any] = {}
    overrides: list[Override] = []
    experiment: str = ""
    tags: list[str] = []
    notes: str = ""
    url: Url | None = None
    earlier: list[Attempt] = []

    def as_earlier(self) -> list[Attempt]:
        """Return all its attempts, to be the `earlier` of the next one."""
        return [*self.earlier, Attempt.model_validate(self.model_dump(include=set(Attempt.model_fields)))]


class Begun(BaseModel):
    """What is known of a run when an attempt of it begins; the fields are those of `Run` and `Attempt`."""

    model_config = ConfigDict(frozen=True)

    name: str = ""
    profile: str = ""
    parameters: Mapping[str, Any] = {}
    overrides: list[Override] = []
    experiment: str = ""
    tags: list[str] = []
    notes: str = ""
    url: str | None = None
    provenance: Provenance = Provenance()
    started_by: StartedBy = StartedBy()
    machine: Machine = Machine()
    packages: Mapping[str, str] = {}


class Found(NamedTuple):
    """What an attempt has by the time that it ends."""

    artifacts: Sequence[RunArtifact] = ()
    inputs: Sequence[RunInput] = ()
    metrics: Mapping[str, Scalar] = {}


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
    except OSError as error:
        raise StoreError(f"{path} cannot be read as a run: {error.strerror}") from error
    except ValidationError as error:
        raise StoreError(f"{path} cannot be read as a run: {error.errors()[0]['msg']}") from error


def write_run(layout: Layout, run: Run) -> Path:
    """Write a run's file, and return it."""
    path = run_path(layout.runs, run.run_id)
    with reported_as(f"run {run.run_id} cannot be recorded"):
        shared.replace(path, run.model_dump_json(indent=1).encode("utf-8") + b"\n")
    return path


def settle(layout: Layout) -> list[Run]:
    """Mark the runs whose process has died as crashed; return those that had no end yet.

    A process that is killed, or whose machine goes down, cannot record the end of its run. The next process
    that reads the runs does it instead. The lease of the run (`tasks.store.leases`) shows that the process
    has died, and when it was last alive.
    """
    dead = [needs for needs in read_leases(layout).values() if isinstance(needs, Dead)]
    return [run for lease in dead if (run := _settled(layout, lease)) is not None]


def _settled(layout: Layout, lease: Dead) -> Run | None:
    run = _crashed(layout, lease)
    if run is not None:
        write_run(layout, run)
    with reported_as(f"run {lease.key} cannot be recorded"):
        shared.remove(lease_path(layout, lease.key))
    return run


def _crashed(layout: Layout, lease: Dead) -> Run | None:
    """Return the run with its end; None if it has one already, or if there is no such run."""
    try:
        run = read_run(run_path(layout.runs, lease.key))
    except StoreError:  # it was never written, or is reported when its rows are read
        return None
    if run.state != "running":
        return None
    process_gone = f"process {lease.pid} on {lease.host} is gone"
    message = f"{process_gone}: it was killed, or its machine went down"
    ended = as_text(datetime.fromtimestamp(lease.heard_ns / 1e9, UTC))
    return run.model_copy(update={"state": "crashed", "message": message, "ended": max(ended, run.started)})


Action: TypeAlias = Literal["tag", "untag", "note"]

TAG_PATTERN: Final = r"[A-Za-z0-9][A-Za-z0-9_.:+-]{0,99}"
_TAG = re.compile(TAG_PATTERN)
_MOST_CHARS: Final = 10_000
_MOST_REMARK_BYTES: Final = 1 << 20


class Remark(BaseModel):
    """One remark on a run.

    Attributes:
        run_id: the run.
        action: to tag it, to take a tag away, or to note something.
        text: the tag, or the note.
        moment: when.
        user: who.
    """

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
    except OSError as error:
        raise StoreError(f"{path} cannot be read as a remark on a run: {error.strerror}") from error
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise StoreError(f"{path} cannot be read as a remark on a run: {reason}") from error
    if remark.run_id != path.name.partition(".")[0]:
        raise StoreError(f"{path} is a remark on run {remark.run_id}, which does not belong there")
    return remark


def remark_paths(layout: Layout) -> Sequence[Path]:
    """Return the files of all remarks, in order of run and time."""
    names = (entry.name for entry in disk.entries(layout.annotations))
    return [layout.annotations / name for name in sorted(names) if is_remark(name)]


def is_remark(name: str) -> bool:
    """Whether a file among the annotations can be a remark; others are work in progress."""
    return name.endswith(".json") and not name.startswith(".") and name.isascii()
