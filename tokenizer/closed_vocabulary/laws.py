"""The law of closed vocabularies, checked for every encoding."""

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.kernels.accounting import add_up
from tokmill.tokenizer.pipeline.model import Breach


class Accounting:
    """The known tokens and the unknown strings together have as many bytes as the text.

    Ids are below `vocab_size`, and every id belongs to a segment. A special token is as long
    as its name, as it occurs in the text.
    """

    def __init__(self, token_offsets: NDArray[np.int64], unknown_id: int) -> None:
        """Take the bounds of the tokens' bytes, int64 [vocab_size + 1], and the unknown token's id, or -1."""
        self._lengths = np.diff(token_offsets)
        if unknown_id >= 0:
            self._lengths[unknown_id] = 0  # its text is counted separately

    def breach(
        self,
        ids: NDArray[np.uint32],
        ends: NDArray[np.int64],
        bounds: NDArray[np.int64],
        unknown_bytes: NDArray[np.int64] | None = None,
    ) -> Breach | None:
        """See `pipeline.model.Law`."""
        size = self._lengths.shape[0]
        if ends[0] != 0 or ends[-1] != ids.shape[0] or (np.diff(ends) < 0).any():
            return Breach(0, f"its ids go from {ends[0]} to {ends[-1]} of {ids.shape[0]}")
        if ids.shape[0] and int(ids.max()) >= size:
            place = int(np.argmax(ids >= size))
            segment = int(np.searchsorted(ends, place, side="right")) - 1
            return Breach(segment, f"it has the id {ids[place]}, but ids are below {size}")
        lost = np.zeros(ends.shape[0] - 1, np.int64) if unknown_bytes is None else unknown_bytes
        known = np.empty(ends.shape[0] - 1, np.int64)
        add_up(ids, ends, self._lengths, known)
        wrong = np.flatnonzero((known + lost != np.diff(bounds)) | (lost < 0))
        if not wrong.shape[0]:
            return None
        at = int(wrong[0])
        return Breach(
            at,
            f"its known tokens have {known[at]} bytes and its unknown text {lost[at]}, but its text has "
            f"{bounds[at + 1] - bounds[at]}",
        )
