"""BERT's vocabulary in GGUF: pieces that begin words have a `▁`, and those that continue them nothing.

Special tokens, and in older files all in brackets, are spelled as they are. The normalizer is BERT's, and
makes lower case without accents unless the file says otherwise, as llama.cpp does. Text is split as BERT
splits it, and words of more than 100 characters are unknown, which llama.cpp does not do.
Source: ggml-org/llama.cpp, `conversion/bert.py` and `src/llama-vocab.cpp`.
"""

from tokmill.tokenizer.components.decoders import CONTINUES
from tokmill.tokenizer.core.vocabulary import Vocabulary, count_reserved
from tokmill.tokenizer.formats.gguf_section import SPECIAL_KINDS, Reading, Section
from tokmill.tokenizer.formats.model_file import PieceKind
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.wordpiece.model import WordPieceModel

MODEL = "bert"
_MARK = "▁"
_IDS = {"cls": 101, "unk": 100, "sep": 102, "pad": 0, "mask": 103}


def read(section: Section) -> Reading:
    """Read the vocabulary.

    Raises:
        FormatError: it has no unknown token, or a type of a token is not known.
        VocabularyError: the vocabulary breaks a law.
    """
    ids = _ids(section)
    special = {*ids.values()} | {
        i for i, kind in enumerate(section.kinds) if kind in (*SPECIAL_KINDS, PieceKind.UNUSED)
    }
    if "unk" not in ids:
        raise section.trouble("tokenizer.ggml.unknown_token_id is no id of a token; there must be one")
    names = {_name(section, i): i for i in sorted(special)}
    tokens = {i: _piece(text) for i, text in enumerate(section.tokens) if i not in special}
    vocabulary = Vocabulary.build(tokens, names, count_reserved(names))
    definition = Definition.compose(
        WordPieceModel(vocabulary, _name(section, ids["unk"])),
        split_pattern="bert",
        normalizer=_normalizer(section),
        decoder="wordpiece_cleanup",
    )
    before, after = ["cls"] * section.adds("bos", default=True), ["sep"] * section.adds("sep", default=True)
    return Reading(definition, ids, before, after, type_ids=True)


def _ids(section: Section) -> dict[str, int]:
    """Return the ids of roles; the first token of a text is bos, or else cls."""
    defaults = dict(_IDS)
    bos = section.id_of("bos")
    if bos is not None:
        defaults["cls"] = bos
    found = section.roles(defaults)
    return {role: token for role, token in found.items() if role in _IDS}


def _name(section: Section, token: int) -> str:
    text = section.tokens[token]
    return text if section.kinds[token] == PieceKind.CONTROL else text.removeprefix(_MARK) or text


def _piece(text: str) -> bytes:
    """Return a piece as BERT spells it; `▁` alone is one that continues words, since none is empty."""
    if text.startswith(_MARK) and text != _MARK:
        return text.removeprefix(_MARK).encode()
    in_brackets = len(text) > len("[]") and text.startswith("[") and text.endswith("]")
    return text.encode() if in_brackets else CONTINUES + text.encode()


def _normalizer(section: Section) -> str:
    lower: bool = section.get("normalizer.lowercase", bool, default=True)
    strip: bool = section.get("normalizer.strip_accents", bool, default=lower)
    return "bert_clean+cjk_spaces" + "+strip_nonspacing" * strip + "+lowercase" * lower
