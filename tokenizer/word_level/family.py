"""Word-level tokenizers as a family: what `pipeline.families` finds."""

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

NAME = "word_level"


def cut(data: NDArray[np.uint8], pretokens: Pretokens) -> Pretokens:
    """Return the pre-tokens: each is looked up whole."""
    del data
    return pretokens


def model_of(vocabulary: Vocabulary, unknown_token: str = UNKNOWN) -> ClosedModel:
    """Make a model of a vocabulary."""
    return ClosedModel(NAME, "word", cut, vocabulary, unknown_token)


def from_spec(vocabulary: Vocabulary, spec: Mapping[str, Any]) -> ClosedModel:
    """Make a model of a vocabulary and of what `ClosedModel.spec` gave."""
    return model_of(vocabulary, spec["unknown_token"])


def trainer(counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> ClosedTraining:
    """Count words; see `closed_vocabulary.training`."""
    return ClosedTraining(model_of, cut, counts, options, vocab_sizes)


_FORMATS = {"huggingface": "tokmill.tokenizer.word_level.huggingface"}

FAMILY = Family(NAME, "Word-level", "words", from_spec, trainer, _FORMATS)
