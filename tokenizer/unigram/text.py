"""The text of a training: pre-tokens as well-formed UTF-8, cut at characters that get no piece.

Characters of text that is not UTF-8 (`kernels.lattice`) are replaced by code points in the order of their
bytes, and put back into the pieces at the end, so that the kernels see well-formed text alone.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes, unpack
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.text import code_points
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
