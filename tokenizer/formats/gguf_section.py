"""The tokenizer's section of a GGUF file: what its keys say, checked, for the families that read it.

SentencePiece's models have pieces with scores and types, and are read as a `.model`. Unused pieces become
special tokens if nothing could ever lead to them. Source: ggml-org/llama.cpp, `src/llama-vocab.cpp`.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.core.vocabulary import MAX_IDS
from tokmill.tokenizer.formats.model_file import (
    MODEL_TYPES,
    NORMALIZER_FIELDS,
    TRAINER_FIELDS,
    ModelFile,
    Piece,
    PieceKind,
)
from tokmill.tokenizer.formats.sentencepiece import file_definition
from tokmill.tokenizer.pipeline.definition import Definition

_PREFIX = "tokenizer.ggml."
_ID_KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "bos": ("bos_token_id",),
        "eos": ("eos_token_id",),
        "unk": ("unknown_token_id",),
        "pad": ("padding_token_id",),
        "sep": ("seperator_token_id",),
        "cls": ("cls_token_id",),
        "mask": ("mask_token_id",),
        "fim_prefix": ("fim_pre_token_id", "prefix_token_id"),
        "fim_middle": ("fim_mid_token_id", "middle_token_id"),
        "fim_suffix": ("fim_suf_token_id", "suffix_token_id"),
        "turn_end": ("eot_token_id",),
    }
)
"""Keys by role, the newer name first; `seperator` is how it is spelled."""

SPECIAL_KINDS = (PieceKind.UNKNOWN, PieceKind.CONTROL, PieceKind.USER_DEFINED)


@dataclass(frozen=True)
class Section:
    """The metadata of a file that concern the tokenizer.

    Attributes:
        where: the file, for messages.
        metadata: values by key.
    """

    where: str
    metadata: Mapping[str, Any]

    def get(self, name: str, kind: type, default: Any = None) -> Any:
        """Return the value of a key of `tokenizer.ggml`."""
        value = self.metadata.get(_PREFIX + name)
        if value is None:
            return default
        if isinstance(value, bytes) and kind is str:
            return self._text(value, name)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.trouble(f"{_PREFIX}{name} is a {type(value).__name__}, but must be a {kind.__name__}")
        return value

    @cached_property
    def tokens(self) -> list[str]:
        """The tokens as the file spells them, by id."""
        return self.texts("tokens", MAX_IDS)

    @cached_property
    def kinds(self) -> list[PieceKind]:
        """What each token is."""
        values = self.numbers("token_type")
        known = {*map(int, PieceKind)}
        for token, value in enumerate(values.tolist()):
            if value not in known:
                raise self.trouble(f"{_PREFIX}token_type[{token}]={value} is not one of {sorted(known)}")
        return [PieceKind(int(value)) for value in values]

    @property
    def scores(self) -> list[float]:
        """The score of each token."""
        return [float(score) for score in self.numbers("scores")]

    def texts(self, name: str, most: int) -> list[str]:
        """Return an array of texts."""
        values = self.metadata.get(_PREFIX + name)
        if not isinstance(values, list) or not 0 < len(values) <= most:
            raise self.trouble(f"{_PREFIX}{name} must be an array of 1 to {most} texts")
        return [self._text(value, f"{name}[{i}]") for i, value in enumerate(values)]

    def numbers(self, name: str) -> NDArray[Any]:
        """Return an array of numbers, one for each token."""
        values = self.metadata.get(_PREFIX + name)
        if not isinstance(values, np.ndarray) or values.shape != (len(self.tokens),):
            raise self.trouble(
                f"{_PREFIX}{name} must be an array of {len(self.tokens)} numbers, one for each token"
            )
        return values

    def _text(self, value: object, name: str) -> str:
        try:
            if isinstance(value, bytes):
                return value.decode()
        except UnicodeDecodeError:
            pass
        raise self.trouble(f"{_PREFIX}{name} is not a text in UTF-8")

    def id_of(self, role: str, default: int | None = None) -> int | None:
        """Return the id of a role's token; None if no token has it, or one that does not exist."""
        for key in _ID_KEYS[role]:
            token = self.get(key, int)
            if token is not None:
                return token if 0 <= token < len(self.tokens) else None
        return default if default is not None and default < len(self.tokens) else None

    def roles(self, defaults: Mapping[str, int]) -> dict[str, int]:
        """Return the ids of all roles that tokens have."""
        found = {role: self.id_of(role, defaults.get(role)) for role in _ID_KEYS}
        return {role: token for role, token in found.items() if token is not None}

    def adds(self, role: str, *, default: bool) -> bool:
        """Whether a text gets the token of a role, at its beginning or end."""
        return bool(self.get(f"add_{role}_token", bool, default))

    def templates(self) -> dict[str, str]:
        """Return the chat templates, by name."""
        key = "tokenizer.chat_template"
        found = {
            "default" if name == key else name.removeprefix(f"{key}."): value
            for name, value in self.metadata.items()
            if name == key or name.startswith(f"{key}.")
        }
        return {name: self._text(value, name) for name, value in found.items()}

    def trouble(self, what: str) -> FormatError:
        """Return the error for something that cannot be read."""
        return FormatError(f"{self.where}: {what}")


@dataclass(frozen=True)
class Reading:
    """What a family makes of a section.

    Attributes:
        definition: the tokenizer, without template, roles and chat templates.
        roles: the ids that roles have if the file does not say it.
        before: the roles of the tokens before a text.
        after: those after it.
        type_ids: whether a second text has another type than the first.
    """

    definition: Definition
    roles: Mapping[str, int] = field(default_factory=dict)
    before: Sequence[str] = ()
    after: Sequence[str] = ()
    type_ids: bool = False


_BPE = next(number for number, name in MODEL_TYPES.items() if name == "bpe")
_TRAINER = MappingProxyType({name: default for name, _, default in TRAINER_FIELDS.values()})
_NORMALIZER = MappingProxyType({name: default for name, _, default in NORMALIZER_FIELDS.values()})
_ROLES = ("bos", "eos", "pad")
_TEXTS = (PieceKind.NORMAL, PieceKind.USER_DEFINED, PieceKind.UNUSED)


def read_pieces(
    section: Section, model_type: int, roles: Mapping[str, int], adds: Mapping[str, bool]
) -> Reading:
    """Read the vocabulary."""
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
