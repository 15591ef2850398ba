"""The normalizer of SentencePiece's models: a table of rules that each model brings along, and white space.

The table (`precompiled_charsmap`) depends on no Unicode version but its makers'. Spaces become `▁` (U+2581),
and one is put before the text. Law: equal to what `sentencepiece` makes of a text; a text between two special
tokens is a text of its own.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.components.specials import make_trie
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.kernels.sentences import (
    ESCAPE,
    PREFIX,
    REMOVE_EXTRA,
    SUFFIX,
    Rules,
    normalize_sentences,
)

_FLAGS = ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces")
_SUFFIX = "treat_whitespace_as_suffix"
_UNIT_BYTES = 4
_ASCII = 0x80
_LABEL, _HAS_VALUE = 0x800000FF, 0x100  # of a unit of the double array
_GROWTH = 8  # bytes more than the text that are reserved for each text, for its spaces


@dataclass(frozen=True)
class SentenceNormalizer:
    """The normalizer of a SentencePiece model; see `pipeline.model.TextNormalizer`.

    Attributes:
        rule_name: what the model calls its rules, such as `nmt_nfkc`; it decides nothing.
        charsmap: the compiled rules; empty for none.
        add_dummy_prefix: whether a space is put before the text.
        remove_extra_whitespaces: whether spaces at both ends, and all but one of several, are removed.
        escape_whitespaces: whether spaces become `▁`.
        kept: strings that no rule changes: those that users defined.
        treat_whitespace_as_suffix: whether that space is put after the text instead.

    Raises:
        FormatError: the compiled rules are damaged.
    """

    rule_name: str = ""
    charsmap: bytes = b""
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    escape_whitespaces: bool = True
    kept: tuple[str, ...] = ()
    treat_whitespace_as_suffix: bool = False

    def __post_init__(self) -> None:
        split_charsmap(self.charsmap)

    @property
    def name(self) -> str:
        """Its name, for people."""
        return f"sentencepiece:{self.rule_name or 'own'}"

    def spec(self) -> dict[str, Any]:
        """Return the normalizer as JSON-able data."""
        flags = {name: getattr(self, name) for name in _FLAGS}
        flags |= {_SUFFIX: True} if self.treat_whitespace_as_suffix else {}  # older readers do not know it
        charsmap = base64.b64encode(self.charsmap).decode()
        return {"rule_name": self.rule_name, "charsmap": charsmap, **flags, "kept": list(self.kept)}

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Build it from the result of `spec`."""
        flags = {name: spec[name] for name in _FLAGS} | {_SUFFIX: spec.get(_SUFFIX, False)}
        if not all(isinstance(flag, bool) for flag in flags.values()):
            raise FormatError(f"normalizer: {flags} must be true or false each")
        charsmap = base64.b64decode(spec["charsmap"], validate=True)
        return cls(str(spec["rule_name"]), charsmap, **flags, kept=tuple(map(str, spec["kept"])))

    def text(self, text: str, *, first: bool = True) -> str:
        """Normalize one text."""
        data, offsets = pack_bytes([text.encode("utf-8", "surrogateescape")])
        return self.buffers(data, offsets)[0].tobytes().decode()

    def buffers(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        keep: NDArray[np.bool_] | None = None,
        first: NDArray[np.bool_] | None = None,
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        """Normalize each document of a buffer separately; bytes that are not UTF-8 become U+FFFD."""
        number = offsets.shape[0] - 1
        kept = np.zeros(number, np.uint8) if keep is None else keep.astype(np.uint8)
        room, bounds = int(offsets[-1] - offsets[0]) * 2 + _GROWTH * number, np.empty(number + 1, np.int64)
        while True:
            out = np.empty(room, np.uint8)
            size = normalize_sentences(data, offsets.astype(np.int64), kept, self._rules, out, bounds)
            if size <= room:
                return out[:size], bounds
            room = size + _GROWTH

    def final_boundary(self, data: bytes) -> int:
        """Return 0: what becomes of a space depends on all that follows."""
        return 0

    @cached_property
    def _rules(self) -> Rules:
        units, texts = split_charsmap(self.charsmap)
        spaces = REMOVE_EXTRA * self.remove_extra_whitespaces + ESCAPE * self.escape_whitespaces
        spaces += (SUFFIX if self.treat_whitespace_as_suffix else PREFIX) * self.add_dummy_prefix
        plain = plain_characters(units)
        plain[[kept.encode()[0] for kept in self.kept if kept]] = 0
        kept = make_trie(tuple((kept, i) for i, kept in enumerate(self.kept)))
        return Rules(units, texts, kept, spaces, plain)


def split_charsmap(charsmap: bytes) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Return the double array of compiled rules, and their texts."""
    if not charsmap:
        return np.zeros(0, np.uint32), np.zeros(0, np.uint8)
    size = int.from_bytes(charsmap[:_UNIT_BYTES], "little")
    if len(charsmap) < _UNIT_BYTES or size % _UNIT_BYTES or not 0 < size <= len(charsmap) - _UNIT_BYTES:
        raise FormatError(
            f"normalizer: the compiled rules claim a table of {size} bytes, which must be a multiple of "
            f"{_UNIT_BYTES} within {len(charsmap)}; the file is damaged"
        )
    texts = np.frombuffer(charsmap, np.uint8, offset=_UNIT_BYTES + size).copy()
    return np.frombuffer(charsmap, "<u4", size // _UNIT_BYTES, _UNIT_BYTES).astype(np.uint32), texts


def plain_characters(units: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Mark, in shape (256,), the ASCII characters that no rule changes before another one, or at the end."""
    plain, ascii_bytes = np.zeros(256, np.uint8), np.arange(_ASCII)
    plain[:_ASCII] = 1
    if units.shape[0]:
        table = units.astype(np.int64)
        firsts, exists = _follow(table, _offsets(table[:1]), ascii_bytes)
        nodes = table[firsts]
        states = firsts ^ _offsets(nodes)
        is_rule = (nodes & _HAS_VALUE != 0) & (states < table.shape[0])
        _, leads = _follow(table, states[:, None], ascii_bytes)
        plain[:_ASCII] = ~(exists & (is_rule | leads.any(axis=1)))
    return plain


def _follow(
    table: NDArray[np.int64], states: NDArray[np.int64], labels: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the units that bytes lead to from states, 0 where there are none, and whether there are."""
    places = states ^ labels
    inside = places < table.shape[0]
    places = np.where(inside, places, 0)
    return places, inside & (table[places] & _LABEL == labels)


def _offsets(units: NDArray[np.int64]) -> NDArray[np.int64]:
    return (units >> 10) << ((units & 0x200) >> 6)
