"""The DAG, written once and read by two executors: one that runs it and one that only plans it.

    sources ─ corpus ─┬─ counts ─ balance ─ tokenizer ─ audit ──────────────┐
                      └──────────────────────── encoded ─ mixture ─ packed ─ card
                                                  └─ scores ─┘

`Composition.build` asks an `Executor` for one artifact after another. What it gets back is a reference to a
published artifact or, from the planning executor, `Pending`: an artifact that does not exist yet, so that
what is built on it has no fingerprint yet either. No algorithm lives here, and nothing is read but the
corpus's and the pack plan's lists of shards, which say how many tasks a mapped stage has.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from tokmill.flows.profile import Profile
from tokmill.flows.run.sources import Sources
from tokmill.tasks.audit.stage import AUDIT, check_gate
from tokmill.tasks.balance.stage import BALANCE
from tokmill.tasks.card.stage import CARD
from tokmill.tasks.core.stage import ArtifactRef, External, Input, Params, Request, Stage
from tokmill.tasks.count.stage import COUNT, COUNT_SHARD
from tokmill.tasks.encode.stage import ENCODE, ENCODE_SHARD, EncodeParams
from tokmill.tasks.formats.corpus import Corpus, Shard
from tokmill.tasks.formats.packed.plan import PackingPlan
from tokmill.tasks.formats.scores import COLUMN
from tokmill.tasks.ingest.stage import INGEST
from tokmill.tasks.mixing.consume import CONSUME
from tokmill.tasks.mixing.stage import MIX
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
from tokmill.tasks.train.adopt import ADOPT
from tokmill.tasks.train.stage import TRAIN, TrainParams


@dataclass(frozen=True)
class Pending:
    """An artifact that would have to be made first; `task` is the title of the step that makes it."""

    task: str


Node: TypeAlias = ArtifactRef | Pending
StepInput: TypeAlias = Node | External | Sequence[Node | External]


@dataclass(frozen=True)
class Step:
    """One task of the DAG: a stage applied to inputs, some of which may be pending.

    Attributes:
        stage: what is done.
        title: the name that people see, e.g. `encode[english/3]`.
        name: the artifact's name, e.g. `quickstart.english/3`.
        params: the stage's parameters.
        inputs: by role, what the stage takes.
        after: artifacts that the step's inputs were read from; they bear no identity of their own here, but
            the Prefect UI draws its edges from them.
    """

    stage: Stage[Any]
    title: str
    name: str
    params: Params
    inputs: Mapping[str, StepInput]
    after: Sequence[Node] = ()

    def request(self) -> Request:
        """The request that this step makes of the store; only for a step without pending inputs."""
        inputs = {role: _published(given) for role, given in self.inputs.items()}
        return Request(self.stage, self.name, self.params, inputs)


def _published(given: StepInput) -> Input | list[Input]:
    if isinstance(given, Sequence):
        return [node for node in given if not isinstance(node, Pending)]
    if isinstance(given, Pending):
        raise TypeError(f"the artifact of {given.task!r} is not published yet")
    return given


def nodes(step: Step) -> Iterator[Node]:
    """Yield every artifact, published or pending, that a step waits for."""
    for given in (*step.inputs.values(), step.after):
        for node in given if isinstance(given, Sequence) else [given]:
            if not isinstance(node, External):
                yield node


def references(step: Step) -> list[ArtifactRef]:
    """Return the published artifacts that a step waits for, each once."""
    return list(dict.fromkeys(node for node in nodes(step) if isinstance(node, ArtifactRef)))


def pending(step: Step) -> list[Pending]:
    """Return the artifacts that would have to be made before a step, each once."""
    return list(dict.fromkeys(node for node in nodes(step) if isinstance(node, Pending)))


class Executor(Protocol):
    """Turns steps into artifacts, or into a plan of them."""

    def one(self, step: Step) -> Node:
        """Make (or plan) one artifact."""
        ...

    def each(self, steps: Sequence[Step]) -> Sequence[Node]:
        """Make (or plan) the artifacts of a mapped stage side by side; returned in the order of `steps`."""
        ...

    def path(self, node: ArtifactRef) -> Path:
        """Where a published artifact's files are."""
        ...


@dataclass(frozen=True)
class Part:
    """One task of a mapped stage: its label (`english/3`), its own parameters and its own inputs."""

    label: str
    params: Params
    inputs: Mapping[str, StepInput]


class Composition:
    """The steps of one profile, bound to an executor.

    Args:
        profile: the resolved profile.
        executor: runs or plans.
        sources: the files that the profile's sources match, and the tokenizer that it may name.
    """

    def __init__(self, profile: Profile, executor: Executor, sources: Sources) -> None:
        self.profile = profile
        self.executor = executor
        self.sources = sources

    def build(self) -> dict[str, Node]:
        """Ask for every artifact of the profile, in order; the result maps kind to artifact.

        Raises:
            GateError: the audit's gate failed, and the profile says that a run stops there.
        """
        profile = self.profile
        corpus = self._one(INGEST, profile.ingest_params(), files=self.sources.files)
        made: dict[str, Node] = {"corpus": corpus}
        made |= self._tokenizer(corpus)
        tokenizer = made["tokenizer"]
        shards = self._mapped(ENCODE_SHARD, corpus, self._text(corpus, profile.encode), tokenizer=tokenizer)
        made["encoded"] = self._one(ENCODE, profile.encode, corpus=corpus, tokenizer=tokenizer, shards=shards)
        tokens: dict[str, StepInput] = {"encoded": made["encoded"], "shards": shards}
        made["audit"] = self._one(AUDIT, profile.audit, corpus=corpus, tokenizer=tokenizer, **tokens)
        if isinstance(
            made["audit"], ArtifactRef
        ):  # published with its verdict, whether the run goes on or not
            check_gate(profile.audit, self.executor.path(made["audit"]), made["audit"].name)
        before = self._ledger()
        scores = self._scores(corpus, tokenizer, tokens)
        made["mixture"] = self._one(MIX, profile.mix_params(), **tokens, **before, **scores)
        made["packed"] = self._packed(made["mixture"], tokens)
        made["card"] = self._one(CARD, profile.card, **made)
        return made

    def _tokenizer(self, corpus: Node) -> dict[str, Node]:
        """Take the tokenizer that the profile names, or train one on the balanced counts."""
        named, existing = self.profile.tokenizer, self.sources.tokenizer
        if isinstance(existing, ArtifactRef):
            return {"tokenizer": existing}
        if named is not None and existing is not None:
            return {"tokenizer": self._one(ADOPT, named.params(), file=existing)}
        train = self.profile.training() or TrainParams()
        count = train.count_params()
        shards = self._mapped(COUNT_SHARD, corpus, self._text(corpus, count))
        counts = self._one(COUNT, count, corpus=corpus, shards=shards)
        balance = self._one(BALANCE, self.profile.balance, corpus=corpus)
        tokenizer = self._one(TRAIN, train, counts=counts, balance=balance)
        return {"counts": counts, "balance": balance, "tokenizer": tokenizer}

    def _ledger(self) -> dict[str, Node]:
        """Count what was consumed of the mixture that the profile goes on from, if it names one."""
        if self.profile.replan is None:
            return {}
        return {"ledger": self._one(CONSUME, self.profile.replan.params(), **self.sources.consumed)}

    def _scores(
        self, corpus: Node, tokenizer: Node, tokens: Mapping[str, StepInput]
    ) -> dict[str, Sequence[Node]]:
        """Measure the documents of the sources that have a curriculum: by measure, one artifact a shard."""
        curriculum = self.profile.mix.curriculum
        measures = curriculum.measures if curriculum is not None else ()
        end = self.profile.encode.end_of_document
        scores: dict[str, Sequence[Node]] = {}
        for measure in measures:
            if measure == "noise":
                parts = self._scored(corpus, tokens, measure, NoiseParams(end_of_document=end))
                scores[measure] = self._mapped(SCORE_NOISE, corpus, parts, tokenizer=tokenizer)
            elif measure == "perplexity":
                model = self._one(FIT_TRIGRAMS, self.profile.score, **tokens)
                parts = self._scored(corpus, tokens, measure, PerplexityParams())
                scores[measure] = self._mapped(SCORE_PERPLEXITY, corpus, parts, model=model)
            else:
                params = ColumnParams(column=measure.removeprefix(COLUMN))
                parts = self._scored(corpus, tokens, params.column, params)
                scores[measure] = self._mapped(SCORE_COLUMN, corpus, parts)
        return scores

    def _scored(
        self, corpus: Node, tokens: Mapping[str, StepInput], measure: str, params: Params
    ) -> list[Part] | None:
        """One part a shard of the sources that have a curriculum; None while there is no corpus."""
        encoded = tokens["shards"]
        if isinstance(corpus, Pending) or not isinstance(encoded, Sequence):
            return None
        opened = Corpus.open(self.executor.path(corpus))
        shards = [shard for source in opened.sources for shard in opened.shards(source)]
        curriculum = self.profile.mix.curriculum
        chosen = curriculum.sources if curriculum is not None else ()
        digests = opened.file_digests() if isinstance(params, ColumnParams) else None
        parts = []
        for shard, node in zip(shards, encoded, strict=True):
            if shard.source in chosen or not chosen:
                inputs: dict[str, StepInput] = {"shard": node}
                if digests is not None:
                    inputs["text"] = self._external(shard, digests)
                parts.append(Part(f"{measure}/{shard.source}/{shard.index}", params, inputs))
        return parts

    def _packed(self, mixture: Node, tokens: Mapping[str, StepInput]) -> Node:
        """Plan the sequences, write their shards side by side, and put them together."""
        pack = self.profile.pack
        plan = self._one(PACK_PLAN, pack.plan_params(), mixture=mixture, **tokens)
        parts = None
        if isinstance(plan, ArtifactRef):
            num_shards = PackingPlan.open(self.executor.path(plan)).num_shards
            parts = [Part(f"shard/{index}", pack.shard_params(index), {}) for index in range(num_shards)]
        shards = self._mapped(PACK_SHARD, plan, parts, plan=plan, **tokens)
        return self._one(PACK, pack, plan=plan, shards=shards)

    def _text(self, corpus: Node, params: Params) -> list[Part] | None:
        """One part a corpus shard, in order of source and index; None while there is no corpus."""
        if isinstance(corpus, Pending):
            return None
        opened = Corpus.open(self.executor.path(corpus))
        shards = [shard for source in opened.sources for shard in opened.shards(source)]
        own = params.for_source if isinstance(params, EncodeParams) else lambda _: params
        return [
            Part(f"{shard.source}/{shard.index}", own(shard.source), {"shard": self._external(shard)})
            for shard in shards
        ]

    def _external(self, shard: Shard, files: Mapping[tuple[str, str], str] | None = None) -> External:
        """A shard's text; with digests of `files`, all that its files hold beside it bears identity too."""
        roots = {shard.source: self.sources.roots[shard.source]}
        digest = shard.digest if files is None else shard.digest_with(files)
        return External(digest=digest, value={"shard": shard.model_dump(mode="json"), "roots": roots})

    def _mapped(
        self, stage: Stage[Any], of: Node, parts: Sequence[Part] | None, **shared: StepInput
    ) -> list[Node]:
        """Ask for a mapped stage: one task a part of `of`; one pending step while the parts are unknown."""
        if parts is None:
            step = Step(stage, f"{stage.task}[…]", self.profile.name, Params(), {"of": of, **shared})
            return [self.executor.one(step)]
        steps = [
            Step(
                stage,
                f"{stage.task}[{part.label}]",
                f"{self.profile.name}.{part.label}",
                part.params,
                {**shared, **part.inputs},
                after=[of],
            )
            for part in parts
        ]
        return list(self.executor.each(steps))

    def _one(self, stage: Stage[Any], params: Params, **inputs: StepInput) -> Node:
        title = "pack[plan]" if stage is PACK_PLAN else stage.task
        return self.executor.one(Step(stage, title, self.profile.name, params, inputs))
