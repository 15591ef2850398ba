"""Special and added tokens that take the white space beside them, such as the `<mask>` of RoBERTa and XLM-R.

The white space belongs to the token: it is no text, and is left out before anything else happens to the text.
Law: equal to `lstrip` and `rstrip` of Hugging Face's added tokens.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.components.normalizer_steps import WHITE_SPACE
from tokmill.tokenizer.components.specials import Segments
from tokmill.tokenizer.core.errors import VocabularyError

Side: TypeAlias = Literal["left", "right", "both"]


def check_sides(sides: Mapping[str, Side], tokens: Mapping[str, int]) -> None:
    """Check which tokens take white space, and on which sides."""
    for name, side in sides.items():
        if name not in tokens or side not in get_args(Side):
            raise VocabularyError(
                f"vocabulary: absorbing[{name!r:.80}]={side!r:.80} must name a special or added "
                "token, and 'left', 'right' or 'both'"
            )


def absorb(
    data: NDArray[np.uint8], segments: Segments, sides: Mapping[int, Side]
) -> tuple[NDArray[np.uint8], Segments]:
    """Leave out the white space that tokens take; segments may become empty."""
    kinds, bounds = segments.kinds, segments.bounds
    taking = np.flatnonzero(np.isin(kinds, [*sides])).tolist() if sides else []
    if not taking:
        return data, segments
    stays, first = np.ones(data.shape[0], np.bool_), segments.first
    for i in taking:
        side = sides[int(kinds[i])]
        if side != "right" and not first[i] and kinds[i - 1] < 0:
            begin, end = int(bounds[i - 1]), int(bounds[i])
            stays[end - _size(data[begin:end], right=True) : end] = False
        if side != "left" and i + 1 < kinds.shape[0] and not first[i + 1] and kinds[i + 1] < 0:
            begin, end = int(bounds[i + 1]), int(bounds[i + 2])
            stays[begin : begin + _size(data[begin:end], right=False)] = False
    left = np.concatenate([np.zeros(1, np.int64), np.cumsum(stays)])
    return data[stays], Segments(left[bounds], kinds, segments.documents)


def _size(data: NDArray[np.uint8], *, right: bool) -> int:
    """Return how many bytes of white space a text ends with, or begins with."""
    text = data.tobytes().decode("utf-8", "surrogateescape")
    stripped = text.rstrip(WHITE_SPACE) if right else text.lstrip(WHITE_SPACE)
    return len(data) - len(stripped.encode("utf-8", "surrogateescape"))
