"""The family of character-level tokenizers, for `pipeline.families`."""

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.closed_vocabulary.family import closed_family
from tokmill.tokenizer.splitting import Pretokens


def cut(data: NDArray[np.uint8], pretokens: Pretokens) -> Pretokens:
    """Cut pre-tokens into characters: a byte, and the continuation bytes of UTF-8 that follow it.

    So every string of bytes has characters, well-formed or not.
    """
    if not pretokens.starts.shape[0]:
        return pretokens
    first, last = int(pretokens.starts[0]), int(pretokens.ends[-1])
    begins = (data[first:last] & 0xC0) != 0x80
    begins[pretokens.starts - first] = True
    starts = np.flatnonzero(begins) + first
    offsets = np.append(np.searchsorted(starts, pretokens.starts), starts.shape[0])[pretokens.offsets]
    return Pretokens(starts, np.append(starts[1:], last), offsets)


FAMILY = closed_family(
    "character_level",
    "Character-level",
    "character",
    cut,
    {"huggingface": "tokmill.tokenizer.character_level.huggingface"},
)
