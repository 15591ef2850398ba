"""Makes artifacts from their records: each record becomes a job, whose inputs are the jobs of its inputs.

A record says the stage, the parameters, and which inputs had which role. What it does not hold
comes from what is made first: the text of a shard, from the corpus that lists it. Nothing is taken from the
store of the originals, so that the new artifacts are made of nothing but records and the inputs from outside.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from tokmill.flows.reproduce.inputs import Wanted, value_of
from tokmill.flows.reproduce.known import CORPUS, inputs_of, is_text
from tokmill.flows.run.composer import text_of
from tokmill.flows.run.dag import Done, Job, Node, Step, StepInput
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef, External, Stage
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.text.shard import Shard
from tokmill.tasks.remote.location import Location
from tokmill.tasks.store import Store
from tokmill.tasks.store.record import InputEntry, Record, contradictions

INGEST = "ingest"
_Files: TypeAlias = Mapping[tuple[str, str], str]
_Listed: TypeAlias = dict[Any, tuple[Shard, _Files | None]]
_MODULES = {
    "adopt": "train.adopt",
    "audit": "audit.stage",
    "audit_shard": "audit.text",
    "balance": "balance.stage",
    "card": "card.stage",
    "consume": "mixing.consume",
    "count": "count.stage",
    "count_shard": "count.stage",
    "encode": "encode.stage",
    "encode_shard": "encode.stage",
    "exclude": "takedown.exclude",
    "export": "export.stage",
    "export_shard": "export.stage",
    "extend": "vocabulary.stage",
    "fit_trigrams": "score.stage",
    "hash_documents": "holdout.stage",
    "holdout": "holdout.stage",
    "ingest": "ingest.stage",
    "merge_counts": "count.stage",
    "mix": "mixing.stage",
    "pack": "packing.stage",
    "pack_plan": "packing.stage",
    "pack_shard": "packing.stage",
    "score_column": "score.stage",
    "score_noise": "score.stage",
    "score_perplexity": "score.stage",
    "sweep": "sweep.stage",
    "sweep_cell": "sweep.cell",
    "takedown": "takedown.stage",
    "tokenizer_card": "card.stage",
    "train": "train.stage",
    "trim": "vocabulary.stage",
    "usage": "usage.stage",
}


@dataclass(frozen=True, eq=False, kw_only=True)
class RecordedJob(Job):
    """A job that makes the artifact of a record.

    Attributes:
        record: what is made.
        parents: the jobs of its inputs, by the fingerprints that the record has for them.
        corpora: the jobs of corpora that may list the text that it reads.
        external: returns an input from outside of the store.
        made: receives the artifact, by the record's fingerprint.
    """

    record: Record
    parents: Mapping[str, Job]
    corpora: Sequence[Job]
    external: Callable[[InputEntry, Sequence[ArtifactRef]], External]
    made: dict[str, ArtifactRef] = field(default_factory=dict)

    @property
    def dependencies(self) -> Sequence[Job]:
        """The jobs that must be done before this one."""
        return [*self.parents.values(), *self.corpora]

    def steps(self, done: Done) -> list[Step]:
        """Return the one step."""
        given = {role: self._given(role, several, done) for role, several in self._roles.items()}
        return [Step(self.stage, self.title, self.name, self.params, given)]

    def accept(self, nodes: Sequence[Node]) -> None:
        """Note the artifact."""
        self.made.update((self.record.fingerprint, node) for node in nodes if isinstance(node, ArtifactRef))

    @cached_property
    def _roles(self) -> dict[str, bool]:
        """The roles of the inputs, and whether each has several; an empty list has no entry."""
        return {role: isinstance(given, list) for role, given in self.record.payload["inputs"].items()}

    def _given(self, role: str, several: bool, done: Done) -> StepInput:
        found = [self._input(entry, done) for entry in self.record.inputs if entry.role == role]
        return found if several else found[0]

    def _input(self, entry: InputEntry, done: Done) -> Node | External:
        if entry.fingerprint is not None:
            return done[self.parents[entry.fingerprint]][0]
        listed = [node for job in self.corpora for node in done[job] if isinstance(node, ArtifactRef)]
        return self.external(entry, listed)


@dataclass
class Remaking:
    """Makes the jobs of records.

    Attributes:
        store: the new store.
        found: where the files from outside are, by record and position in its inputs.
        roots: each source's root, by the fingerprint of the corpus that was made of it.
        made: what has been made, by the fingerprint in the records.
    """

    store: Store
    found: Mapping[tuple[str, str, int | None], tuple[Wanted, Location]]
    roots: Mapping[str, Mapping[str, str]]
    made: dict[str, ArtifactRef] = field(default_factory=dict)
    _texts: dict[str, _Listed] = field(default_factory=dict)

    def jobs(self, records: Sequence[Record]) -> list[Job]:
        """Return one job per record; inputs come first.

        Raises:
            StoreError: a record contradicts itself, or this tokmill has no such stage, or not with such
                parameters.
        """
        jobs: dict[str, Job] = {}
        titles: set[str] = set()
        kinds = Counter(record.kind for record in records)
        for record in records:
            if problem := next(contradictions(record), None):
                raise StoreError(f"{record.reference}: {problem}; the record is damaged")
            stage = stage_of(record.payload["stage"])
            title = record.kind if kinds[record.kind] == 1 else f"{record.kind}[{record.name}]"
            title = f"{record.kind} {record.label}[{record.name}]" if title in titles else title
            titles.add(title)
            jobs[record.fingerprint] = RecordedJob(
                stage,
                title,
                record.name,
                _params(record),
                {},
                record=record,
                parents={each: jobs[each] for each in inputs_of(record)},
                corpora=self._lists(record, records, jobs),
                external=self._external_of(record),
                made=self.made,
            )
        return list(jobs.values())

    def _lists(self, record: Record, records: Sequence[Record], jobs: Mapping[str, Job]) -> list[Job]:
        """The corpora that come before a record, if it reads text."""
        if not any(map(is_text, record.inputs)):
            return []
        return [
            jobs[other.fingerprint] for other in records if other.kind == CORPUS and other.fingerprint in jobs
        ]

    def _external_of(self, record: Record) -> Callable[[InputEntry, Sequence[ArtifactRef]], External]:
        def external(entry: InputEntry, corpora: Sequence[ArtifactRef]) -> External:
            key = (record.fingerprint, entry.role, entry.position)
            if key in self.found:
                return External(digest=entry.digest, value=self._value(*self.found[key]), about=entry.about)
            if is_text(entry):
                return self._text(entry, corpora)
            return External(digest=entry.digest, value=entry.about, about=entry.about)

        return external

    def _value(self, one: Wanted, place: Location) -> Any:
        if one.source:
            return value_of(one, self.roots[one.record.fingerprint][one.source])
        about = one.entry.about
        if isinstance(about, dict) and "language" in about:
            return {"language": about["language"], "path": str(place)}
        return str(place.absolute()) if isinstance(place, Path) else str(place)

    def _text(self, entry: InputEntry, corpora: Sequence[ArtifactRef]) -> External:
        """Return the text of a shard: by its content, or else by its place, as it is now."""
        about = entry.about if isinstance(entry.about, dict) else {}
        for key in (entry.digest, (about.get("source"), about.get("index"))):
            for ref in corpora:
                if found := self._listed(ref).get(key):
                    shard, files = found
                    return text_of(ref, shard, self._root(ref, shard), files)
        raise StoreError(f"no corpus that was made lists text of the content {entry.digest[:16]}")

    def _listed(self, ref: ArtifactRef) -> _Listed:
        """A corpus's shards by what identifies their text, and by their places."""
        if ref.fingerprint not in self._texts:
            corpus = Corpus.open(self.store.path(ref))
            files = corpus.file_digests()
            listed = self._texts[ref.fingerprint] = {}
            for shard in (shard for source in corpus.sources for shard in corpus.shards(source)):
                listed |= {shard.digest_with(files): (shard, files), shard.digest: (shard, None)}
                listed[shard.source, shard.index] = (shard, None)
        return self._texts[ref.fingerprint]

    def _root(self, ref: ArtifactRef, shard: Shard) -> str:
        """The root of a shard's source: of the corpus that was ingested, of which others are parts."""
        record = self.store.record(ref)
        while record.payload["stage"] != INGEST:
            record = self.store.record(record.refs(CORPUS)[0])
        old = next(old for old, new in self.made.items() if new.fingerprint == record.fingerprint)
        return self.roots[old][shard.source]


def _params(record: Record) -> Any:
    """Return a record's parameters as those of the stage that there is now.

    Raises:
        StoreError: the stage has other parameters by now.
    """
    stage = stage_of(record.payload["stage"])
    try:
        return stage.params.model_validate(record.params)
    except ValueError as error:
        raise StoreError(
            f"{record.reference}: its parameters are no longer those of the stage {stage.verb} ({error}); "
            "use the version that it was made with (`packages` in its record)"
        ) from error


def verbs() -> list[str]:
    """Return the verbs of all stages, sorted."""
    return sorted(_MODULES)


def stage_of(verb: str) -> Stage[Any]:
    """Return a stage.

    Raises:
        StoreError: this tokmill has none of that verb.
    """
    if verb not in _MODULES:
        raise StoreError(
            f"this tokmill has no stage {verb!r}; use the version that the artifact was made with"
        )
    module = import_module(f"tokmill.tasks.{_MODULES[verb]}")
    return next(value for value in vars(module).values() if isinstance(value, Stage) and value.verb == verb)
