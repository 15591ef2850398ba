"""SentencePiece's models in GGUF: pieces with scores and types, and how white space is treated.

Types are those of a `.model`, so the section is read as such a file. Unused pieces, with which converters
fill a vocabulary up, become special tokens, if nothing that sentencepiece does could ever lead to them.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from tokmill.tokenizer.formats.gguf_section import Reading, Section
from tokmill.tokenizer.formats.model_file import (
    MODEL_TYPES,
    NORMALIZER_FIELDS,
    TRAINER_FIELDS,
    ModelFile,
    Piece,
    PieceKind,
)
from tokmill.tokenizer.formats.sentencepiece import file_definition

_BPE = next(number for number, name in MODEL_TYPES.items() if name == "bpe")
_TRAINER = MappingProxyType({name: default for name, _, default in TRAINER_FIELDS.values()})
_NORMALIZER = MappingProxyType({name: default for name, _, default in NORMALIZER_FIELDS.values()})
_ROLES = ("bos", "eos", "pad")
_TEXTS = (PieceKind.NORMAL, PieceKind.USER_DEFINED, PieceKind.UNUSED)


def read_pieces(
    section: Section, model_type: int, roles: Mapping[str, int], adds: Mapping[str, bool]
) -> Reading:
    """Read the vocabulary.

    Args:
        section: of the file.
        model_type: what kind of model it is, as in a `.model`.
        roles: the ids that roles have if the file does not say it.
        adds: whether bos and eos are put around texts if the file does not say it.

    Raises:
        FormatError: a feature is not supported.
        VocabularyError: the vocabulary breaks a law.
    """
    pieces = _pieces(section, model_type, section.roles(roles).get("unk"))
    names = {
        f"{role}_piece": section.tokens[token]
        for role, token in section.roles(roles).items()
        if role in _ROLES
    }
    bytes_stand_in = any(piece.kind == PieceKind.BYTE for piece in pieces)
    trainer = {**_TRAINER, "model_type": model_type, "byte_fallback": bytes_stand_in, **names}
    file = ModelFile(pieces, trainer, _normalizer(section))
    before = ["bos"] * section.adds("bos", default=adds["bos"])
    return Reading(
        file_definition(file, section.where),
        roles,
        before,
        ["eos"] * section.adds("eos", default=adds["eos"]),
    )


def _normalizer(section: Section) -> dict[str, object]:
    charsmap = section.get("precompiled_charsmap", np.ndarray)
    rules = b"" if charsmap is None else charsmap.astype(np.uint8).tobytes()
    return {
        **_NORMALIZER,
        "name": "" if rules else "identity",
        "precompiled_charsmap": rules,
        "add_dummy_prefix": section.get("add_space_prefix", bool, default=True),
        "remove_extra_whitespaces": section.get("remove_extra_whitespaces", bool, default=False),
    }


def _pieces(section: Section, model_type: int, unknown: int | None) -> list[Piece]:
    rows = zip(section.tokens, section.scores, section.kinds, strict=True)
    pieces = [Piece(*row) for row in rows]
    if unknown is not None and not any(piece.kind == PieceKind.UNKNOWN for piece in pieces):
        pieces[unknown] = replace(pieces[unknown], kind=PieceKind.UNKNOWN)
    texts = {piece.text for piece in pieces if piece.kind in _TEXTS}
    for i, piece in enumerate(pieces):
        if piece.kind != PieceKind.UNUSED:
            continue
        if model_type == _BPE and _can_be_made(piece.text, texts):
            raise section.trouble(
                f"tokens[{i}]={piece.text!r:.80} is of type UNUSED, but is made of others, which cannot be "
                "done here"
            )
        pieces[i] = replace(piece, kind=PieceKind.CONTROL)
    return pieces


def _can_be_made(text: str, texts: Collection[str]) -> bool:
    """Whether a piece is a character, or two pieces joined."""
    return len(text) == 1 or any(text[:cut] in texts and text[cut:] in texts for cut in range(1, len(text)))
