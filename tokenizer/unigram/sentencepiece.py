"""Unigram models in SentencePiece's `.model`, and in GGUF, as T5's and XLM-RoBERTa's.

The text is one pre-token, since sums of scores are rounded to 32 bits at every step, so that what is chosen
at a place depends on all that stands before it.
"""

import numpy as np

from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.formats.gguf_section import Reading, Section, read_pieces
from tokmill.tokenizer.formats.model_file import ModelFile, PieceKind
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.sentences.options import WHOLE_TEXT
from tokmill.tokenizer.unigram.model import USER_DEFINED_SCORE, UnigramModel

GGUF_MODEL = "t5"


def read_section(section: Section) -> Reading:
    """Read the vocabulary."""
    return read_pieces(section, MODEL_TYPE, {"eos": 1, "unk": 2, "pad": 0}, {"bos": False, "eos": True})


MODEL_TYPE = 1


def model_of(file: ModelFile, vocabulary: Vocabulary, unknown: str) -> Model:
    """Return the model of a file."""
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
