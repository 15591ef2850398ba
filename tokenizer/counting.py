"""Count pre-tokens, the input of training.

Laws: counts are exact u64, sorted by bytes, so they depend neither on the order of the text nor on batches or
threads; merging is associative and commutative; special tokens are cut out first and never counted. Memory
grows with distinct pre-tokens. `FirstSeenCounter` keeps the order in which pre-tokens first occur.
"""

import itertools
import queue
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokmill.tokenizer.components import normalizers
from tokmill.tokenizer.components.specials import chunks, cut, whole
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import Text, Texts, is_arrow
from tokmill.tokenizer.core.errors import TokenizerError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.stopping import raise_if_stopped, slices, within_limit
from tokmill.tokenizer.jit.arrays import zero_pages
from tokmill.tokenizer.kernels.counting import (
    ARENA,
    LONG,
    SHORT,
    count_strings,
    empty_tables,
    list_counts,
    move_short,
    move_slots,
    read_counts,
)
from tokmill.tokenizer.kernels.sorting import gather_strings
from tokmill.tokenizer.kernels.words import MAX_SHORT
from tokmill.tokenizer.pipeline.model import TextNormalizer
from tokmill.tokenizer.splitting import Pretokens
from tokmill.tokenizer.splitting.splitter import words_of

Buffers: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.int64]]
Part = TypeVar("Part")
Result = TypeVar("Result")
Number = TypeVar("Number", bound=np.generic)

_CHARS_A_BATCH = 1 << 18
_BYTES_A_PART = 1 << 20
_STRINGS_A_SLICE = 1 << 22
_ONCE, _NOTHING = np.zeros(0, np.uint64), np.zeros(0, np.int64)


class Cuts(Protocol):
    """Cuts documents into pre-tokens; `splitting.Splitter` is one."""

    def split(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Pretokens:
        """Cut documents into pre-tokens; see `Splitter.split`."""
        ...


class PretokenCounter:
    """Counts pre-tokens batch by batch; not to be shared between threads."""

    def __init__(self) -> None:
        self._tables = empty_tables(1 << 10, 1 << 8, 1 << 14)

    def __len__(self) -> int:
        return int(self._tables.used[SHORT] + self._tables.used[LONG])

    @property
    def num_bytes(self) -> int:
        """The memory of the counts, in bytes; `take` needs up to twice as much for a moment."""
        return sum(array.nbytes for array in self._tables)

    def add(
        self,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        weights: NDArray[np.uint64] = _ONCE,
    ) -> None:
        """Count the pre-tokens `data[starts[k]:ends[k]]`, each once, or with its weight, at least 1."""
        for done, until in slices(0, starts.shape[0], _STRINGS_A_SLICE):
            strings = starts[:until], ends[:until], weights[:until]
            while (done := self._count(data, *strings, done)) < until:
                self._grow(int(ends[done] - starts[done]))

    def _count(
        self,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        weights: NDArray[np.uint64],
        first: int,
    ) -> int:
        """Count strings from `first` on until there is no room; return the number of the next one."""
        return count_strings(data, starts, ends, weights, first, self._tables, _NOTHING, _NOTHING)

    def add_documents(
        self,
        data: ArrayLike,
        offsets: ArrayLike,
        splitter: Cuts,
        specials: Sequence[str] = (),
        normalizer: str | TextNormalizer | None = None,
    ) -> None:
        """Count the pre-tokens of documents; see `count_buffers`."""
        text, cuts = buffers.checked(data, offsets)
        segments = cut(text, whole(cuts), {name: i for i, name in enumerate(specials)})
        for first, last in chunks(segments.bounds):
            raise_if_stopped()
            bounds, kinds = segments.bounds[first : last + 1], segments.kinds[first:last]
            cleaned, bounds = _normalized(normalizer, text, bounds, kinds >= 0)
            found = splitter.split(cleaned, bounds)
            if (kinds >= 0).any():
                ordinary = np.repeat(kinds < 0, np.diff(found.offsets))
                self.add(cleaned, found.starts[ordinary], found.ends[ordinary])
            else:
                self.add(cleaned, found.starts, found.ends)

    def _grow(self, length: int) -> None:
        """Enlarge the full arrays, so that there is room for one more string of some length."""
        old = self._tables
        if length <= MAX_SHORT:
            self._tables = old._replace(short=zero_pages(2 * old.short.shape[0], np.uint64))
            self._tables.used[SHORT] = 0
            move_short(old.short, self._tables)
        elif old.used[LONG] >= old.entries.shape[0]:
            entries, slots = _twice(old.entries), zero_pages(2 * old.slots.shape[0], np.uint64)
            self._tables = old._replace(entries=entries, slots=slots)
            move_slots(old.slots, slots)
        else:
            self._tables = old._replace(arena=_twice(old.arena, length))

    def counts(self) -> PretokenCounts:
        """Return the counts so far."""
        return PretokenCounts.sorted(*self._listed(), distinct=True)

    def take(self, *, in_order: bool = True) -> PretokenCounts:
        """Return the counts so far, and start again; without `in_order` in any order, which is faster."""
        data, offsets, counts = self._listed()
        self._tables = empty_tables(1 << 10, 1 << 8, 1 << 14)
        if in_order:
            return PretokenCounts.sorted(data, offsets, counts, distinct=True)
        return PretokenCounts(data, offsets, counts)

    def _listed(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint64]]:
        number = len(self)
        room = int(MAX_SHORT * self._tables.used[SHORT] + self._tables.used[ARENA])
        data, offsets = zero_pages(room, np.uint8), zero_pages(number + 1, np.int64)
        counts = zero_pages(number, np.uint64)
        size = list_counts(self._tables, data, offsets, counts)
        return data[:size], offsets, counts


def _normalized(
    normalizer: str | TextNormalizer | None,
    data: NDArray[np.uint8],
    bounds: NDArray[np.int64],
    keep: NDArray[np.bool_],
) -> Buffers:
    if normalizer is None or isinstance(normalizer, str):
        return normalizers.normalize_buffers(normalizer, data, bounds, keep)
    return normalizer.buffers(data, bounds, keep)


def _twice(array: NDArray[Number], least: int = 0) -> NDArray[Number]:
    """Return the same rows in an array of at least twice their size, and twice `least`."""
    larger = zero_pages((2 * max(array.shape[0], least), *array.shape[1:]), array.dtype.type)
    larger[: array.shape[0]] = array
    return larger


def count_buffers(
    data: ArrayLike,
    offsets: ArrayLike,
    splitter: Cuts,
    specials: Sequence[str] = (),
    normalizer: str | TextNormalizer | None = None,
    *,
    num_threads: int = 1,
) -> PretokenCounts:
    """Count the pre-tokens of documents."""
    parts = _parts(*buffers.checked(data, offsets))
    return _count(parts, splitter, specials, normalizer, num_threads=num_threads).take()


def _parts(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Iterator[Buffers]:
    """Divide documents into runs of about the same size."""
    wanted = np.arange(offsets[0], offsets[-1], _BYTES_A_PART)
    edges = np.unique(np.append(np.searchsorted(offsets, wanted), offsets.shape[0] - 1))
    for first, last in itertools.pairwise(edges.tolist()):
        yield data, offsets[first : last + 1]


def count_texts(
    texts: Texts,
    splitter: Cuts,
    specials: Sequence[str] = (),
    normalizer: str | TextNormalizer | None = None,
    *,
    num_threads: int = 1,
    in_order: bool = False,
) -> PretokenCounter:
    """Count the pre-tokens of texts without holding all of them in memory; see `count_buffers`.

    With `in_order` the counter is a `FirstSeenCounter`.
    """
    buffers.check_many(texts)
    parts = _parts(*buffers.pack(texts)) if is_arrow(texts) else _batches(cast(Iterable[Text], texts))
    return _count(parts, splitter, specials, normalizer, num_threads=num_threads, in_order=in_order)


def _count(
    parts: Iterable[Buffers],
    splitter: Cuts,
    specials: Sequence[str],
    normalizer: str | TextNormalizer | None,
    *,
    num_threads: int,
    in_order: bool = False,
) -> PretokenCounter:
    """Count parts by threads as they come, each with a counter of its own, and add the counts up.

    In order, the counts of each part are added as soon as those before it are.
    """
    if num_threads < 1:
        raise TokenizerError(f"count: num_threads={num_threads} must be at least 1; use e.g. 1")
    kind = FirstSeenCounter if in_order else PretokenCounter
    counters = [kind() for _ in range(num_threads)]
    total = kind() if in_order and num_threads > 1 else counters[0]
    if num_threads == 1:
        for part in parts:
            total.add_documents(*part, splitter, specials, normalizer)
        return total
    idle: queue.SimpleQueue[PretokenCounter] = queue.SimpleQueue()
    for counter in counters:
        idle.put(counter)

    def work(part: Buffers) -> PretokenCounts | None:
        counter = idle.get()
        try:
            counter.add_documents(*part, splitter, specials, normalizer)
            return counter.take(in_order=False) if in_order else None
        finally:
            idle.put(counter)

    rest = (counter.take(in_order=False) for counter in counters if counter is not total)
    for found in itertools.chain(in_threads(work, parts, num_threads), rest):
        if found is not None:
            total.add(found.data, found.offsets[:-1], found.offsets[1:], found.counts)
    return total


def in_threads(work: Callable[[Part], Result], parts: Iterable[Part], num_threads: int) -> Iterator[Result]:
    """Yield what is made of parts by threads, in their order; parts are read as they are needed."""
    with ThreadPoolExecutor(num_threads) as pool:
        running: deque[Future[Result]] = deque()
        for part in parts:
            running.append(pool.submit(within_limit(work), part))
            if len(running) > num_threads:  # one part waits, so that no thread does
                yield running.popleft().result()
        for future in running:
            yield future.result()


def _batches(texts: Iterable[Text]) -> Iterator[Buffers]:
    """Gather texts into batches."""
    batch: list[Text] = []
    size = first = 0
    for number, text in enumerate(texts):
        batch.append(text)
        size += len(text) if isinstance(text, str | bytes | bytearray) else 0
        if size >= _CHARS_A_BATCH:
            yield buffers.pack(batch, first)
            batch, size, first = [], 0, number + 1
    yield buffers.pack(batch, first)


class FirstSeenCounter(PretokenCounter):
    """Counts pre-tokens batch by batch; `take(in_order=False)` has them in the order of first places."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: list[Buffers] = []

    def take(self, *, in_order: bool = True) -> PretokenCounts:
        """Return the counts so far, and start again; without `in_order` in the order of first places."""
        found = super().take(in_order=in_order)
        self._seen = []
        return found

    def _count(
        self,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        ends: NDArray[np.int64],
        weights: NDArray[np.uint64],
        first: int,
    ) -> int:
        new, noted = np.empty(starts.shape[0] - first, np.int64), np.zeros(1, np.int64)
        done = count_strings(data, starts, ends, weights, first, self._tables, new, noted)
        if noted[0]:
            self._seen.append(_gathered(data, starts, ends, new[: noted[0]]))
        return done

    def _listed(self) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint64]]:
        data = np.concatenate([np.zeros(0, np.uint8), *(data for data, _ in self._seen)])
        lengths = [np.zeros(1, np.int64), *(np.diff(offsets) for _, offsets in self._seen)]
        offsets, counts = np.cumsum(np.concatenate(lengths)), np.empty(len(self), np.uint64)
        read_counts(data, offsets, self._tables, counts)
        return data, offsets, counts


def _gathered(
    data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], chosen: NDArray[np.int64]
) -> Buffers:
    """Lay some of the strings `data[starts[k]:ends[k]]` one after the other."""
    bounds = np.stack([starts[chosen], ends[chosen]], axis=1)
    out = np.empty(int((bounds[:, 1] - bounds[:, 0]).sum()), np.uint8)
    offsets = np.empty(chosen.shape[0] + 1, np.int64)
    gather_strings(data, bounds.ravel(), np.arange(0, bounds.size, 2), out, offsets)
    return out, offsets


def count_words(counts: PretokenCounts, *, as_met: bool = False) -> PretokenCounts:
    """Count the words of pre-tokens; a word counts as often as the pre-tokens that contain it."""
    starts, ends = counts.offsets[:-1], counts.offsets[1:]
    words = words_of(counts.data, Pretokens(starts, ends, np.arange(starts.shape[0] + 1)))
    weights = np.repeat(counts.counts, np.diff(words.offsets))
    counted = weights > 0
    starts, ends = words.starts[counted], words.ends[counted]
    if as_met:
        return _as_met(counts.data.tobytes(), starts, ends, weights[counted])
    counter = PretokenCounter()
    counter.add(counts.data, starts, ends, weights[counted])
    return counter.take()


def _as_met(
    data: bytes, starts: NDArray[np.int64], ends: NDArray[np.int64], weights: NDArray[np.uint64]
) -> PretokenCounts:
    """Count words in the order in which they come."""
    found = dict[bytes, int]()
    for start, end, weight in zip(starts.tolist(), ends.tolist(), weights.tolist(), strict=True):
        found[data[start:end]] = found.get(data[start:end], 0) + weight
    return PretokenCounts.from_dict(found, in_order=False)
