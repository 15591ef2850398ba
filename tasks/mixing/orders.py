"""The order of each source's documents: shuffled, or by the curriculum.

`Paced` draws at random among the eligible documents, which a competence function determines
(`tasks.kernels.drawing`). If a source is drawn k times in all (rounded up), each document has k copies in the
draw, spread over the time from the document's release to the end. So no document is drawn more than k times,
and while all documents are eligible, none is drawn again before all have been drawn.

`Sorted` goes from the easiest document to the hardest in each epoch. It gives the same documents as a source
without a curriculum, in another order.

Laws. A document is only drawn after its release. Both orders are permutations of k copies of each document,
ended where the source has given enough tokens. Memory is bounded.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.formats.encoded import EncodedManifest, ScoredShard, components_of
from tokmill.tasks.kernels.drawing import EXP, LINEAR, SQRT, STEP, Course, Rule, draw_times
from tokmill.tasks.kernels.sampling import Arrivals, Waiting, hand_out
from tokmill.tasks.mixing.curves import Competence, Curves
from tokmill.tasks.mixing.difficulty import Difficulty, Measure, Scores
from tokmill.tasks.mixing.draw import Drawn, Order, Stop
from tokmill.tasks.mixing.lengths import SourceLengths, Standing
from tokmill.tasks.mixing.params import CurriculumParams, MixParams
from tokmill.tasks.mixing.permutation import Key, permutation_key
from tokmill.tasks.mixing.quotas import Asked
from tokmill.tasks.mixing.shuffled import DOCUMENT, Shuffled, check_epochs, document_keys, num_epochs
from tokmill.tasks.mixing.sorting import BLOCK, Rows, Scratch, sorted_rows

_TWO_SIDED = ("compression",)
_RACER = np.dtype(
    [
        ("key", "<u8"),
        ("shard", "<u4"),
        ("document", "<u4"),
        ("num_tokens", "<u4"),
        ("epoch", "<u2"),
        ("release", "<f8"),
    ]
)
_PLACED = np.dtype([*DOCUMENT.descr, ("place", "<u8")])
_KINDS = {"linear": LINEAR, "sqrt": SQRT, "exp": EXP, "step": STEP}


@dataclass(frozen=True)
class ScoreShards:
    """The scores of all shards.

    Attributes:
        paths: measure → source → directories of the source's shards, in order.
    """

    paths: Mapping[str, Mapping[str, Sequence[Path]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        manifest: EncodedManifest,
        rules: CurriculumParams | None,
        scores: Mapping[str, Sequence[Path]],
    ) -> "ScoreShards":
        """Group scores by source."""
        chosen = [entry for entry in manifest.sources if rules and rules.has(entry.source)]
        number = sum(len(entry.shards) for entry in chosen)
        paths: dict[str, dict[str, Sequence[Path]]] = {}
        for measure, given in scores.items():
            if len(given) != number:
                raise MixingError(
                    f"mix: {len(given)} shards have scores of '{measure}', but {number} are mixed by it; "
                    "score every shard of the sources that have a curriculum"
                )
            left = iter(given)
            paths[measure] = {entry.source: [next(left) for _ in entry.shards] for entry in chosen}
        return cls(paths)

    def openers(self, measure: str, source: str, component: str) -> list[Scores]:
        """Functions that open the scores of each of a source's shards."""
        if measure not in self.paths:
            raise MixingError(
                f"mix: curriculum.difficulty names '{measure}', but no scores of it were given; score the "
                "encoding first"
            )
        return [_opener(path, measure, component) for path in self.paths[measure][source]]


def _opener(path: Path, measure: str, component: str) -> Scores:
    return lambda: ScoredShard.open(path, measure).component(component)


def orders(
    params: MixParams,
    sources: Mapping[str, SourceLengths],
    settled: Asked,
    scores: ScoreShards,
    standings: Mapping[str, Standing],
    scratch: Scratch,
) -> dict[str, Order]:
    """The order of each source."""
    found: dict[str, Order] = {}
    shifts = settled.history.shifts(settled.curves)
    for source, lengths in sources.items():
        rules, least = params.curriculum, standings[source].least
        if rules is None or not rules.has(source):
            found[source] = Shuffled(source, lengths, params.seed, scratch, least)
            continue
        measures = list(_measures(rules, source, scores))
        difficulty = Difficulty(source, lengths, measures, params.seed, scratch)
        if rules.order == "easy_to_hard":
            found[source] = Sorted(difficulty, least)
        else:
            quota = settled.quotas[source]
            begin = quota.given_tokens + float(shifts[source])
            found[source] = Paced(difficulty, rules.function(), settled.curves, quota.copies, begin)
    return found


def _measures(rules: CurriculumParams, source: str, scores: ScoreShards) -> Iterator[Measure]:
    for name, weight in rules.difficulty.items():
        if name == "length":
            yield Measure(name, weight)
            continue
        components = components_of(name)
        for component in components:
            openers = scores.openers(name, source, component)
            yield Measure(name, weight / len(components), openers, component in _TWO_SIDED)


@dataclass(frozen=True)
class Paced:
    """One source's documents, paced by a competence function."""

    difficulty: Difficulty  # yields the documents from the easiest to the hardest
    competence: Competence  # decides when documents become eligible
    curves: Curves  # the request over the run
    copies: int  # how often each document may be drawn
    begin: float = 0.0  # tokens that the source gave before this mixture, as a position on its curve

    def blocks(self, stop: Stop) -> Iterator[Drawn]:
        """Yield documents until `stop` is reached."""
        check_epochs(self.difficulty.source, self.copies)
        if stop.is_reached:
            return iter(())
        racers = sorted_rows(self._racers(), self.difficulty.scratch)
        return stop.applied(_handed_out(racers, self.begin))

    def _racers(self) -> Iterator[Rows]:
        """Every copy of every document that ever becomes eligible; the key is the time of its draw."""
        rule, course = self._rule(), self._course()
        before, whole = 0, self.difficulty.lengths.num_tokens
        for rows in self.difficulty.ascending():
            ends = before + np.cumsum(rows["num_tokens"], dtype=np.int64)
            parts = (ends - rows["num_tokens"]) / whole
            before = int(ends[-1])
            for copy in range(self.copies):
                yield self._copies(rows, parts, copy, rule, course)

    def _copies(self, rows: Rows, parts: NDArray[np.float64], copy: int, rule: Rule, course: Course) -> Rows:
        key = permutation_key("lot", self.difficulty.seed, self.difficulty.source, copy)
        releases, times = np.empty(len(rows)), np.empty(len(rows))
        draw_times(parts, document_keys(rows, key), copy, self.copies, rule, course, releases, times)
        racers = np.empty(len(rows), dtype=_RACER)
        for name in ("shard", "document", "num_tokens"):
            racers[name] = rows[name]
        racers["epoch"], racers["release"] = copy, releases
        racers["key"] = times.view(np.uint64)  # non-negative doubles have the order of their bit patterns
        return racers[np.isfinite(releases) & (rows["consumed"] <= copy)]

    def _rule(self) -> Rule:
        known = self.competence
        return Rule(
            kind=_KINDS[known.kind],
            start=float(known.start),
            until=float(known.until),
            stairs=known.stairs,
            most=float(known.eligible(known.until)),
        )

    def _course(self) -> Course:
        """The request of the source, and the cumulative chances of its documents over its tokens."""
        curve, size = self.curves.arrays, len(self.curves.sources)
        own = self.curves.sources.index(self.difficulty.source)
        eligible, lengths = self.competence.table, self.difficulty.lengths
        positions = np.linspace(0, 1, len(eligible)) * float(self.curves.end)
        places = self.curves.doubles(own, positions)
        left = self.copies * eligible * lengths.num_tokens - places
        rates = 1 / np.maximum(left, lengths.num_tokens / max(1, lengths.num_documents))
        steps = np.diff(places) * (rates[1:] + rates[:-1]) / 2
        return Course(
            knots=curve.knots,
            firsts=curve.firsts[own::size].copy(),
            lasts=curve.lasts[own::size].copy(),
            sums=curve.sums[own::size].copy(),
            places=places,
            hazards=np.concatenate([[0.0], np.cumsum(steps)]),
        )


def _handed_out(racers: Iterator[Rows], begin: float) -> Iterator[Drawn]:
    """Yield racers in order of their draw, each once it is eligible; `begin` is the initial time."""
    urn = _Urn(begin)
    for rows in racers:
        yield from urn.passed(rows, over=False)
    yield from urn.passed(np.empty(0, dtype=_RACER), over=True)


class _Urn:
    """Runs `hand_out` over blocks of racers, and keeps the waiting ones from block to block."""

    def __init__(self, begin: float, room: int = 1 << 12) -> None:
        self._waiting = _waiting(room)
        self._kept = np.empty(0, dtype=_RACER)
        self._kept_numbers = np.empty(0, dtype=np.int64)
        self._now = np.full(1, begin)
        self._first = 0

    def passed(self, rows: Rows, *, over: bool) -> Iterator[Drawn]:
        """Yield the racers drawn while these arrive; with `over`, also all that still wait."""
        arrivals = Arrivals(
            rows["num_tokens"].copy(),
            rows["release"].copy(),
            rows["key"].copy().view(np.float64),
            self._first,
        )
        taken, out = np.zeros(1, dtype=np.int64), np.empty(BLOCK, dtype=np.int64)
        while True:
            number = hand_out(arrivals, over, self._waiting, taken, self._now, out)
            if number:
                yield self._drawn(rows, out[:number])
            elif taken[0] < len(rows):
                self._waiting = _doubled(self._waiting)
            else:
                break
        self._keep(rows)

    def _drawn(self, rows: Rows, numbers: NDArray[np.int64]) -> Drawn:
        found = self._found(rows, numbers)
        documents = np.empty(len(found), dtype=DOCUMENT)
        for name in ("shard", "document", "num_tokens"):
            documents[name] = found[name]
        return Drawn(documents, np.ascontiguousarray(found["epoch"]))

    def _found(self, rows: Rows, numbers: NDArray[np.int64]) -> Rows:
        """The racers with these numbers, from the arriving block or from earlier ones."""
        found = np.empty(len(numbers), dtype=_RACER)
        new = numbers >= self._first
        found[new] = rows[numbers[new] - self._first]
        found[~new] = self._kept[np.searchsorted(self._kept_numbers, numbers[~new])]
        return found

    def _keep(self, rows: Rows) -> None:
        """Keep the racers that still wait for their draw."""
        slots = self._waiting.early[: self._waiting.sizes[0]]
        numbers = np.sort(self._waiting.rows[slots])
        self._kept, self._kept_numbers = self._found(rows, numbers), numbers
        self._first += len(rows)


def _waiting(room: int) -> Waiting:
    """An empty waiting room for `room` racers."""
    return Waiting(
        rows=np.empty(room, dtype=np.int64),
        lengths=np.empty(room),
        releases=np.empty(room),
        times=np.empty(room),
        early=np.empty(room, dtype=np.int64),
        ready=np.empty(room, dtype=np.int64),
        free=np.arange(room, dtype=np.int64),
        sizes=np.zeros(2, dtype=np.int64),
    )


def _doubled(full: Waiting) -> Waiting:
    """A waiting room of twice the size with the same racers, all of whom still wait."""
    room = len(full.rows)
    larger = _waiting(2 * room)
    for name in ("rows", "lengths", "releases", "times", "early"):
        getattr(larger, name)[:room] = getattr(full, name)
    larger.free[:room] = np.arange(room, 2 * room)
    larger.sizes[:] = full.sizes
    return larger


@dataclass(frozen=True)
class Sorted:
    """One source's documents, from the easiest to the hardest in each epoch."""

    difficulty: Difficulty  # yields the documents from the easiest to the hardest
    first_epoch: int = 0  # the fewest times that any document was consumed before

    def blocks(self, stop: Stop) -> Iterator[Drawn]:
        """Yield documents until `stop` is reached."""
        lengths = self.difficulty.lengths
        check_epochs(self.difficulty.source, num_epochs(stop, lengths))
        epoch = self.first_epoch
        while not stop.is_reached:
            left = sum(
                int(block.lengths[block.consumed <= epoch].sum())
                for block in lengths.blocks(self.difficulty.source)
            )
            whole = stop.num_tokens + left <= stop.quota
            rows = self._whole(epoch, stop) if whole else self._part(epoch, stop)
            yield from (Drawn(block, np.full(len(block), epoch, dtype=np.uint16)) for block in rows)
            epoch += 1

    def _whole(self, epoch: int, stop: Stop) -> Iterator[Rows]:
        """Every document that was consumed at most `epoch` times before."""
        for drawn in stop.applied(map(_without_epochs, self._ascending(epoch))):
            yield drawn.rows

    def _ascending(self, epoch: int) -> Iterator[Rows]:
        return (rows[rows["consumed"] <= epoch] for rows in self.difficulty.ascending())

    def _part(self, epoch: int, stop: Stop) -> Iterator[Rows]:
        """The documents that a source without a curriculum would draw up to its quota, the easiest first."""
        key = permutation_key("mix", self.difficulty.seed, self.difficulty.source, epoch)
        shuffled = sorted_rows(self._placed(key, epoch), self.difficulty.scratch)
        chosen = stop.applied(map(_without_epochs, shuffled))
        yield from sorted_rows((_by_place(drawn.rows) for drawn in chosen), self.difficulty.scratch)

    def _placed(self, key: Key, epoch: int) -> Iterator[Rows]:
        """The documents with their position by difficulty; the keys are those of a shuffled source."""
        place = 0
        for rows in self._ascending(epoch):
            placed = np.empty(len(rows), dtype=_PLACED)
            for name in ("shard", "document", "num_tokens"):
                placed[name] = rows[name]
            placed["key"] = document_keys(rows, key)
            placed["place"] = np.arange(place, place + len(rows))
            place += len(rows)
            yield placed


def _without_epochs(rows: Rows) -> Drawn:
    return Drawn(rows, np.zeros(len(rows), dtype=np.uint16))


def _by_place(placed: Rows) -> Rows:
    rows = np.empty(len(placed), dtype=DOCUMENT)
    for name in ("shard", "document", "num_tokens"):
        rows[name] = placed[name]
    rows["key"] = placed["place"]
    return rows
