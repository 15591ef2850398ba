"""The record of a run in the store's catalog, from its start to its end, however it ends.

Other systems follow it where its profile asks for it (`[openlineage]`, `[mlflow]`).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby

from tokmill.flows.errors import ProfileError
from tokmill.flows.process import is_a_command
from tokmill.flows.profile import Profile
from tokmill.flows.profile.model import NOT_RECORDED
from tokmill.flows.results import RunResult, RunRow
from tokmill.flows.run.dag import Step, references
from tokmill.flows.run.events import Event, RunState
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.sources import Sources
from tokmill.flows.run.target import name_of
from tokmill.flows.tracking.attempt import Asked, Attempt, End, Follower
from tokmill.tasks.core.errors import MachineError, StoreError
from tokmill.tasks.core.stage import ArtifactRef, External, Request, Scalar
from tokmill.tasks.store import Provenance, Store, digest_bytes
from tokmill.tasks.store.provenance import Machine as Here
from tokmill.tasks.store.provenance import installed_packages
from tokmill.tasks.store.record import input_entries
from tokmill.tasks.store.runs import Begun, Found, Override, RunArtifact, RunInput, StartedBy, State

_SHARD = "_shard"


def started_here() -> StartedBy:
    """Return who starts runs in this process: a person at a command line, or a program."""
    provenance = Provenance.collect()
    how = "command" if is_a_command() else "library"
    return StartedBy(how=how, user=provenance.user, detail=provenance.command)


def begun(
    profile: Profile,
    machine: Machine,
    provenance: Provenance,
    *,
    name: str | None = None,
    started_by: StartedBy | None = None,
    url: str | None = None,
) -> Begun:
    """Return what is recorded of a run at its start."""
    return Begun(
        name=name or name_of(profile),
        profile=profile.name,
        parameters=profile.for_record(),
        overrides=[
            Override(field=change.field, before=change.before, after=change.after)
            for change in profile.changed
            if change.path[0] not in NOT_RECORDED
        ],
        experiment=profile.experiment.name or "",
        tags=profile.experiment.tags,
        notes=profile.experiment.notes,
        url=url,
        provenance=provenance,
        started_by=started_by or started_here(),
        machine=Here.here(machine.executors, machine.workers),
        packages=installed_packages(),
    )


def found_in(state: RunState) -> Found:
    """Return what a run has by now, for its record."""
    rows = state.rows
    made = {row.ref.fingerprint for row in rows}
    used = [given for given in _used(state.steps) if given.fingerprint not in made]
    inputs = [*_files(state.sources), *used]
    return Found([_artifact(row) for row in rows], inputs, _metrics(rows, state.refs))


def _metrics(rows: Sequence[RunRow], refs: Mapping[str, ArtifactRef]) -> dict[str, Scalar]:
    """Return `kind.metric` → value, of the artifacts that are the only ones of their kind."""
    number = Counter(row.ref.kind for row in rows)
    alone = {row.ref.kind: row.ref for row in rows if number[row.ref.kind] == 1}
    of_ref = {row.ref: row.metrics for row in rows}
    named = {kind: ref for kind, ref in (alone | dict(refs)).items() if not kind.endswith(_SHARD)}
    return {
        f"{kind}.{name}": value for kind, ref in named.items() for name, value in of_ref.get(ref, {}).items()
    }


@contextmanager
def recorded(
    store: Store, run_id: str, begun: Begun, state: RunState, note: Callable[[BaseException], None]
) -> Iterator[Callable[[RunResult], None]]:
    """Record the start and the end of the run that is executed in this block."""

    def completed(result: RunResult) -> None:
        state.refs = result.refs
        store.catalog.finish_run(run_id, state="completed", found=found_in(state))

    with store.catalog.alive(run_id, begun.profile):
        try:
            store.catalog.add_run(run_id, begun=begun)
            yield completed
        except BaseException as error:
            note(error)
            raise


def note_end(
    store: Store, run_id: str, state: RunState, error: BaseException, stopped: State, message: str = ""
) -> None:
    """Record why a run ended: an `Exception` is a failure, any other error has `stopped` it."""
    message = message or str(error) or type(error).__name__
    if isinstance(error, Exception):
        store.catalog.finish_run(run_id, state="failed", message=message, found=found_in(state))
    else:
        store.catalog.note_end(run_id, state=stopped, message=message, found=found_in(state))


@contextmanager
def note_refusals(error: BaseException) -> Iterator[None]:
    """Add to a run's own error that its end cannot be recorded (a full disk, a remote without an answer)."""
    try:
        yield
    except (StoreError, MachineError) as unwritten:
        error.add_note(str(unwritten))


def _artifact(row: RunRow) -> RunArtifact:
    seconds = None if row.how == "cached" else round(row.seconds, 3)
    peak_bytes = row.peak_bytes if row.how == "made" else None
    return RunArtifact(task=row.task, ref=row.ref, how=row.how, seconds=seconds, peak_bytes=peak_bytes)


def _used(steps: Sequence[Step]) -> list[RunInput]:
    """Return the artifacts that the steps take, each once, in its first role, and without shards."""
    used: dict[ArtifactRef, str] = {}
    for step in steps:
        for role, given in step.inputs.items():
            for one in given if isinstance(given, Sequence) else [given]:
                if isinstance(one, ArtifactRef) and not one.kind.endswith(_SHARD):
                    used.setdefault(one, role)
    return [
        RunInput(
            role=role, name=ref.name, digest=ref.content_digest, kind=ref.kind, fingerprint=ref.fingerprint
        )
        for ref, role in used.items()
    ]


def _files(sources: Sources | None) -> Iterator[RunInput]:
    """Yield one input per source, and one per parallel text."""
    if sources is None:
        return
    for name, files in groupby(sources.files, key=lambda file: str(file.value["source"])):
        yield _source(name, list(files), sources.roots.get(name))
    for text in sources.parallel:
        language, origin = str(text.value["language"]), str(text.value["path"])
        yield RunInput(role="parallel", name=language, digest=text.digest, num_files=1, origin=origin)
    for role, given in (("tokenizer", sources.tokenizer), ("compare_with", sources.compare_with)):
        if isinstance(given, External):
            yield RunInput(role=role, name=role, digest=given.digest, origin=str(given.value))


def _source(name: str, files: Sequence[External], root: str | None) -> RunInput:
    listed = "\n".join(f"{file.digest} {file.value['name']}" for file in files)
    return RunInput(
        role="source",
        name=name,
        digest=digest_bytes(listed.encode("utf-8", "surrogateescape")),
        num_files=len(files),
        num_bytes=sum(int(file.value["size"]) for file in files),
        origin=root,
    )


def told(follower: Follower, event: Event, state: RunState) -> None:
    """Tell a follower of an event."""
    if event.step is not None and event.request is not None:
        follower.asked(_asked(event.step, event.request))
    elif event.what == "started":
        follower.started(event.task)
    elif event.row is not None:
        follower.finished(event.row)
    elif event.what == "failed":
        follower.failed(event.task, event.text)


def _asked(step: Step, request: Request) -> Asked:
    lists = [ref for ref in references(step) if ref in step.after] if _has_parts(step) else []
    stage, params = step.stage, step.params.model_dump(mode="json", exclude_none=True)
    return Asked(step.title, stage.task, stage.kind, step.name, params, input_entries(request.inputs), lists)


def _has_parts(step: Step) -> bool:
    """Whether an input is a part of an artifact that lists it, and none itself."""
    return any(isinstance(given, External) for given in step.inputs.values())


@contextmanager
def followed(
    profile: Profile, attempt: Attempt, state: RunState, warn: Callable[[str], None]
) -> Iterator[None]:
    """Have those follow the run of this block whom its profile names."""
    followers = list(_followers(profile, attempt, warn))
    for follower in followers:
        state.listeners.append(partial(told, follower))
        follower.begin()
    try:
        yield
    except BaseException as error:
        end: End = "failed" if isinstance(error, Exception) else "stopped"
        for follower in followers:
            follower.end(end, str(error) or type(error).__name__)
        raise
    for follower in followers:
        follower.end("completed")


def _followers(profile: Profile, attempt: Attempt, warn: Callable[[str], None]) -> Iterator[Follower]:
    if profile.openlineage.to is not None:
        with _installed("openlineage"):
            from tokmill.flows.tracking.lineage_events import LineageEvents  # noqa: PLC0415 - an extra
        yield LineageEvents(profile.openlineage, attempt, warn)
    if profile.mlflow.tracking_uri is not None:
        with _installed("mlflow"):
            from tokmill.flows.tracking.mlflow_runs import MLflowRun  # noqa: PLC0415 - an extra
        yield MLflowRun(profile.mlflow, attempt, warn)


@contextmanager
def _installed(extra: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != extra:
            raise
        raise ProfileError(
            f"[{extra}]: {error.name} is not installed; pip install 'tokmill[{extra}]', or leave the "
            "section out"
        ) from error
