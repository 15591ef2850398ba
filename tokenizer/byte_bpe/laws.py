"""Laws that every encoding is held to, in every run: what can be checked for the price of an addition.

A family of tokenizers says what must hold between a text and its ids whatever the text is (`Law`); its
encoder has that law, and `running` asks it for every chunk of text before the ids go anywhere. What breaks it
is a fault of this package, or of the machine's memory, and never one of the text: nothing is given out.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.kernels.tiling import first_gap, first_gap_of_long_tokens

_MAX_BYTE = 255


class Breach(NamedTuple):
    """Where a law is broken.

    Attributes:
        segment: the first segment that breaks it.
        says: what is wrong there.
    """

    segment: int
    says: str


class Law(Protocol):
    """What a family promises of every encoding."""

    def breach(
        self, ids: NDArray[np.uint32], ends: NDArray[np.int64], bounds: NDArray[np.int64]
    ) -> Breach | None:
        """Find where an encoding breaks the law.

        Args:
            ids: uint32, shape (num_tokens,).
            ends: int64, shape (num_segments + 1,); segment s has the ids `ids[ends[s]:ends[s + 1]]`.
            bounds: int64, shape (num_segments + 1,); and the normalized text between these bytes.
        """
        ...


class Tiling:
    """The law of byte-level vocabularies: the tokens of a text, laid end to end, are as long as it is.

    Ids are below `vocab_size`, and no segment has fewer than no ids. A special token is as long as its name,
    which is what stands in the text.
    """

    def __init__(self, token_offsets: NDArray[np.int64]) -> None:
        """Take where the bytes of each token begin and end: int64, shape (vocab_size + 1,)."""
        lengths = np.diff(token_offsets)
        self._long = bool((lengths > _MAX_BYTE).any())
        self._lengths = lengths.astype(np.int32 if self._long else np.uint8)

    def breach(
        self, ids: NDArray[np.uint32], ends: NDArray[np.int64], bounds: NDArray[np.int64]
    ) -> Breach | None:
        """See `Law`."""
        find = first_gap_of_long_tokens if self._long else first_gap
        segment, vocab_size = find(ids, ends, bounds, self._lengths), self._lengths.shape[0]
        if segment == ends.shape[0] - 1:
            return None if ends[-1] == ids.shape[0] else Breach(segment - 1, "it has ids that belong nowhere")
        first, after = int(ends[segment]), int(ends[segment + 1])
        if not 0 <= first <= after <= ids.shape[0]:
            return Breach(segment, f"its ids go from {first} to {after} of {ids.shape[0]}")
        found = ids[first:after]
        wrong = found[found >= vocab_size]
        if wrong.shape[0]:
            return Breach(segment, f"it has the id {wrong[0]}, but ids are below {vocab_size}")
        size, total = (
            int(bounds[segment + 1] - bounds[segment]),
            int(self._lengths[found].sum(dtype=np.int64)),
        )
        return Breach(segment, f"its {found.shape[0]} tokens have {total} bytes, but its text has {size}")
