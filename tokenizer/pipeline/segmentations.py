"""What the families share that draw segmentations at random: checks, and texts cut into pre-tokens."""

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import Texts
from tokmill.tokenizer.core.errors import TokenizerError
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.splitting import Pretokens


def check_strength(name: str, value: object, most: float) -> None:
    """Refuse a strength that is not a number from 0 to the greatest one."""
    if isinstance(value, bool) or not (isinstance(value, int | float) and 0 <= value <= most):
        raise TokenizerError(f"sample: {name}={value!r} must be a number from 0 to {most:g}; use e.g. 0.1")


def check_seed(seed: object) -> None:
    """Refuse a seed that is not an integer of 64 bits."""
    if type(seed) is not int or not 0 <= seed < 1 << 64:
        raise TokenizerError(f"sample: seed={seed!r} must be an integer from 0 to 2**64 - 1")


def cut_texts(definition: Definition, texts: Texts) -> tuple[NDArray[np.uint8], NDArray[np.int64], Pretokens]:
    """Return normalized texts as data and offsets, and their pre-tokens; special tokens are ordinary text."""
    if definition.added_tokens:
        raise TokenizerError(
            f"sample: texts such as {definition.added_tokens[0]!r:.80} always become their tokens, for which "
            "segmentations cannot be drawn here; use sampling.sample_batch"
        )
    data, bounds = buffers.pack(texts)
    data, bounds = definition.normalizer.buffers(data, bounds)
    return data, bounds, definition.pre_tokenizer.compile().split(data, bounds)
