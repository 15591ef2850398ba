"""RWKV's vocabulary in GGUF: tokens spelled as the inside of Python's literals of bytes.

Source: ggml-org/llama.cpp, `conversion/rwkv.py` and `llama_unescape_rwkv_token`.
"""

from tokmill.tokenizer.core.vocabulary import Vocabulary, count_reserved
from tokmill.tokenizer.formats.gguf_section import Reading, Section
from tokmill.tokenizer.formats.model_file import PieceKind
from tokmill.tokenizer.longest_match.model import LongestMatchModel
from tokmill.tokenizer.longest_match.rwkv import literal_bytes
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.sentences.options import WHOLE_TEXT

MODEL = "rwkv"


def read(section: Section) -> Reading:
    """Read the vocabulary; all tokens but normal ones are special.

    Raises:
        FormatError: a token is spelled otherwise, or its type is not known.
        VocabularyError: the vocabulary breaks a law.
    """
    normal = [kind == PieceKind.NORMAL for kind in section.kinds]
    tokens = {
        i: literal_bytes(text, is_bytes=True, where=f"{section.where}: tokens[{i}]")
        for i, text in enumerate(section.tokens)
        if normal[i]
    }
    names = {text: i for i, text in enumerate(section.tokens) if not normal[i]}
    model = LongestMatchModel(Vocabulary.build(tokens, names, count_reserved(names)))
    before, after = (
        ["bos"] * section.adds("bos", default=False),
        ["eos"] * section.adds("eos", default=False),
    )
    return Reading(Definition.compose(model, split_pattern=WHOLE_TEXT), {}, before, after)
