"""The record of a run in the store's catalog, from its start to its end, however it ends."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from tokmill.flows.process import is_a_command
from tokmill.flows.profile import Profile
from tokmill.flows.profile.model import NOT_RECORDED
from tokmill.flows.results import RunResult, RunRow
from tokmill.flows.run.dag import Step
from tokmill.flows.run.machine import Machine
from tokmill.flows.run.sources import Sources
from tokmill.flows.run.target import name_of
from tokmill.tasks.core.stage import ArtifactRef, External, Scalar
from tokmill.tasks.store import Provenance, Store, digest_bytes
from tokmill.tasks.store.provenance import Machine as Here
from tokmill.tasks.store.provenance import installed_packages
from tokmill.tasks.store.runs import Begun, Found, Override, RunArtifact, RunInput, StartedBy

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
    """Return what is recorded of a run at its start.

    Args:
        profile: the resolved profile.
        machine: the machine settings.
        provenance: of the code and the process.
        name: what the run is called; by default after its profile and overrides.
        started_by: who started it; by default this process's user.
        url: of its page.
    """
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
        machine=Here.here(machine.runner, machine.workers),
        packages=installed_packages(),
    )


def _nothing() -> Sequence[Any]:
    return ()


@dataclass
class SoFar:
    """What a run has by now.

    Attributes:
        sources: its sources, once they are resolved.
        rows: returns the tasks that have ended.
        steps: returns the steps that were begun.
        refs: kind → the run's artifact of that kind, once it has completed.
    """

    sources: Sources | None = None
    rows: Callable[[], Sequence[RunRow]] = _nothing
    steps: Callable[[], Sequence[Step]] = _nothing
    refs: Mapping[str, ArtifactRef] = field(default_factory=dict)

    def found(self) -> Found:
        """Return it for the run's record."""
        rows = self.rows()
        made = {row.ref.fingerprint for row in rows}
        used = [given for given in _used(self.steps()) if given.fingerprint not in made]
        inputs = [*_files(self.sources), *used]
        return Found([_artifact(row) for row in rows], inputs, self._metrics(rows))

    def _metrics(self, rows: Sequence[RunRow]) -> dict[str, Scalar]:
        """Return `kind.metric` → value, of the artifacts that are the only ones of their kind."""
        number = Counter(row.ref.kind for row in rows)
        alone = {kind: ref for kind, ref in ((row.ref.kind, row.ref) for row in rows) if number[kind] == 1}
        of_ref = {row.ref: row.metrics for row in rows}
        named = {kind: ref for kind, ref in (alone | dict(self.refs)).items() if not kind.endswith(_SHARD)}
        return {
            f"{kind}.{name}": value
            for kind, ref in named.items()
            for name, value in of_ref.get(ref, {}).items()
        }


@contextmanager
def recorded(
    store: Store,
    run_id: str,
    begun: Begun,
    so_far: SoFar,
    note_end: Callable[[BaseException], None],
) -> Iterator[Callable[[RunResult], None]]:
    """Record the start and the end of the run that is executed in this block.

    Yields:
        what is to be called with the result, once there is one.

    Args:
        store: whose catalog has the run.
        run_id: the run's key there.
        begun: what is known of it at its start.
        so_far: what it has at its end.
        note_end: records the end of a run that does not complete.

    Raises:
        BaseException: any that the block raises.
    """

    def completed(result: RunResult) -> None:
        so_far.rows, so_far.refs = lambda: result.rows, result.refs
        store.catalog.finish_run(run_id, state="completed", found=so_far.found())

    with store.catalog.alive(run_id, begun.profile):
        try:
            store.catalog.add_run(run_id, begun=begun)
            yield completed
        except BaseException as error:
            note_end(error)
            raise


def _artifact(row: RunRow) -> RunArtifact:
    worked = row.how != "cached"
    return RunArtifact(
        task=row.task,
        ref=row.ref,
        how=row.how,
        seconds=round(row.seconds, 3) if worked else None,
        peak_bytes=row.peak_bytes if row.how == "made" else None,
    )


def _used(steps: Sequence[Step]) -> Iterator[RunInput]:
    """Yield the artifacts that the steps take, each once, and without shards."""
    seen = set()
    for step in steps:
        for role, given in step.inputs.items():
            for one in given if isinstance(given, Sequence) else [given]:
                if isinstance(one, ArtifactRef) and one not in seen and not one.kind.endswith(_SHARD):
                    seen.add(one)
                    yield RunInput(
                        role=role,
                        name=one.name,
                        digest=one.content_digest,
                        kind=one.kind,
                        fingerprint=one.fingerprint,
                    )


def _files(sources: Sources | None) -> Iterator[RunInput]:
    """Yield one input per source, and one per parallel text."""
    if sources is None:
        return
    for name, files in groupby(sources.files, key=lambda file: str(file.value["source"])):
        yield _source(name, list(files), sources.roots.get(name))
    for text in sources.parallel:
        yield RunInput(
            role="parallel",
            name=str(text.value["language"]),
            digest=text.digest,
            num_files=1,
            origin=str(text.value["path"]),
        )
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
