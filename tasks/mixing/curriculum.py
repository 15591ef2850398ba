"""Curricula: documents from the easiest to the hardest, or at random among those that are easy enough yet.

A measure gives every document a number: its length, or a score; larger is harder, none (NaN) the hardest.
Several measures are combined by the weighted mean of a document's ranks. All is sorted on disk.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import MixingError, StoreError
from tokmill.tasks.formats.encoded import EncodedManifest, ScoredShard, components_of
from tokmill.tasks.kernels.drawing import KINDS, Course, Rule, draw_times, hand_out
from tokmill.tasks.mixing.curves import Competence, Curves
from tokmill.tasks.mixing.draw import DOCUMENT, Draw, document_keys, documents, with_fields
from tokmill.tasks.mixing.lengths import LengthBlock, SourceLengths
from tokmill.tasks.mixing.params import CurriculumParams
from tokmill.tasks.mixing.permutation import permutation_key
from tokmill.tasks.mixing.sorting import Rows, Scratch, regrouped, sorted_rows

_TWO_SIDED = ("compression",)
_VALUED = np.dtype([("key", "<u8"), ("value", "<f8")])
_PLACED = np.dtype([*DOCUMENT.descr, ("place", "<u8")])
_RACER = np.dtype([*DOCUMENT.descr, ("release", "<f8")])
Scores = Callable[[], NDArray[np.float32]]


@dataclass(frozen=True)
class ScoreShards:
    """The scores of all shards."""

    # measure → source → directories of the source's shards, in order
    paths: Mapping[str, Mapping[str, Sequence[Path]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, manifest: EncodedManifest, rules: CurriculumParams | None, scores: Mapping[str, Sequence[Path]]
    ) -> "ScoreShards":
        """Group scores by source."""
        chosen = [entry for entry in manifest.sources if rules and rules.has(entry.source)]
        number = sum(len(entry.shards) for entry in chosen)
        grouped = {}
        for measure, paths in scores.items():
            if len(paths) != number:
                raise MixingError(
                    f"mix: {len(paths)} shards have scores of '{measure}', but {number} are mixed by it; "
                    "score every shard of the sources that have a curriculum"
                )
            remaining = iter(paths)
            grouped[measure] = {entry.source: [next(remaining) for _ in entry.shards] for entry in chosen}
        return cls(grouped)

    def measures(self, rules: CurriculumParams, source: str) -> Iterator["Measure"]:
        """The measures of a source's documents."""
        for name, weight in rules.difficulty.items():
            if name == "length":
                yield Measure(name, weight)
                continue
            if name not in self.paths:
                raise MixingError(
                    f"mix: curriculum.difficulty names '{name}', but no scores of it were given; score the "
                    "encoding first"
                )
            components = components_of(name)
            for part in components:
                scores = [partial(_component, path, name, part) for path in self.paths[name][source]]
                yield Measure(name, weight / len(components), scores, part in _TWO_SIDED)


def _component(path: Path, measure: str, name: str) -> NDArray[np.float32]:
    return ScoredShard.open(path, measure).component(name)


@dataclass(frozen=True)
class Measure:
    """One number per document."""

    name: str  # for messages
    weight: float  # of the rank; not 0, and negative if larger is easier
    scores: Sequence[Scores] | None = None  # open each shard's numbers, float32 [d]; None for the lengths
    two_sided: bool = False  # the extremes are harder than the middle: a rank r counts as |2r - 1|


@dataclass(frozen=True)
class Difficulty:
    """The measures by which one source's documents are ordered."""

    source: str
    lengths: SourceLengths
    measures: Sequence[Measure]
    seed: int
    scratch: Scratch

    def ascending(self) -> Iterator[Rows]:
        """Yield the documents that have tokens from the easiest to the hardest, with the dtype `DOCUMENT`."""
        return sorted_rows(self._keyed(), self.scratch)

    def _keyed(self) -> Iterator[Rows]:
        """The documents in stored order; the key is the difficulty followed by a random number."""
        key = permutation_key("tie", self.seed, self.source)
        for block, values in zip(self.lengths.blocks(self.source), self._difficulties(), strict=True):
            rows = documents(block)
            lots = document_keys(rows, key) >> np.uint64(32)
            rows["key"] = sortable(values[block.lengths > 0]) << np.uint64(32) | lots
            yield rows

    def _difficulties(self) -> Iterator[NDArray[np.float32]]:
        if len(self.measures) == 1 and not self.measures[0].two_sided:
            return self._values(self.measures[0])
        total = sum(abs(measure.weight) for measure in self.measures)
        parts = [self._ranks(measure, measure.weight / total) for measure in self.measures]
        return (np.sum(blocks, axis=0, dtype=np.float32) for blocks in zip(*parts, strict=True))

    def _ranks(self, measure: Measure, weight: float) -> Iterator[NDArray[np.float32]]:
        """Each document's weighted rank, in stored order: the fraction of documents with a smaller number."""
        by_value = sorted_rows(_numbered(self._values(measure)), self.scratch)
        by_document = sorted_rows(_ranked(by_value, self.lengths.num_documents), self.scratch)
        sizes = (len(block.lengths) for block in self.lengths.blocks(self.source))
        for rows in regrouped(by_document, sizes):
            ranks = rows["value"].astype(np.float32)
            ranks = np.abs(2 * ranks - 1) if measure.two_sided else ranks
            yield ranks * np.float32(weight if measure.two_sided else abs(weight))

    def _values(self, measure: Measure) -> Iterator[NDArray[np.float32]]:
        """The measure's numbers, negated if larger is easier."""
        turned = measure.weight < 0 and not measure.two_sided
        for block in self.lengths.blocks(self.source):
            values = self._of_block(measure, block)
            yield -values if turned else values

    def _of_block(self, measure: Measure, block: LengthBlock) -> NDArray[np.float32]:
        if measure.scores is None:
            return block.lengths.astype(np.float32)
        scores, number = measure.scores[block.shard](), self.lengths.shards[block.shard].num_documents
        if len(scores) != number:
            raise StoreError(
                f"mix: measure '{measure.name}' has {len(scores)} numbers for shard {block.shard} of "
                f"'{self.source}', which has {number} documents; score the encoding that is mixed"
            )
        return np.asarray(scores[block.first : block.first + len(block.lengths)], dtype=np.float32)


def sortable(values: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Integers of 32 bits with the order of the values; -0 equals 0, NaN is the largest."""
    bits = (values + np.float32(0)).view(np.uint32).astype(np.uint64)
    negative = bits >> np.uint64(31) == 1
    ascending = np.where(negative, np.uint64(0xFFFFFFFF) - bits, bits + np.uint64(0x80000000))
    return np.where(np.isnan(values), np.uint64(0xFFFFFFFF), ascending)


def _numbered(blocks: Iterator[NDArray[np.float32]]) -> Iterator[Rows]:
    number = 0
    for values in blocks:
        rows = np.empty(len(values), dtype=_VALUED)
        rows["key"], rows["value"] = sortable(values), np.arange(number, number + len(values))
        number += len(values)
        yield rows


def _ranked(ascending: Iterator[Rows], size: int) -> Iterator[Rows]:
    """The ranks in [0, 1) of documents sorted by value, keyed by number; equal values get the lowest rank."""
    before, last_value, last_rank = 0, None, 0
    for rows in ascending:
        values = rows["key"]
        new = np.ones(len(values), dtype=bool)
        new[1:] = values[1:] != values[:-1]
        new[0] = last_value is None or values[0] != last_value
        firsts = np.maximum.accumulate(np.where(new, np.arange(before, before + len(values)), last_rank))
        before, last_value, last_rank = before + len(values), values[-1], int(firsts[-1])
        ranked = np.empty(len(values), dtype=_VALUED)
        ranked["key"], ranked["value"] = rows["value"], firsts / size
        yield ranked


def easy_to_hard(difficulty: Difficulty, draw: Draw, first_epoch: int) -> Iterator[Rows]:
    """Yield documents from the easiest to the hardest in each epoch, until the draw stops."""
    source, scratch = difficulty.source, difficulty.scratch
    for epoch in count(first_epoch):
        if draw.is_reached:
            return
        blocks = difficulty.lengths.blocks(source)
        remaining = sum(int(block.lengths[block.consumed <= epoch].sum()) for block in blocks)
        kept = (rows[rows["epoch"] <= epoch] for rows in difficulty.ascending())
        ascending = (with_fields(rows, epoch=epoch) for rows in kept)
        if draw.given + remaining <= draw.quota:
            yield from draw.taken(ascending)
        else:  # those that a source without a curriculum would draw up to its quota
            chosen = draw.taken(sorted_rows(_placed(ascending, difficulty, epoch), scratch))
            yield from sorted_rows(
                (with_fields(rows, DOCUMENT, key=rows["place"]) for rows in chosen), scratch
            )


def _placed(ascending: Iterator[Rows], difficulty: Difficulty, epoch: int) -> Iterator[Rows]:
    """The documents with their position by difficulty; the keys are those of a shuffled source."""
    key, place = permutation_key("mix", difficulty.seed, difficulty.source, epoch), 0
    for rows in ascending:
        places = np.arange(place, place + len(rows))
        yield with_fields(rows, _PLACED, key=document_keys(rows, key), place=places)
        place += len(rows)


def paced(
    difficulty: Difficulty, competence: Competence, curves: Curves, copies: int, begin: float
) -> Iterator[Rows]:
    """Yield documents in the order of their draw, each up to `copies` times, once it is eligible.

    `begin` are the tokens that the source gave before this mixture, as a position on its curve.
    """
    racers = sorted_rows(_racers(difficulty, competence, curves, copies), difficulty.scratch)
    waiting, now = np.empty(0, dtype=_RACER), np.full(1, begin)
    for rows in chain(racers, [None]):
        every = waiting if rows is None else np.concatenate([waiting, rows])
        heaps = np.empty((3, len(every)), dtype=np.int64)
        number, num_waiting = hand_out(
            every["num_tokens"].copy(),
            every["release"].copy(),
            every["key"].copy().view(np.float64),
            len(waiting),
            rows is None,
            now,
            *heaps,
        )
        waiting, drawn = every[np.sort(heaps[0, :num_waiting])], every[heaps[2, :number]]
        del every, heaps, rows  # they would be kept beside the next ones
        yield with_fields(drawn, DOCUMENT)


def _racers(difficulty: Difficulty, competence: Competence, curves: Curves, copies: int) -> Iterator[Rows]:
    """Every copy of every document that ever becomes eligible; the key is the time of its draw."""
    kind = KINDS.index(competence.kind)
    limits = (float(competence.start), float(competence.until), competence.stairs, competence.most)
    rule, course = Rule(kind, *limits), _course(difficulty, competence, curves, copies)
    before, whole = 0, difficulty.lengths.num_tokens

    def racers(rows: Rows, parts: NDArray[np.float64], copy: int) -> Rows:
        lots = document_keys(rows, permutation_key("lot", difficulty.seed, difficulty.source, copy))
        releases, times = np.empty(len(rows)), np.empty(len(rows))
        draw_times(parts, lots, copy, copies, rule, course, releases, times)
        key = times.view(np.uint64)  # non-negative doubles have the order of their bit patterns
        every = with_fields(rows, _RACER, key=key, epoch=copy, release=releases)
        return every[np.isfinite(releases) & (rows["epoch"] <= copy)]

    for rows in difficulty.ascending():
        ends = before + np.cumsum(rows["num_tokens"], dtype=np.int64)
        parts = (ends - rows["num_tokens"]) / whole
        before = int(ends[-1])
        yield from (racers(rows, parts, copy) for copy in range(copies))


def _course(difficulty: Difficulty, competence: Competence, curves: Curves, copies: int) -> Course:
    """The request of a source, and the cumulative chances of its documents over its tokens."""
    own, lengths, eligible = curves.sources.index(difficulty.source), difficulty.lengths, competence.table
    curve = curves.of_source(own)
    places = curve.along(np.linspace(0, 1, len(eligible)) * float(curves.end))[:, 0].copy()
    undrawn = copies * eligible * lengths.num_tokens - places
    rates = 1 / np.maximum(undrawn, lengths.num_tokens / max(1, lengths.num_documents))
    steps = np.diff(places) * (rates[1:] + rates[:-1]) / 2
    return Course(
        knots=curve.knots,
        firsts=curve.firsts.ravel(),
        lasts=curve.lasts.ravel(),
        sums=curves.arrays.sums[own :: len(curves.sources)].copy(),
        places=places,
        hazards=np.concatenate([[0.0], np.cumsum(steps)]),
    )
