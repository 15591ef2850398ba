"""The DAG of a profile, written once: executors run it or plan it.

    sources ─ corpus ─┬─ counts ─ balance ─ tokenizer ─┬─ audit ────────────────────────┐
                      └────────────────────────────────┴─ encoded ─┬─ mixture ─ packed ─┼─ card
                                                                   ├─ scores ┘          │
                                                                   └─ usage ─┬──────────┘
                                                                             └─ tokenizer_card

With `[holdout]`, the corpus is divided first. Everything above is made of the documents for training; those
held out are encoded, mixed and packed by themselves, as `packed/NAME.validation`.

`compose` lists the jobs of a profile (see `flows.run.dag`), each after its dependencies. It runs nothing and
reads nothing. Once the corpus and the packing plan are published, their lists of shards are read: a mapped
stage has one task per shard. No algorithm is implemented here.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tokmill.flows.errors import RunError
from tokmill.flows.profile import Profile
from tokmill.flows.run.composer import Composer, Locate, shards_of
from tokmill.flows.run.dag import Dag, Done, Job, JobInput, Part
from tokmill.flows.run.sources import Sources
from tokmill.tasks.audit.stage import AUDIT, check_gate
from tokmill.tasks.audit.text import AUDIT_COUNTS, AUDIT_SHARD, AuditShardParams, audited_together, sampled
from tokmill.tasks.balance.stage import BALANCE
from tokmill.tasks.card.stage import CARD, TOKENIZER_CARD
from tokmill.tasks.core.stage import ArtifactRef, External, Params, Stage
from tokmill.tasks.encode.stage import ENCODE, ENCODE_SHARD
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.counts import Counts
from tokmill.tasks.formats.encoded import COLUMN
from tokmill.tasks.formats.packed.pieces import PackingPlan
from tokmill.tasks.holdout.stage import VALIDATION
from tokmill.tasks.ingest.stage import INGEST
from tokmill.tasks.mixing.consume import CONSUME
from tokmill.tasks.mixing.params import MixParams
from tokmill.tasks.mixing.stage import MIX
from tokmill.tasks.packing.params import PackParams
from tokmill.tasks.packing.stage import PACK, PACK_PLAN, PACK_SHARD
from tokmill.tasks.score.stage import (
    FIT_TRIGRAMS,
    SCORE_COLUMN,
    SCORE_NOISE,
    SCORE_PERPLEXITY,
    ColumnParams,
    NoiseParams,
    PerplexityParams,
)
from tokmill.tasks.store.record import read_record
from tokmill.tasks.train.adopt import ADOPT, AdoptParams
from tokmill.tasks.train.stage import TRAIN, TrainParams
from tokmill.tasks.usage.stage import USAGE, UsageParams

COMPARED = "compared"
"""The part of a run that is about the tokenizer that the audit compares with."""


def compose(profile: Profile, sources: Sources, locate: Locate, until: Collection[str] = ()) -> Dag:
    """Return the DAG of a profile.

    Encoding waits for the audit only if `audit.on_failure` is "fail", so that a failed gate (`GateError`)
    stops the run before it; otherwise only the card waits for the audit.
    """
    return _Composition(profile, sources, locate).dag().until(until)


def compose_packing(profile: Profile, mixture: ArtifactRef, sources: Sources, locate: Locate) -> Dag:
    """Return the DAG that packs a published mixture with the parameters of a profile."""
    return _Composition(profile, sources, locate).packing(mixture)


class _Composition(Composer):
    def dag(self) -> Dag:
        profile = self.profile
        ingested = self.one(INGEST, profile.ingest_params(), {"files": self.sources.files})
        corpus, held_out = self.parts(ingested)
        kinds: dict[str, Job | ArtifactRef] = {"corpus": corpus, **self._tokenizer(corpus)}
        both: dict[str, JobInput] = {"corpus": corpus, "tokenizer": kinds["tokenizer"]}
        audit = self._audit(held_out or corpus, kinds)
        verdict = [audit] if profile.audit.on_failure == "fail" else []
        text = self.text(profile.encode.for_source)
        shards = self.mapped(ENCODE_SHARD, corpus, text, {"tokenizer": kinds["tokenizer"]}, needs=verdict)
        encoded = self.one(ENCODE, profile.encode, {**both, "shards": shards})
        tokens: dict[str, JobInput] = {"encoded": encoded, "shards": shards}
        counts = {"counts": kinds["counts"]} if "counts" in kinds else {}
        used: dict[str, JobInput] = {"tokenizer": kinds["tokenizer"], "audit": audit, **counts, **tokens}
        usage = self.one(USAGE, UsageParams(), used)
        described = self._described(kinds, audit, usage)
        consumed = self._consumed()
        scores = self._scores(corpus, kinds["tokenizer"], shards, tokens)
        mixture = self.one(MIX, profile.mix_params(), {**tokens, **consumed, **scores})
        kinds |= {"audit": audit, "encoded": encoded, "usage": usage, "mixture": mixture}
        kinds["packed"] = self._packed(mixture, tokens, profile.pack)
        if held_out is None:
            card = self.one(CARD, profile.card, kinds)
            return Dag(self.jobs, {**kinds, "card": card, "tokenizer_card": described})
        validation = self._validation(held_out, kinds["tokenizer"], verdict)
        card = self.one(CARD, profile.card, {**kinds, "ingested": ingested, **validation})
        cards = {"card": card, "tokenizer_card": described}
        return Dag(
            self.jobs, {**kinds, **cards, "ingested": ingested, "validation": validation["validation"]}
        )

    def packing(self, mixture: ArtifactRef) -> Dag:
        """Pack a published mixture again, with the tokens that it was mixed from."""
        record = read_record(self.locate(mixture))
        encoded, shards = record.refs("encoded"), record.refs("shards")
        if not encoded:
            raise RunError(
                f"repack: {record.reference} was not made by mixing but from another mixture; name that one "
                f"(`tokmill lineage {record.reference}`)"
            )
        tokens: dict[str, JobInput] = {"encoded": encoded[0], "shards": shards}
        return Dag(
            self.jobs, {"mixture": mixture, "packed": self._packed(mixture, tokens, self.profile.pack)}
        )

    def _validation(self, corpus: Job, tokenizer: Job | ArtifactRef, needs: Sequence[Job]) -> dict[str, Job]:
        """Encode, mix and pack the documents that are held out, all of them once and unchanged."""
        encode, pack, part = self.profile.encode.plain(), self.profile.pack.plain(), VALIDATION
        both: dict[str, JobInput] = {"corpus": corpus, "tokenizer": tokenizer}
        text = self.text(lambda source: encode)
        shards = self.mapped(ENCODE_SHARD, corpus, text, {"tokenizer": tokenizer}, needs=needs, part=part)
        encoded = self.one(ENCODE, encode, {**both, "shards": shards}, part=part)
        tokens: dict[str, JobInput] = {"encoded": encoded, "shards": shards}
        mixture = self.one(MIX, MixParams(method="proportional"), tokens, part=part)
        return {
            "validation_corpus": corpus,
            "validation_encoded": encoded,
            "validation_mixture": mixture,
            "validation": self._packed(mixture, tokens, pack, part),
        }

    def _audit(self, corpus: Job, kinds: Mapping[str, Job | ArtifactRef]) -> Job:
        """Judge the tokenizer by a sample of a corpus, and by what its profile names."""
        given: dict[str, JobInput] = {
            "corpus": corpus,
            **{kind: made for kind, made in kinds.items() if kind != "corpus"},
            "texts": self._sampled(corpus, kinds["tokenizer"]),
            **self._counted(kinds),
            "parallel": self.sources.parallel,
        }
        compared: Job | ArtifactRef | External | None = self.sources.compare_with
        if compared is not None:
            named = self.profile.audit.compare_with
            if isinstance(compared, External):
                adopting = AdoptParams() if named is None else named.params()
                compared = self.one(ADOPT, adopting, {"file": compared}, part=COMPARED)
            given |= {"compare_with": compared, "compared_texts": self._sampled(corpus, compared, COMPARED)}
        params = self.profile.audit.params()
        return self.one(
            AUDIT, params, given, check=lambda ref: check_gate(params, self.locate(ref), ref.fingerprint[:12])
        )

    def _described(self, kinds: Mapping[str, Job | ArtifactRef], audit: Job, usage: Job) -> Job:
        """Write the tokenizer's card."""
        balance = {"balance": kinds["balance"]} if "balance" in kinds else {}
        about: dict[str, JobInput] = {"tokenizer": kinds["tokenizer"], "audit": audit, "usage": usage}
        return self.one(TOKENIZER_CARD, self.profile.tokenizer_card, {**about, **balance})

    def _counted(self, kinds: Mapping[str, Job | ArtifactRef]) -> dict[str, JobInput]:
        """Count the tokens in what the tokenizer was trained on, if it was trained here."""
        counts = kinds.get("counts")
        if not isinstance(counts, Job):
            return {}

        def parts(ref: ArtifactRef, done: Done) -> list[Part]:
            groups = enumerate(audited_together(Counts.open(self.locate(ref))))
            return [Part(f"part/{number}", AUDIT_COUNTS.params(parts=those), {}) for number, those in groups]

        shared: dict[str, JobInput] = {"tokenizer": kinds["tokenizer"], "counts": counts}
        return {"training": self.mapped(AUDIT_COUNTS, counts, parts, shared, part="counts")}

    def _sampled(self, corpus: Job, tokenizer: Job | ArtifactRef, part: str = "") -> Job:
        """Measure how a tokenizer encodes a sample of a corpus."""

        def parts(ref: ArtifactRef, done: Done) -> list[Part]:
            found = sampled(Corpus.open(self.locate(ref)), self.profile.audit.sample_megabytes)
            return [
                Part(
                    f"{shard.source}/{shard.index}",
                    AuditShardParams(max_bytes=max_bytes),
                    {"shard": self.external(ref, shard)},
                )
                for shard, max_bytes in found
            ]

        return self.mapped(AUDIT_SHARD, corpus, parts, {"tokenizer": tokenizer}, part=part)

    def _tokenizer(self, corpus: Job) -> dict[str, Job | ArtifactRef]:
        """Use the tokenizer that the profile names, or train one on the balanced counts."""
        named, existing = self.profile.tokenizer, self.sources.tokenizer
        if isinstance(existing, ArtifactRef):
            return {"tokenizer": existing}
        if named is not None and existing is not None:
            return {"tokenizer": self.one(ADOPT, named.params(), {"file": existing})}
        train = self.profile.training() or TrainParams()
        counts = self.counted(corpus, train.count_params())
        balance = self.one(BALANCE, self.profile.balance, {"corpus": corpus})
        tokenizer = self.one(TRAIN, train, {"counts": counts, "balance": balance})
        return {"counts": counts, "balance": balance, "tokenizer": tokenizer}

    def _consumed(self) -> dict[str, JobInput]:
        """Record the consumed part of the earlier mixture, if the profile names one."""
        if self.profile.replan is None:
            return {}
        return {"ledger": self.one(CONSUME, self.profile.replan.params(), self.sources.consumed)}

    def _scores(
        self, corpus: Job, tokenizer: Job | ArtifactRef, shards: Job, tokens: Mapping[str, JobInput]
    ) -> dict[str, JobInput]:
        """Score the documents of the sources with a curriculum: for each measure, one artifact per shard."""
        curriculum = self.profile.mix.curriculum
        scores: dict[str, JobInput] = {}
        for measure in () if curriculum is None else curriculum.measures:
            label, shared = measure.removeprefix(COLUMN), dict[str, JobInput]()
            stage: Stage[Any] = SCORE_COLUMN
            params: Params = ColumnParams(column=label)
            if measure == "noise":
                stage, params = SCORE_NOISE, NoiseParams(end_of_document=self.profile.encode.end_of_document)
                shared = {"tokenizer": tokenizer}
            elif measure == "perplexity":
                stage, params = SCORE_PERPLEXITY, PerplexityParams()
                shared = {"model": self.one(FIT_TRIGRAMS, self.profile.score, tokens)}
            parts = self._scored(label, shards, params)
            scores[measure] = self.mapped(stage, corpus, parts, shared, needs=[shards])
        return scores

    def _scored(self, label: str, encoded: Job, params: Params) -> Callable[[ArtifactRef, Done], list[Part]]:
        """The shards of the sources with a curriculum; a column is that of the shard's whole files."""
        curriculum = self.profile.mix.curriculum
        chosen = curriculum.sources if curriculum is not None else ()

        def parts(ref: ArtifactRef, done: Done) -> list[Part]:
            opened = Corpus.open(self.locate(ref))
            digests = opened.file_digests() if isinstance(params, ColumnParams) else None
            made = []
            for shard, node in zip(shards_of(opened), done[encoded], strict=True):
                text = {} if digests is None else {"text": self.external(ref, shard, digests)}
                if shard.source in chosen or not chosen:
                    made.append(
                        Part(f"{label}/{shard.source}/{shard.index}", params, {"shard": node, **text})
                    )
            return made

        return parts

    def _packed(
        self, mixture: Job | ArtifactRef, tokens: Mapping[str, JobInput], pack: PackParams, part: str = ""
    ) -> Job:
        """Plan the sequences, write their shards in parallel, and combine them."""
        given: dict[str, JobInput] = {"mixture": mixture, **tokens}
        plan = self.one(PACK_PLAN, pack.plan_params(), given, step="[plan]", part=part)

        def parts(ref: ArtifactRef, done: Done) -> list[Part]:
            num_shards = PackingPlan.open(self.locate(ref)).num_shards
            return [Part(f"shard/{index}", pack.shard_params(index), {}) for index in range(num_shards)]

        shards = self.mapped(PACK_SHARD, plan, parts, {"plan": plan, **tokens}, part=part)
        return self.one(PACK, pack, {"plan": plan, "shards": shards}, part=part)
