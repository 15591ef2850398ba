"""Counting pre-tokens: what BPE training starts from.

Laws: counts are exact u64; the result is sorted by bytes, so it depends neither on the order of the text nor on how
it was cut into batches; merging counts is associative and commutative; special tokens are cut out first and never
counted. Memory grows with distinct pre-tokens, not with the text.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenizer import buffers, normalizers
from tokenizer.specials import cut
from tokenizer.splitting import Splitter


@dataclass(frozen=True, slots=True, eq=False)
class PretokenCounts:
    """Distinct pre-tokens and how often each occurs.

    Attributes:
        data: uint8, shape (num_bytes,); the pre-tokens, sorted by bytes, one after the other.
        offsets: int64, shape (num_pretokens + 1,).
        counts: uint64, shape (num_pretokens,).
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    counts: NDArray[np.uint64]

    def __len__(self) -> int:
        return self.counts.shape[0]

    def to_dict(self) -> dict[bytes, int]:
        """Return counts by pre-token, in order."""
        return dict(zip(buffers.unpack(self.data, self.offsets), self.counts.tolist(), strict=True))

    @classmethod
    def from_dict(cls, counts: Mapping[bytes, int]) -> Self:
        """Sort counts that come in any order."""
        words = sorted(counts)
        data, offsets = buffers.pack_bytes(words)
        return cls(data, offsets, np.array([counts[word] for word in words], np.uint64))

    @classmethod
    def merge(cls, many: Iterable[Self]) -> Self:
        """Add counts up."""
        total: Counter[bytes] = Counter()
        for counts in many:
            total.update(counts.to_dict())
        return cls.from_dict(total)


def count_pretokens(
    data: ArrayLike,
    offsets: ArrayLike,
    splitter: Splitter,
    specials: Sequence[str] = (),
    normalizer: str | None = None,
) -> PretokenCounts:
    """Count the pre-tokens of documents.

    Args:
        data: uint8, shape (num_bytes,); UTF-8.
        offsets: integers, shape (num_documents + 1,).
        splitter: the compiled split pattern.
        specials: special tokens, which are cut out first.
        normalizer: what is done to the text between them; see `normalizers`.
    """
    text, cuts = buffers.checked(data, offsets)
    segments = cut(text, cuts, {name: i for i, name in enumerate(specials)})
    text, bounds = normalizers.normalize_pieces(normalizer, text, segments.bounds, segments.kinds >= 0)
    found = splitter.split(text, bounds)
    whole = text.tobytes()
    total: Counter[bytes] = Counter()
    for segment in np.flatnonzero(segments.kinds < 0).tolist():
        for k in range(found.offsets[segment], found.offsets[segment + 1]):
            total[whole[found.starts[k] : found.ends[k]]] += 1
    return PretokenCounts.from_dict(total)
