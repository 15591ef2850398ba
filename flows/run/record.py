"""The record of a run in the store's catalog, from its start to its end, however it ends."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby

from tokmill.flows.process import is_a_command
from tokmill.flows.profile import Profile
from tokmill.flows.profile.model import NOT_RECORDED
from tokmill.flows.results import RunResult, RunRow
from tokmill.flows.run.dag import Step
from tokmill.flows.run.events import RunState
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.sources import Sources
from tokmill.flows.run.target import name_of
from tokmill.tasks.core.errors import MachineError, StoreError
from tokmill.tasks.core.stage import ArtifactRef, External, Scalar
from tokmill.tasks.store import Provenance, Store, digest_bytes
from tokmill.tasks.store.provenance import Machine as Here
from tokmill.tasks.store.provenance import installed_packages
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
        machine=Here.here(machine.runner or "threads", machine.workers),
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
