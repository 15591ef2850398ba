"""SentencePiece's Unigram models in GGUF, as T5's and XLM-RoBERTa's; `formats.gguf_pieces` reads them."""

from tokmill.tokenizer.formats.gguf_pieces import read_pieces
from tokmill.tokenizer.formats.gguf_section import Reading, Section
from tokmill.tokenizer.unigram.sentencepiece import MODEL_TYPE

MODEL = "t5"


def read(section: Section) -> Reading:
    """Read the vocabulary.

    Raises:
        FormatError: a feature is not supported.
        VocabularyError: the vocabulary breaks a law.
    """
    return read_pieces(section, MODEL_TYPE, {"eos": 1, "unk": 2, "pad": 0}, {"bos": False, "eos": True})
