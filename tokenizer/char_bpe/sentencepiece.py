"""BPE models in SentencePiece's `.model`, and in GGUF, as those of Llama 2 and Mistral.

sentencepiece merges in the whole text. Where no piece has a `▁` after another character, no merge lies across
the place before a `▁`, so the text is cut there first, and short pre-tokens are remembered.
"""

import numpy as np

from tokmill.tokenizer.char_bpe.model import CharacterPairModel
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.formats.gguf_section import Reading, Section, read_pieces
from tokmill.tokenizer.formats.model_file import ModelFile, PieceKind
from tokmill.tokenizer.pipeline.model import Model
from tokmill.tokenizer.sentences.options import WHOLE_TEXT

GGUF_MODEL = "llama"


def read_section(section: Section) -> Reading:
    """Read the vocabulary."""
    for name in ("precompiled_charsmap", "remove_extra_whitespaces"):
        value = section.metadata.get(f"tokenizer.ggml.{name}", False)
        if value is not False and len(getattr(value, "shape", (1,))):
            raise section.trouble(
                f"tokenizer.ggml.{name} is set, which llama.cpp passes over for {GGUF_MODEL!r} models"
            )
    return read_pieces(section, MODEL_TYPE, {"bos": 1, "eos": 2, "unk": 0}, {"bos": True, "eos": False})


MODEL_TYPE = 2
WORDS, WORDS_AND_BLANKS = "▁*[^▁]+|▁+", "[^▁]+▁*|▁+"


def model_of(file: ModelFile, vocabulary: Vocabulary, unknown: str) -> Model:
    """Return the model of a file."""
    kinds = [piece.kind for piece in file.pieces]
    scores = np.array([piece.score for piece in file.pieces], np.float64)
    scores[[kind != PieceKind.NORMAL for kind in kinds]] = 0.0
    frozen = tuple(i for i, kind in enumerate(kinds) if kind == PieceKind.USER_DEFINED)
    return CharacterPairModel(vocabulary, scores, unknown, frozen)


def pattern_of(model: Model) -> str:
    """Return how text is cut before the model: into words, if no piece lies across two of them.

    A word has the `▁` before it, or those after it.
    """
    vocabulary = model.vocabulary
    pieces = [token.decode() for i, token in vocabulary.ordinary() if i not in vocabulary.byte_ids]
    if not any("▁" in piece.lstrip("▁") for piece in pieces):
        return WORDS
    return WHOLE_TEXT if any("▁" in piece.rstrip("▁") for piece in pieces) else WORDS_AND_BLANKS


def can_hold(model: Model) -> bool:
    """Whether sentencepiece would encode with a model as we do."""
    return isinstance(model, CharacterPairModel) and model.merges is None
