"""The pieces that training begins with, and that it then prunes; and the text that they are found in.

All characters, and of the substrings (or words) of two characters or more that occur at least twice those
with the greatest score, frequency times characters; of equal scores the smaller string comes first.
Text that is not UTF-8 has code points in place of its bytes, in their order, which are put back into the
pieces at the end, so that the kernels see well-formed text alone.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes, unpack
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts, order_of
from tokmill.tokenizer.core.stopping import raise_if_stopped
from tokmill.tokenizer.core.text import code_points
from tokmill.tokenizer.kernels.sorting import (
    NUM_BUCKETS,
    Stack,
    Substrings,
    list_substrings,
    shared_prefixes,
)
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.merging.trainer import learn_merges
from tokmill.tokenizer.reference.unigram import characters

_SURROGATES = 0xD800, 0x800
_NUM_CODE_POINTS = 0x110000


@dataclass(frozen=True)
class TrainingText:
    """Distinct pre-tokens in order of their bytes, well-formed, and each counted at least once.

    Attributes:
        data: uint8, the pre-tokens.
        offsets: int64, shape (num_pretokens + 1,).
        counts: float64, shape (num_pretokens,), how often each occurs.
        alphabet: the characters, in order.
        frequencies: float64, shape (num_characters,), how often each character occurs.
        spelling: the bytes of each character of text that is not UTF-8; empty for UTF-8.
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    counts: NDArray[np.float64]
    alphabet: list[bytes]
    frequencies: NDArray[np.float64]
    spelling: Mapping[str, bytes]

    def spelled(self, piece: bytes) -> bytes:
        """Return the bytes that a piece of this text stands for."""
        return b"".join(self.spelling[character] for character in piece.decode()) if self.spelling else piece


def prepare(counts: PretokenCounts, unit: int, coverage: float, forbidden: Collection[bytes]) -> TrainingText:
    """Prepare counts for training."""
    some = np.flatnonzero((counts.counts > 0) & (np.diff(counts.offsets) > 0))
    strings = unpack(counts.data, counts.offsets) if some.shape[0] < len(counts) else None
    if strings is not None:
        counts = _packed([strings[i] for i in some], counts.counts[some])
    spelling = _spelling(counts)
    if spelling:
        codes = {character: code.encode() for code, character in spelling.items()}
        rewritten = [
            b"".join(map(codes.__getitem__, characters(s))) for s in unpack(counts.data, counts.offsets)
        ]
        counts = _packed(rewritten, counts.counts)
    counts = PretokenCounts.sorted(counts.data, counts.offsets, counts.counts)
    return _covered(counts, unit, coverage, forbidden, spelling)


def _packed(strings: list[bytes], counts: NDArray[np.uint64]) -> PretokenCounts:
    return PretokenCounts(*pack_bytes(strings), counts)


def _spelling(counts: PretokenCounts) -> dict[str, bytes]:
    """Return code points for the characters of text that is not UTF-8; empty if it is."""
    first = counts.data[counts.offsets[:-1]] if len(counts) else counts.data[:0]
    try:
        counts.data.tobytes().decode()
        if not (first & 0xC0 == 0x80).any():
            return {}
    except UnicodeDecodeError:
        pass
    found = sorted({c for pretoken in unpack(counts.data, counts.offsets) for c in characters(pretoken)})
    start, size = _SURROGATES
    codes = (code if code < start else code + size for code in range(len(found)))
    return {chr(code): character for code, character in zip(codes, found, strict=True)}


def _covered(
    counts: PretokenCounts,
    unit: int,
    coverage: float,
    forbidden: Collection[bytes],
    spelling: Mapping[str, bytes],
) -> TrainingText:
    """Choose the alphabet, and cut pre-tokens at all other characters."""
    starts = np.flatnonzero(counts.data & 0xC0 != 0x80)
    codes = code_points(counts.data, starts)
    words = np.searchsorted(counts.offsets, starts, side="right") - 1
    weights = (counts.counts.astype(np.float64) / unit)[words]
    frequencies = np.bincount(codes, weights, _NUM_CODE_POINTS).astype(np.float64, copy=False)
    kept = _chosen(frequencies, coverage)
    for code in np.flatnonzero(kept):
        character = chr(code)
        kept[code] = spelling.get(character, character.encode()) not in forbidden
    if not kept[codes].all():
        counts = _cut(counts, starts, words, kept[codes])
    alphabet = np.flatnonzero(kept)
    return TrainingText(
        counts.data,
        counts.offsets,
        counts.counts.astype(np.float64) / unit,
        [chr(code).encode() for code in alphabet],
        frequencies[alphabet],
        spelling,
    )


def _chosen(frequencies: NDArray[np.float64], coverage: float) -> NDArray[np.bool_]:
    """Return which code points are needed to cover a part of the text."""
    order = np.argsort(-frequencies, kind="stable")[: np.count_nonzero(frequencies)]
    reached = np.cumsum(frequencies[order])
    number = order.shape[0]
    if coverage < 1 and number:
        number = int(np.searchsorted(reached, coverage * reached[-1])) + 1
    chosen = np.zeros(frequencies.shape[0], np.bool_)
    chosen[order[:number]] = True
    return chosen


def _cut(
    counts: PretokenCounts, starts: NDArray[np.int64], words: NDArray[np.int64], kept: NDArray[np.bool_]
) -> PretokenCounts:
    """Return the longest parts of pre-tokens that have kept characters alone, with their counts."""
    ends = np.append(starts[1:], counts.data.shape[0])
    same = np.append(False, words[1:] == words[:-1])
    begins = kept & ~(same & np.append(False, kept[:-1]))
    stops = kept & ~np.append(same[1:] & kept[1:], False)
    data = counts.data.tobytes()
    parts = [data[a:b] for a, b in zip(starts[begins].tolist(), ends[stops].tolist(), strict=True)]
    cut = _packed(parts, counts.counts[words[begins]])
    return PretokenCounts.sorted(cut.data, cut.offsets, cut.counts)


_TWICE = 2.0
_NO_LIMIT = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Seeds:
    """Pieces in order of their bytes.

    Attributes:
        strings: their bytes.
        scores: float64, shape (num_pieces,): frequency times characters.
        characters: bool, shape (num_pieces,): whether a piece is one character.
    """

    strings: list[bytes]
    scores: NDArray[np.float64]
    characters: NDArray[np.bool_]


@dataclass(frozen=True)
class SeedRules:
    """Which substrings may be seeds.

    Attributes:
        source: `substrings`, `words` or `bpe`.
        number: how many are taken, beside the characters.
        least: the least frequency.
        longest: the most characters.
        max_bytes: the most bytes; characters may have more.
        forbidden: strings that are not taken.
        allows: whether a text may be a seed; None if all may be.
        unit: what one occurrence counts in counts that are integers.
    """

    source: str
    number: int
    least: float
    longest: int
    max_bytes: int
    forbidden: Collection[bytes] = ()
    allows: Callable[[str], bool] | None = None
    unit: int = 1

    def takes(self, spelled: bytes) -> bool:
        """Whether a string may be a seed."""
        if spelled in self.forbidden or len(spelled) > self.max_bytes:
            return False
        return self.allows is None or self.allows(spelled.decode())


def find_seeds(text: TrainingText, rules: SeedRules) -> Seeds:
    """Choose the seeds of a text."""
    find = {"words": _words, "bpe": _merged, "substrings": _substrings}[rules.source]
    found = {} if not text.alphabet else find(text, rules)
    scores = dict(zip(text.alphabet, text.frequencies.tolist(), strict=True)) | found
    strings = sorted(scores)
    alphabet = set(text.alphabet)
    return Seeds(
        strings,
        np.array([scores[string] for string in strings], np.float64),
        np.array([string in alphabet for string in strings], np.bool_),
    )


def _words(text: TrainingText, rules: SeedRules) -> dict[bytes, float]:
    """Return the best pre-tokens with their scores."""
    begins = text.data & 0xC0 != 0x80
    sizes = np.add.reduceat(begins, text.offsets[:-1], dtype=np.int64)
    most = _NO_LIMIT if text.spelling else rules.max_bytes
    allowed = (sizes > 1) & (sizes <= rules.longest) & (np.diff(text.offsets) <= most)
    some = np.flatnonzero(allowed & (text.counts >= max(rules.least, _TWICE)))
    return _best(
        text, rules, text.offsets[:-1][some], np.diff(text.offsets)[some], (text.counts * sizes)[some]
    )


def _merged(text: TrainingText, rules: SeedRules) -> dict[bytes, float]:
    """Return the pieces that BPE makes of the text, with their scores as substrings."""
    counts = np.rint(text.counts * rules.unit).astype(np.uint64)
    joins = MergeRules(
        tie_break=None,
        min_frequency=math.ceil(max(rules.least, _TWICE) * rules.unit),
        shorter_first=True,
        allows=lambda piece: len(piece.decode()) <= rules.longest and rules.takes(text.spelled(piece)),
    )
    words = PretokenCounts(text.data, text.offsets, counts)
    pieces = learn_merges(words, len(text.alphabet) + rules.number, joins).pieces[len(text.alphabet) :]
    starts, ends, order, weights = _suffixes(text, rules)
    sums, data = np.concatenate([np.zeros(1), np.cumsum(weights[order])]), text.data.tobytes()
    places = list(zip(starts[order].tolist(), ends[order].tolist(), strict=True))
    found: dict[bytes, float] = {}
    for piece in pieces:
        size = len(piece)

        def beginning(place: tuple[int, int], size: int = size) -> bytes:
            return data[place[0] : min(place[0] + size, place[1])]

        first = bisect_left(places, piece, key=beginning)
        after = bisect_right(places, piece, lo=first, key=beginning)
        found[piece] = float(sums[after] - sums[first]) * len(piece.decode())
    return found


def _suffixes(
    text: TrainingText, rules: SeedRules
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return the bounds of the longest piece at each character, their order, and how often each occurs."""
    starts = np.flatnonzero(text.data & 0xC0 != 0x80)
    words = np.searchsorted(text.offsets, starts, side="right") - 1
    ends = _ends(text, starts, text.offsets[words + 1], rules)
    order, _ = order_of(text.data, starts, ends)
    return starts, ends, order, text.counts[words]


def _substrings(text: TrainingText, rules: SeedRules) -> dict[bytes, float]:
    """Return the best substrings with their scores."""
    starts, ends, order, weights = _suffixes(text, rules)
    shared = np.empty(starts.shape[0], np.int64)
    shared_prefixes(text.data, starts, ends, order, shared)
    given = text.data, starts, ends, order, shared, weights, max(rules.least, _TWICE)
    room = int((ends - starts).max()) + 2
    scratch = Stack(*np.empty((2, room), np.int64)), np.empty(room, np.float64)
    histogram, none = np.zeros(NUM_BUCKETS, np.int64), np.empty(0, np.int64)
    list_substrings(*given, NUM_BUCKETS, *scratch, histogram, Substrings(none, none), np.empty(0, np.float64))
    raise_if_stopped()
    above = np.cumsum(histogram[::-1])[::-1]
    enough = np.flatnonzero(above >= rules.number + len(rules.forbidden))
    filtered = bool(text.spelling) or rules.allows is not None
    least_bucket = int(enough[-1]) if enough.shape[0] and not filtered else 0
    firsts, lengths = np.empty((2, int(above[least_bucket])), np.int64)
    scores = np.empty(firsts.shape[0], np.float64)
    list_substrings(*given, least_bucket, *scratch, histogram, Substrings(firsts, lengths), scores)
    best = np.lexsort((lengths, firsts, -scores))
    return _best(text, rules, starts[order[firsts[best]]], lengths[best], scores[best])


def _ends(
    text: TrainingText, starts: NDArray[np.int64], ends: NDArray[np.int64], rules: SeedRules
) -> NDArray[np.int64]:
    """Return where the longest piece from each character may end."""
    cuts = np.append(starts, ends[-1:])
    far = cuts[np.minimum(np.arange(starts.shape[0]) + rules.longest, starts.shape[0])]
    if text.spelling:  # whose characters have other lengths
        return np.minimum(far, ends)
    near = cuts[np.searchsorted(cuts, np.minimum(starts + rules.max_bytes, cuts[-1]), side="right") - 1]
    least: NDArray[np.int64] = np.minimum(np.minimum(far, near), ends)
    return least


def _best(
    text: TrainingText,
    rules: SeedRules,
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    scores: NDArray[np.float64],
) -> dict[bytes, float]:
    """Return the strings of the greatest scores; the first of equal ones."""
    found: dict[bytes, float] = {}
    for i in np.argsort(-scores, kind="stable"):
        if len(found) == rules.number:
            break
        string = text.data[starts[i] : starts[i] + lengths[i]].tobytes()
        spelled = text.spelled(string)
        if rules.takes(spelled):
            found[string] = float(scores[i])
    return found
