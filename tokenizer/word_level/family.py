"""The family of word-level tokenizers, for `pipeline.families`."""

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.closed_vocabulary.family import closed_family
from tokmill.tokenizer.splitting import Pretokens


def cut(data: NDArray[np.uint8], pretokens: Pretokens) -> Pretokens:
    """Return the pre-tokens, since each is looked up whole."""
    del data
    return pretokens


FAMILY = closed_family(
    "word_level", "Word-level", "word", cut, {"huggingface": "tokmill.tokenizer.word_level.huggingface"}
)
