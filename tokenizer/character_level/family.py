"""Character-level tokenizers as a family: what `pipeline.families` finds."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.closed_vocabulary.model import UNKNOWN, ClosedModel
from tokmill.tokenizer.closed_vocabulary.training import ClosedTraining
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.options import ModelOptions
from tokmill.tokenizer.splitting import Pretokens

NAME = "character_level"


def cut(data: NDArray[np.uint8], pretokens: Pretokens) -> Pretokens:
    """Cut pre-tokens into characters: a byte, and the continuation bytes of UTF-8 that follow it.

    So every string of bytes has its characters, well-formed or not.
    """
    if not pretokens.starts.shape[0]:
        return pretokens
    first, last = int(pretokens.starts[0]), int(pretokens.ends[-1])
    begins = (data[first:last] & 0xC0) != 0x80
    begins[pretokens.starts - first] = True
    starts = np.flatnonzero(begins) + first
    offsets = np.append(np.searchsorted(starts, pretokens.starts), starts.shape[0])[pretokens.offsets]
    return Pretokens(starts, np.append(starts[1:], last), offsets)


def model_of(vocabulary: Vocabulary, unknown_token: str = UNKNOWN) -> ClosedModel:
    """Make a model of a vocabulary."""
    return ClosedModel(NAME, "character", cut, vocabulary, unknown_token)


def from_spec(vocabulary: Vocabulary, spec: Mapping[str, Any]) -> ClosedModel:
    """Make a model of a vocabulary and of what `ClosedModel.spec` gave."""
    return model_of(vocabulary, spec["unknown_token"])


def trainer(counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> ClosedTraining:
    """Count characters; see `closed_vocabulary.training`."""
    return ClosedTraining(model_of, cut, counts, options, vocab_sizes)


_FORMATS = {"huggingface": "tokmill.tokenizer.character_level.huggingface"}

FAMILY = Family(NAME, "Character-level", "characters", from_spec, trainer, _FORMATS)
