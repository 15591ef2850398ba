"""SentencePiece's BPE models in GGUF, as those of Llama 2 and Mistral; `formats.gguf_pieces` reads them."""

from tokmill.tokenizer.char_bpe.sentencepiece import MODEL_TYPE
from tokmill.tokenizer.formats.gguf_pieces import read_pieces
from tokmill.tokenizer.formats.gguf_section import Reading, Section

MODEL = "llama"


def read(section: Section) -> Reading:
    """Read the vocabulary.

    Raises:
        FormatError: a feature is not supported: rules of normalization, and the removal of extra white space,
            which llama.cpp does not do for these models.
        VocabularyError: the vocabulary breaks a law.
    """
    for name in ("precompiled_charsmap", "remove_extra_whitespaces"):
        value = section.metadata.get(f"tokenizer.ggml.{name}", False)
        if value is not False and len(getattr(value, "shape", (1,))):
            raise section.trouble(
                f"tokenizer.ggml.{name} is set, which llama.cpp passes over for {MODEL!r} models"
            )
    return read_pieces(section, MODEL_TYPE, {"bos": 1, "eos": 2, "unk": 0}, {"bos": True, "eos": False})
