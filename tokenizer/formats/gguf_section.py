"""The tokenizer's section of a GGUF file: what its keys say, checked, for the families that read it.

Source: ggml-org/llama.cpp, `src/llama-vocab.cpp`, which also has the values of keys that are not there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.core.vocabulary import MAX_IDS
from tokmill.tokenizer.formats.model_file import PieceKind
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
        """Return the value of a key of `tokenizer.ggml`.

        Raises:
            FormatError: it is of another type.
        """
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
        """What each token is.

        Raises:
            FormatError: there are none, or too few, or one is not known.
        """
        values = self.numbers("token_type")
        known = {*map(int, PieceKind)}
        for token, value in enumerate(values.tolist()):
            if value not in known:
                raise self.trouble(f"{_PREFIX}token_type[{token}]={value} is none of {sorted(known)}")
        return [PieceKind(int(value)) for value in values]

    @property
    def scores(self) -> list[float]:
        """The score of each token."""
        return [float(score) for score in self.numbers("scores")]

    def texts(self, name: str, most: int) -> list[str]:
        """Return an array of texts.

        Raises:
            FormatError: it is missing, too long, or holds anything else.
        """
        values = self.metadata.get(_PREFIX + name)
        if not isinstance(values, list) or not 0 < len(values) <= most:
            raise self.trouble(f"{_PREFIX}{name} must be an array of 1 to {most} texts")
        return [self._text(value, f"{name}[{i}]") for i, value in enumerate(values)]

    def numbers(self, name: str) -> NDArray[Any]:
        """Return an array of numbers, one for each token.

        Raises:
            FormatError: it is missing, or has another length.
        """
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
        raise self.trouble(f"{_PREFIX}{name} is no text in UTF-8")

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
