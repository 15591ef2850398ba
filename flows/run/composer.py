"""What the DAGs of a profile and of a sweep are composed of: jobs over the corpus, or over its shards."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tokmill.flows.profile import Profile
from tokmill.flows.run.dag import Done, Job, JobInput, MappedJob, Node, Part, Pending, Step, StepInput
from tokmill.flows.run.sources import Sources
from tokmill.tasks.core.stage import ArtifactRef, External, Params, Stage
from tokmill.tasks.count.merging import MOST_LEVELS, joined, level_of
from tokmill.tasks.count.stage import COUNT, COUNT_SHARD, MERGE_COUNTS, CountParams, MergeParams
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.text.shards import Shard
from tokmill.tasks.holdout.stage import HASH_DOCUMENTS, HOLDOUT, PARTS, NoParams

Locate: TypeAlias = Callable[[ArtifactRef], Path]
"""Returns the folder of a published artifact."""


@dataclass(frozen=True, eq=False, kw_only=True)
class MergingJob(MappedJob):
    """The merges of one level of the trees of all sources."""

    below: Job  # makes the parts of the level below, or the counted shards
    # returns the artifacts of each group of them; one alone is not merged
    groups: Callable[[ArtifactRef, Done], Iterable[tuple[str, Sequence[Node]]]]

    @property
    def dependencies(self) -> Sequence[Job]:
        """The jobs that must be done before this one."""
        return [*super().dependencies, self.below]

    def steps(self, done: Done) -> list[Step]:
        """Return one step per merge; none while the corpus is unknown."""
        return [] if isinstance(done[self.of][0], Pending) else super().steps(done)

    def given(self, done: Done) -> StepInput:
        """Return all parts of this level, merged or not."""
        (corpus,) = done[self.of]
        if isinstance(corpus, Pending):
            return self.below.given(done)
        merged = iter(done[self])
        return [next(merged) if len(nodes) > 1 else nodes[0] for _, nodes in self.groups(corpus, done)]


class Composer:
    """Collects the jobs of a DAG.

    Attributes:
        profile: the resolved profile.
        sources: the files that the profile's sources match.
        locate: returns the folder of a published artifact.
        jobs: each after its dependencies.
    """

    def __init__(self, profile: Profile, sources: Sources, locate: Locate) -> None:
        self.profile = profile
        self.sources = sources
        self.locate = locate
        self.jobs: list[Job] = []

    def parts(self, ingested: Job) -> tuple[Job, Job | None]:
        """The documents for training, and those that are held out, if the profile holds out any."""
        holdout = self.profile.holdout
        if holdout is None:
            return ingested, None
        documents = self.mapped(HASH_DOCUMENTS, ingested, self.text(lambda source: NoParams()))
        inputs: dict[str, JobInput] = {"corpus": ingested, "documents": documents}
        training, validation = (
            self.one(HOLDOUT, holdout.for_part(part), inputs, part=part) for part in PARTS
        )
        return training, validation

    def counted(self, corpus: Job, params: CountParams, part: str = "") -> Job:
        """Count the pre-tokens of a corpus."""
        shards = self.mapped(COUNT_SHARD, corpus, self.text(lambda source: params), part=part)
        for level in range(MOST_LEVELS):
            shards = self._merged(shards, level, corpus, part)
        return self.one(COUNT, params, {"corpus": corpus, "shards": shards}, part=part)

    def _merged(self, below: Job, level: int, corpus: Job, part: str) -> Job:
        """Merge counted shards in groups; level 0 merges shards."""

        def groups(ref: ArtifactRef, done: Done) -> Iterator[tuple[str, list[Node]]]:
            opened, nodes = Corpus.open(self.locate(ref)), iter(_nodes(below.given(done)))
            for source in opened.sources:
                for group in level_of(len(opened.shards(source)), level):
                    span = joined(group)
                    yield f"{source}/{span.start}-{span.stop - 1}", [next(nodes) for _ in group]

        def merges(ref: ArtifactRef, done: Done) -> list[Part]:
            several = ((label, nodes) for label, nodes in groups(ref, done) if len(nodes) > 1)
            return [Part(label, MergeParams(), {"shards": nodes}) for label, nodes in several]

        title, name = in_part(MERGE_COUNTS.task, part), in_part(self.profile.name, part)
        job = MergingJob(
            *(MERGE_COUNTS, title, name, MergeParams(), {}),
            of=corpus,
            parts=merges,
            below=below,
            groups=groups,
        )
        self.jobs.append(job)
        return job

    def text(self, params: Callable[[str], Params]) -> Callable[[ArtifactRef, Done], list[Part]]:
        """One part per shard of the corpus, in order of source and index; `params` takes the source."""

        def parts(ref: ArtifactRef, done: Done) -> list[Part]:
            return [
                Part(
                    f"{shard.source}/{shard.index}",
                    params(shard.source),
                    {"shard": self.external(ref, shard)},
                    shard.num_bytes,
                )
                for shard in shards_of(Corpus.open(self.locate(ref)))
            ]

        return parts

    def external(
        self, corpus: ArtifactRef, shard: Shard, files: Mapping[tuple[str, str], str] | None = None
    ) -> External:
        """A shard's text; with digests of `files`, the fingerprint also covers the rest of its files."""
        return text_of(corpus, shard, self.sources.roots[shard.source], files)

    def mapped(
        self,
        stage: Stage[Any],
        of: Job,
        parts: Callable[[ArtifactRef, Done], Sequence[Part]],
        shared: Mapping[str, JobInput] | None = None,
        needs: Sequence[Job] = (),
        part: str = "",
    ) -> Job:
        """Add a job with one task per part of what `of` lists; see `MappedJob`."""
        title, name = in_part(stage.task, part), in_part(self.profile.name, part)
        job = MappedJob(stage, title, name, Params(), shared or {}, needs, of=of, parts=parts)
        self.jobs.append(job)
        return job

    def one(
        self,
        stage: Stage[Any],
        params: Params,
        inputs: Mapping[str, JobInput],
        *,
        step: str = "",
        part: str = "",
        check: Callable[[ArtifactRef], None] | None = None,
    ) -> Job:
        """Add a job with one task; `step` ends its title, `part` its title and the artifact's name."""
        title, name = in_part(stage.task, part) + step, in_part(self.profile.name, part)
        job = Job(stage, title, name, params, dict(inputs), check=check)
        self.jobs.append(job)
        return job


def text_of(
    corpus: ArtifactRef, shard: Shard, root: str, files: Mapping[tuple[str, str], str] | None = None
) -> External:
    """A shard's text as an input; with digests of `files`, identified by the whole of its files."""
    return External(
        digest=shard.digest if files is None else shard.digest_with(files),
        value={"shard": shard.model_dump(mode="json"), "roots": {shard.source: root}},
        about={"corpus": corpus.fingerprint, "source": shard.source, "index": shard.index},
    )


def in_part(name: str, part: str) -> str:
    """The name of a task or an artifact of a part of the corpus."""
    return f"{name}.{part}" if part else name


def shards_of(corpus: Corpus) -> list[Shard]:
    """Return the shards of all sources, by source, then index."""
    return [shard for source in corpus.sources for shard in corpus.shards(source)]


def _nodes(given: StepInput) -> list[Node]:
    """Return the artifacts that a job gives."""
    several = given if isinstance(given, Sequence) else [given]
    return [node for node in several if not isinstance(node, External)]
