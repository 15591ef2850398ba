"""Makes artifacts from their records: each record becomes a job, whose inputs are the jobs of its inputs.

A record says the stage, the parameters, and which inputs had which role. What it does not hold comes from
what is made first: the text of a shard, from the corpus that lists it. Nothing is taken from the store of the
originals, so that the new artifacts are made of nothing but records and the inputs from outside.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from tokmill.flows.reproduce.inputs import Wanted, value_of
from tokmill.flows.reproduce.subject import CORPUS, inputs_of, is_text
from tokmill.flows.run.composer import shards_of, text_of
from tokmill.flows.run.dag import Done, Job, Node, Step
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef, External, Stage
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.text.shards import Shard
from tokmill.tasks.remote.location import Location
from tokmill.tasks.store import Store
from tokmill.tasks.store.record import InputEntry, Record, contradictions

INGEST = "ingest"
Placed: TypeAlias = Mapping[tuple[str, str, int | None], tuple[Wanted, Location]]
"""Where files from outside are, by the record that lists one, its role and position there."""
_Listed: TypeAlias = dict[Any, tuple[Shard, Mapping[tuple[str, str], str] | None]]
_STAGES = (
    *("audit.stage", "audit.text", "balance.stage", "card.stage", "count.stage", "encode.stage"),
    *("holdout.stage", "ingest.stage", "mixing.consume", "mixing.stage", "packing.export", "packing.stage"),
    *("score.stage", "sweep.cell", "sweep.stage", "takedown.stage", "train.adopt"),
    *("train.stage", "usage.stage", "vocabulary.stage"),
)
"""The modules of `tasks` that have stages."""


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordedJob(Job):
    """A job that makes the artifact of a record."""

    record: Record
    remaking: "Remaking"

    def steps(self, done: Done) -> list[Step]:
        """Return the one step; an empty list of inputs has a role in the payload alone."""
        inputs = {}
        for role, several in self.record.payload["inputs"].items():
            its = [entry for entry in self.record.inputs if entry.role == role]
            found = [self.remaking.given(self.record, entry, done) for entry in its]
            inputs[role] = found if isinstance(several, list) else found[0]
        return [Step(self.stage, self.title, self.name, self.params, inputs)]

    def accept(self, nodes: Sequence[Node]) -> None:
        """Note the artifact."""
        made = self.remaking.made
        made.update((self.record.fingerprint, node) for node in nodes if isinstance(node, ArtifactRef))


@dataclass
class Remaking:
    """Makes the jobs of records, and knows what they give."""

    store: Store  # the new store
    records: Sequence[Record]  # what is to be made, inputs first
    found: Placed  # where the files from outside are
    roots: Mapping[str, Mapping[str, str]]
    """Each source's root, by the fingerprint of the corpus that was made of it."""
    made: dict[str, ArtifactRef] = field(default_factory=dict)
    """What has been made, by the fingerprints in the records."""
    _jobs: dict[str, Job] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._listed = lru_cache(maxsize=None)(_listed)

    def jobs(self) -> list[Job]:
        """Return one job per record; inputs come first."""
        titles: set[str] = set()
        kinds = Counter(record.kind for record in self.records)
        for record in self.records:
            if problem := next(contradictions(record), None):
                raise StoreError(f"{record.reference}: {problem}; the record is damaged")
            title = record.kind if kinds[record.kind] == 1 else f"{record.kind}[{record.name}]"
            title = f"{record.kind} {record.label}[{record.name}]" if title in titles else title
            titles.add(title)
            needs = [self._jobs[each] for each in dict.fromkeys(inputs_of(record))]
            if any(map(is_text, record.inputs)):
                needs += [job for job in self._jobs.values() if job.stage.kind == CORPUS]
            self._jobs[record.fingerprint] = RecordedJob(
                *(stage_of(record.payload["stage"]), title, record.name, _params(record), {}, needs),
                record=record,
                remaking=self,
            )
        return list(self._jobs.values())

    def given(self, record: Record, entry: InputEntry, done: Done) -> Node | External:
        """Return an input of an artifact: what was made of its record, a file that was found, or a text."""
        if entry.fingerprint is not None:
            return done[self._jobs[entry.fingerprint]][0]
        placed = self.found.get((record.fingerprint, entry.role, entry.position))
        if placed is None:
            return self._text(entry) if is_text(entry) else _external(entry, entry.about)
        one, place = placed
        if one.source:
            return _external(entry, value_of(one, self.roots[record.fingerprint][one.source]))
        path = str(place.absolute()) if isinstance(place, Path) else str(place)
        if isinstance(entry.about, dict) and "language" in entry.about:
            return _external(entry, {"language": entry.about["language"], "path": str(place)})
        return _external(entry, path)

    def _text(self, entry: InputEntry) -> External:
        """Return the text of a shard: by its content, or else by its place, as it is now."""
        about = entry.about if isinstance(entry.about, dict) else {}
        corpora = [record.fingerprint for record in self.records if record.kind == CORPUS]
        refs = [self.made[fingerprint] for fingerprint in corpora if fingerprint in self.made]
        for key in (entry.digest, (about.get("source"), about.get("index"))):
            for ref in refs:
                if found := self._listed(self.store.path(ref)).get(key):
                    shard, files = found
                    return text_of(ref, shard, self._root(ref, shard), files)
        raise StoreError(f"no corpus that was made lists text of the content {entry.digest[:16]}")

    def _root(self, ref: ArtifactRef, shard: Shard) -> str:
        """The root of a shard's source: of the corpus that was ingested, of which others are parts."""
        record = self.store.record(ref)
        while record.payload["stage"] != INGEST:
            record = self.store.record(record.refs(CORPUS)[0])
        old = next(old for old, new in self.made.items() if new.fingerprint == record.fingerprint)
        return self.roots[old][shard.source]


def _external(entry: InputEntry, value: Any) -> External:
    return External(digest=entry.digest, value=value, about=entry.about)


def _listed(path: Path) -> _Listed:
    """A corpus's shards by what identifies their text, and by their places."""
    corpus, listed = Corpus.open(path), _Listed()
    files = corpus.file_digests()
    for shard in shards_of(corpus):
        listed |= {shard.digest_with(files): (shard, files), shard.digest: (shard, None)}
        listed[shard.source, shard.index] = (shard, None)
    return listed


def _params(record: Record) -> Any:
    """Return a record's parameters as those of the stage that there is now."""
    stage = stage_of(record.payload["stage"])
    try:
        return stage.params.model_validate(record.params)
    except ValueError as error:
        raise StoreError(
            f"{record.reference}: its parameters are no longer those of the stage {stage.verb} ({error}); "
            "use the version that it was made with (`packages` in its record)"
        ) from error


def stages() -> dict[str, Stage[Any]]:
    """Return all stages by verb."""
    modules = (import_module(f"tokmill.tasks.{name}") for name in _STAGES)
    return {
        each.verb: each for module in modules for each in vars(module).values() if isinstance(each, Stage)
    }


def stage_of(verb: str) -> Stage[Any]:
    """Return the stage of a verb."""
    if (stage := stages().get(verb)) is None:
        raise StoreError(
            f"this tokmill has no stage {verb!r}; use the version that the artifact was made with"
        )
    return stage
