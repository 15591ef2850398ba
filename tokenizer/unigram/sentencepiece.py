"""Unigram models in SentencePiece's `.model`; `formats.sentencepiece` has what all its models share.

The text is one pre-token, since sums of scores are rounded to 32 bits at every step, so that what is chosen
at a place depends on all that stands before it.
"""

import numpy as np

from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.formats.model_file import ModelFile, PieceKind
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.sentences.options import WHOLE_TEXT
from tokmill.tokenizer.unigram.model import USER_DEFINED_SCORE, UnigramModel

MODEL_TYPE = 1


def model_of(file: ModelFile, vocabulary: Vocabulary, unknown: str) -> Model:
    """Return the model of a file.

    Raises:
        VocabularyError: a score is not a logarithm of a probability.
    """
    scores = np.array([piece.score for piece in file.pieces], np.float64)
    for i, piece in enumerate(file.pieces):
        if piece.kind != PieceKind.NORMAL:
            scores[i] = USER_DEFINED_SCORE if piece.kind == PieceKind.USER_DEFINED else 0.0
    return UnigramModel(vocabulary, scores, unknown, "single")


def pattern_of(_model: Model) -> str:
    """Return how text is cut before the model: not at all."""
    return WHOLE_TEXT


def can_hold(model: Model) -> bool:
    """Whether sentencepiece would encode with a model as we do."""
    return isinstance(model, UnigramModel) and model.precision == "single"
