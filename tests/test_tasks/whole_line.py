"""The whole pipeline over a few files, stage by stage in a real store, without a flow."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tokmill.tasks.audit.params import AuditParams
from tokmill.tasks.audit.stage import AUDIT
from tokmill.tasks.audit.text import AUDIT_COUNTS, AUDIT_SHARD, AuditShardParams, audited_together, sampled
from tokmill.tasks.balance.stage import BALANCE, BalanceParams
from tokmill.tasks.card.stage import CARD, TOKENIZER_CARD, CardParams, TokenizerCardParams
from tokmill.tasks.core.stage import ArtifactRef, External, Request
from tokmill.tasks.count.stage import COUNT, COUNT_SHARD
from tokmill.tasks.encode.stage import ENCODE, ENCODE_SHARD, EncodeParams
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.counts import Counts
from tokmill.tasks.formats.packed.pieces import PackingPlan
from tokmill.tasks.formats.text.source_files import resolve_files
from tokmill.tasks.formats.text.sources import SourceSpec
from tokmill.tasks.ingest.stage import INGEST, IngestParams
from tokmill.tasks.mixing.stage import MIX, MixParams
from tokmill.tasks.packing.stage import PACK, PACK_PLAN, PACK_SHARD, PackParams
from tokmill.tasks.score.stage import (
    FIT_TRIGRAMS,
    SCORE_NOISE,
    SCORE_PERPLEXITY,
    NoiseParams,
    PerplexityParams,
    TrigramParams,
)
from tokmill.tasks.store import FileDigests, Store
from tokmill.tasks.train.stage import TRAIN, TrainParams
from tokmill.tasks.usage.stage import USAGE, UsageParams


@dataclass(frozen=True)
class LineParams:
    """The parameters of every stage from `count` on."""

    train: TrainParams = field(
        default_factory=lambda: TrainParams(vocab_size=300, special_tokens=["<|endoftext|>"], num_reserved=2)
    )
    balance: BalanceParams = field(default_factory=BalanceParams)
    encode: EncodeParams = field(default_factory=EncodeParams)
    audit: AuditParams = field(default_factory=AuditParams)
    score: TrigramParams = field(default_factory=TrigramParams)
    mix: MixParams = field(default_factory=MixParams)
    pack: PackParams = field(default_factory=PackParams)
    tokenizer_card: TokenizerCardParams = field(default_factory=TokenizerCardParams)
    card: CardParams = field(default_factory=CardParams)


@dataclass(frozen=True)
class Line:
    """Runs the stages in `store`; the text of source `s` is in `<texts>/s/*.jsonl`, unless `specs` has it."""

    store: Store
    texts: Path
    specs: Mapping[str, SourceSpec] | None = None
    ingest: IngestParams = field(default_factory=IngestParams)

    def run(self, params: LineParams) -> dict[str, ArtifactRef]:
        """Make every artifact; the result maps kind to artifact."""
        corpus, texts = self.corpus()
        made = {"corpus": corpus, **self.tokenizer(params, corpus, texts)}
        tokenizer = made["tokenizer"]
        made["audit"] = self.audit(params.audit, made, texts)
        shards = [self.make(ENCODE_SHARD, params.encode, tokenizer=tokenizer, shard=text) for text in texts]
        made["encoded"] = self.make(ENCODE, params.encode, corpus=corpus, tokenizer=tokenizer, shards=shards)
        tokens = {"encoded": made["encoded"], "shards": shards}
        made["usage"] = self.make(
            USAGE,
            UsageParams(),
            tokenizer=tokenizer,
            audit=made["audit"],
            counts=made["counts"],
            **tokens,
        )
        scores = self.scores(params, tokenizer, tokens)
        made["mixture"] = self.make(MIX, params.mix, **tokens, **scores)
        made["packed"] = self.packed(params.pack, made["mixture"], tokens)
        about = {kind: made[kind] for kind in ("tokenizer", "audit", "usage", "balance")}
        cards = {"tokenizer_card": self.make(TOKENIZER_CARD, params.tokenizer_card, **about)}
        return made | cards | {"card": self.make(CARD, params.card, **made)}

    def make(self, stage, params, **inputs) -> ArtifactRef:
        return self.store.realize(Request(stage, "line", params, inputs)).ref

    def sources(self):
        """How each source is read, by name."""
        names = sorted(folder.name for folder in self.texts.iterdir())
        return self.specs or {
            name: SourceSpec(files=[f"{name}/*.jsonl"], on_error="quarantine") for name in names
        }

    def corpus(self):
        """The corpus, and its shards as mapped stages get them."""
        files, roots, options = [], {}, {}
        for source, spec in self.sources().items():
            found, roots[source] = resolve_files(
                spec, self.texts, FileDigests(self.store.root), source=source
            )
            files += found
            options[source] = spec.read_options()
        corpus = self.make(INGEST, self.ingest.model_copy(update={"sources": options}), files=files)
        opened = Corpus.open(self.store.path(corpus))
        shards = [shard for source in opened.sources for shard in opened.shards(source)]
        return corpus, [
            External(digest=shard.digest, value={"shard": shard.model_dump(mode="json"), "roots": roots})
            for shard in shards
        ]

    def tokenizer(self, params, corpus, texts):
        cut = params.train.count_params()
        parts = [self.make(COUNT_SHARD, cut, shard=text) for text in texts]
        counts = self.make(COUNT, cut, corpus=corpus, shards=parts)
        balance = self.make(BALANCE, params.balance, corpus=corpus)
        tokenizer = self.make(TRAIN, params.train, counts=counts, balance=balance)
        return {"counts": counts, "balance": balance, "tokenizer": tokenizer}

    def audit(self, params, made, texts):
        found = sampled(Corpus.open(self.store.path(made["corpus"])), params.sample_megabytes)
        by_digest = {text.digest: text for text in texts}
        measured = [
            self.make(
                AUDIT_SHARD,
                AuditShardParams(max_bytes=max_bytes),
                tokenizer=made["tokenizer"],
                shard=by_digest[shard.digest],
            )
            for shard, max_bytes in found
        ]
        both = {kind: made[kind] for kind in ("tokenizer", "counts")}
        groups = audited_together(Counts.open(self.store.path(made["counts"])))
        training = [self.make(AUDIT_COUNTS, AUDIT_COUNTS.params(parts=each), **both) for each in groups]
        return self.make(AUDIT, params, **made, texts=measured, training=training, parallel=[])

    def scores(self, params, tokenizer, tokens):
        """Measure → the scores of every shard, for each measure of the curriculum."""
        curriculum = params.mix.curriculum
        made = {}
        for measure in curriculum.measures if curriculum else ():
            if measure == "noise":
                asked = NoiseParams(end_of_document=params.encode.end_of_document)
                shared = {"stage": SCORE_NOISE, "params": asked, "tokenizer": tokenizer}
            else:
                model = self.make(FIT_TRIGRAMS, params.score, **tokens)
                shared = {"stage": SCORE_PERPLEXITY, "params": PerplexityParams(), "model": model}
            made[measure] = [self.make(**shared, shard=shard) for shard in tokens["shards"]]
        return made

    def packed(self, pack, mixture, tokens):
        plan = self.make(PACK_PLAN, pack.plan_params(), mixture=mixture, **tokens)
        indices = range(PackingPlan.open(self.store.path(plan)).num_shards)
        shards = [self.make(PACK_SHARD, pack.shard_params(k), plan=plan, **tokens) for k in indices]
        return self.make(PACK, pack, plan=plan, shards=shards)
