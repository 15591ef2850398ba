"""The jobs that merge the counts of a source's many shards in a tree (`tasks.count.tree`).

Each level of the tree is a job: one task per group of at least two parts. The next level, and at last
`count`, take all its parts in order: merged ones, and those that needed no merge. A source of few shards has
no merges at all, and a plan shows none before the corpus is known.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tokmill.flows.run.dag import Done, Job, MappedJob, Node, Part, Pending, Step, StepInput
from tokmill.tasks.core.stage import ArtifactRef, External
from tokmill.tasks.count.merge_stage import MergeParams
from tokmill.tasks.count.tree import joined, level_of

NumShards: TypeAlias = Callable[[ArtifactRef], Mapping[str, int]]
"""Returns how many shards each source of a corpus has, in order."""


@dataclass(frozen=True, eq=False)
class Level:
    """One level of the trees of all sources.

    Attributes:
        below: makes the parts of the level below, or the counted shards.
        level: 0 merges shards.
        num_shards: see `NumShards`.
    """

    below: Job
    level: int
    num_shards: NumShards

    def merges(self, corpus: ArtifactRef, done: Done) -> list[Part]:
        """Return one part per merge."""
        return [
            Part(f"{source}/{span.start}-{span.stop - 1}", MergeParams(), {"shards": nodes})
            for source, span, nodes in self._groups(corpus, done)
            if len(nodes) > 1
        ]

    def results(self, corpus: ArtifactRef, done: Done, merged: Sequence[Node]) -> list[Node]:
        """Return all parts in order, given those that were merged."""
        left = iter(merged)
        groups = self._groups(corpus, done)
        return [next(left) if len(nodes) > 1 else nodes[0] for _, _, nodes in groups]

    def _groups(self, corpus: ArtifactRef, done: Done) -> Iterator[tuple[str, range, list[Node]]]:
        """Yield source and shards of each group, and the artifacts that it is made of."""
        left = iter(_nodes(self.below.given(done)))
        for source, number in self.num_shards(corpus).items():
            for group in level_of(number, self.level):
                yield source, joined(group), [next(left) for _ in group]


@dataclass(frozen=True, eq=False, kw_only=True)
class MergingJob(MappedJob):
    """The merges of one level; its `parts` are those of `tree`."""

    tree: Level

    @property
    def dependencies(self) -> Sequence[Job]:
        """The jobs that must be done before this one."""
        return [*super().dependencies, self.tree.below]

    def steps(self, done: Done) -> list[Step]:
        """Return one step per merge; none while the corpus is unknown."""
        return [] if isinstance(done[self.of][0], Pending) else super().steps(done)

    def given(self, done: Done) -> StepInput:
        """Return all parts of this level, merged or not."""
        (corpus,) = done[self.of]
        if isinstance(corpus, Pending):
            return self.tree.below.given(done)
        return self.tree.results(corpus, done, done[self])


def _nodes(given: StepInput) -> list[Node]:
    """Return the artifacts that a job gives."""
    several = given if isinstance(given, Sequence) else [given]
    return [node for node in several if not isinstance(node, External)]
