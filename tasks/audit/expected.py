"""How often a token is to be expected in a text, and hints that it came from one repeated string.

Everything is read from `vocab_tokens` and from occurrences; see `suspects` for what the figures mean.
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Counts = NDArray[np.uint64]
Floats = NDArray[np.float64]
NAME_BITS, DOUBLED_BITS = 8.0, 6.0


@dataclass(frozen=True)
class Merges:
    """The columns of `vocab_tokens` that order tokens, spread over all ids; -1 where there is no id or rank.

    Attributes:
        tokens: the rows.
        ids: int64 [rows].
        rank, left, right: int64 [vocab_size].
    """

    tokens: pa.Table
    ids: NDArray[np.int64]
    rank: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]

    @classmethod
    def of(cls, tokens: pa.Table, size: int) -> "Merges":
        """Read the table; `size` is that of the vocabulary."""
        ids = tokens["token_id"].to_numpy().astype(np.int64)
        spread = []
        for name in ("rank", "left", "right"):
            column = np.full(size, -1, np.int64)
            column[ids] = pc.fill_null(tokens[name].cast(pa.int64()), -1).to_numpy()
            spread.append(column)
        return cls(tokens, ids, *spread)

    @property
    def merged(self) -> NDArray[np.int64]:
        """The ids that merges make, in order of rank."""
        found = np.flatnonzero(self.left >= 0)
        return found[np.argsort(self.rank[found], kind="stable")]


def uses(
    merged: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64], occurrences: Counts
) -> Floats:
    """Return how often each token was made, also inside longer tokens: float64 [vocab_size].

    Args:
        merged: ids that are merged, in order of rank.
        left: int64 [vocab_size], the first part of each.
        right: the second one.
        occurrences: uint64 [vocab_size].
    """
    total = [int(count) for count in occurrences.tolist()]
    for token in merged[::-1].tolist():
        total[left[token]] += total[token]
        total[right[token]] += total[token]
    return np.array(total, np.float64)


def by_training(tokens: pa.Table, ids: NDArray[np.int64], occurrences: Counts) -> Floats:
    """Return what is to be expected if text is like the training text; NaN if that has nothing."""
    counts = np.zeros(len(occurrences), np.float64)
    counts[ids] = pc.fill_null(tokens["num_training"], 0).to_numpy()
    total = counts.sum()
    return counts * (float(occurrences.sum()) / total) if total else np.full(len(counts), np.nan)


def by_rank(rank: NDArray[np.int64], used: Floats) -> Floats:
    """Return what is to be expected by rank: by least squares over the logarithms of used tokens."""
    expected = np.full(len(rank), np.nan)
    seen, ranked = (rank >= 0) & (used > 0), rank >= 0
    x, y = np.log2(rank[seen] + 1.0), np.log2(used[seen])
    spread = float(((x - x.mean()) ** 2).sum()) if len(x) else 0.0
    if spread > 0:
        slope = float(((x - x.mean()) * (y - y.mean())).sum()) / spread
        expected[ranked] = np.exp2(y.mean() + slope * (np.log2(rank[ranked] + 1.0) - x.mean()))
    return expected


def hints(vocabulary: Merges, occurrences: Counts) -> Floats:
    """Return the bits of all hints: float64 [vocab_size]."""
    bits = _repeated(vocabulary)
    merged = vocabulary.merged
    bits[merged[vocabulary.left[merged] == vocabulary.right[merged]]] += DOUBLED_BITS
    named = pc.match_substring_regex(vocabulary.tokens["text"], r"\p{Ll}\p{Lu}")
    bits[vocabulary.ids] += np.where(named.to_numpy(zero_copy_only=False), NAME_BITS, 0.0)
    scripts = np.asarray(vocabulary.tokens["scripts"].to_numpy(zero_copy_only=False), str)
    _, group = np.unique(scripts, return_inverse=True)
    seen = np.bincount(group, occurrences[vocabulary.ids] > 0)
    bits[vocabulary.ids] += np.log2((seen + 0.5) / (np.bincount(group) + 1.0))[group]
    return bits


def _repeated(vocabulary: Merges) -> Floats:
    """Return the bits for merges that follow one another."""
    rank, merged = vocabulary.rank, vocabulary.merged
    far = np.iinfo(np.int64).max // 2
    gap = np.full(len(rank), far, np.int64)
    for parts in (vocabulary.left[merged], vocabulary.right[merged]):
        distance = rank[merged] - rank[parts]
        np.minimum.at(gap, merged, np.where(distance > 0, distance, far))
        np.minimum.at(gap, parts, np.where(distance > 0, distance, far))
    bits = np.log2((np.maximum(rank, 0) + 1.0) / (gap + 1.0))
    return np.where(rank >= 0, np.maximum(bits, 0.0), 0.0)
