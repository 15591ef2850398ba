"""The law of byte-level BPE, checked for every encoding."""

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.kernels.tiling import first_gap, first_gap_of_long_tokens
from tokmill.tokenizer.pipeline.model import Breach

_MAX_BYTE = 255


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
        self,
        ids: NDArray[np.uint32],
        ends: NDArray[np.int64],
        bounds: NDArray[np.int64],
        unknown_bytes: NDArray[np.int64] | None = None,
    ) -> Breach | None:
        """See `pipeline.model.Law`; no text is unknown here, so `unknown_bytes` is ignored."""
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
