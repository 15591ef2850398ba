"""What a run has by now, in the form of its record: complete when it has ended, whatever ended it."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from tokmill.flows.run.dag import Step
from tokmill.flows.run.results import RunRow
from tokmill.flows.run.sources import Sources
from tokmill.tasks.core.stage import ArtifactRef, External, Scalar
from tokmill.tasks.store import digest_bytes
from tokmill.tasks.store.runs import Found, RunArtifact, RunInput

_SHARD = "_shard"


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
