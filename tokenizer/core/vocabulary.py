"""The vocabulary of a model: ids and byte strings, one to one.

Laws: no two ids have the same bytes, except bytes that stand in for unknown characters (`byte_ids`), and
special tokens, which may be pieces, too; a special token's bytes are its name's UTF-8 (normalized where it is
looked for in normalized text); an id may have no token; `size` is the greatest id plus one. To a model, all
that it must never make is a special token, also the added tokens that it does not know.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes, unpack
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.text import has_surrogates

MAX_IDS = (1 << 21) - 1
"""The most ids of a vocabulary; the tables of byte-level BPE have no room for more."""


def texts_by_id(vocab: Mapping[str, int], special_tokens: Mapping[str, int]) -> dict[int, str]:
    """Turn the vocabulary of a file, ids by text, around; its special tokens are left out."""
    kept = dict(vocab)
    for name, _ in special_tokens.items() & vocab.items():
        del kept[name]
    texts = {token: text for text, token in kept.items()}
    if len(texts) < len(kept):
        text, token = next((text, token) for text, token in kept.items() if texts[token] != text)
        raise VocabularyError(
            f"vocabulary: {text!r:.200} and {texts[token]!r:.200} have the same id {token}; give one of them "
            "another"
        )
    return texts


def reserved_name(number: int) -> str:
    """Return the name of a reserved token."""
    return f"<|reserved_{number}|>"


_RESERVED = re.compile(r"<\|reserved_[0-9]{1,7}\|>")


def count_reserved(names: Iterable[str]) -> int:
    """Return how many special tokens have names of reserved ones."""
    return sum(1 for name in names if _RESERVED.fullmatch(name))


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """The byte string of every id.

    Attributes:
        data: uint8, the bytes of all tokens, by id.
        offsets: int64, shape (size + 1,); an id without a token has no bytes.
        special_tokens: ids by name, reserved ones included, by id.
        num_reserved: number of reserved special tokens: the last ones with such names.
        byte_ids: the ids of the single bytes that stand in for unknown characters; mostly none.
    """

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    special_tokens: Mapping[str, int]
    num_reserved: int = 0
    byte_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if type(self.num_reserved) is not int or not 0 <= self.num_reserved <= len(self.special_tokens):
            raise VocabularyError(
                f"vocabulary: num_reserved={self.num_reserved!r:.80} must be from 0 to the number of special "
                f"tokens, {len(self.special_tokens)}"
            )

    @classmethod
    def build(
        cls,
        tokens: Mapping[int, bytes],
        special_tokens: Mapping[str, int],
        num_reserved: int = 0,
        byte_ids: Iterable[int] = (),
    ) -> Self:
        """Build a vocabulary from byte strings."""
        every = dict(tokens)
        for name, token in _checked_names(special_tokens):
            if every.setdefault(token, name.encode()) != name.encode():
                raise VocabularyError(
                    f"vocabulary: id {token} is the token {every[token]!r} and the special token {name!r}; "
                    "give one of them another id"
                )
        _check_ids(every)
        standing_in = frozenset(byte_ids)
        if len({*every.values()}) < len(every):
            apart = standing_in.union(special_tokens.values())
            _check_distinct({token: text for token, text in every.items() if token not in apart})
        data, offsets = pack_bytes([*map(every.get, range(max(every, default=-1) + 1), repeat(b""))])
        specials = dict(sorted(special_tokens.items(), key=lambda item: item[1]))
        return cls(data.copy(), offsets, specials, num_reserved, standing_in)

    @property
    def size(self) -> int:
        """The greatest id plus one."""
        return len(self.offsets) - 1

    @cached_property
    def tokens(self) -> list[bytes]:
        """The bytes of each id; empty where an id has no token."""
        return unpack(self.data, self.offsets)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Bytes of each ordinary token, by id; 0 for the others."""
        lengths = np.diff(self.offsets)
        lengths[[*self.special_tokens.values()]] = 0
        return lengths

    def joined(self, ids: NDArray[np.integer]) -> NDArray[np.uint8]:
        """Return the bytes of tokens, end to end."""
        lengths = np.diff(self.offsets)[ids].ravel()
        firsts = self.offsets[ids].ravel() + lengths - np.cumsum(lengths)
        found: NDArray[np.uint8] = self.data[np.arange(lengths.sum()) + np.repeat(firsts, lengths)]
        return found

    @cached_property
    def reserved(self) -> list[str]:
        """The names of the reserved tokens, by id."""
        names = [name for name in self.special_tokens if _RESERVED.fullmatch(name)]
        return names[max(0, len(names) - self.num_reserved) :]

    @cached_property
    def ids(self) -> dict[bytes, int]:
        """Ids by byte string, special tokens included, in order of id; of equal ones the piece."""
        every = {token: i for i, token in enumerate(self.tokens) if token}
        if len(every) == np.count_nonzero(np.diff(self.offsets)):
            return every
        apart = self.byte_ids.union(self.special_tokens.values())
        found = {token: i for i, token in enumerate(self.tokens) if token and i not in apart}
        others = {self.tokens[i]: i for i in sorted(apart)}
        return dict(sorted({**others, **found}.items(), key=lambda item: item[1]))

    def ordinary(self) -> Iterator[tuple[int, bytes]]:
        """Yield the ids and bytes of all tokens but the special ones, by id."""
        special = set(self.special_tokens.values())
        return ((i, token) for i, token in enumerate(self.tokens) if token and i not in special)

    def with_bytes(self, spellings: Mapping[int, bytes]) -> Self:
        """Return the same vocabulary with other bytes for some ids; none where a token stands for no text."""
        data, offsets = pack_bytes([spellings.get(i, token) for i, token in enumerate(self.tokens)])
        return type(self)(data.copy(), offsets, self.special_tokens, self.num_reserved, self.byte_ids)

    def covered(self, length: Callable[[bytes], int]) -> NDArray[np.int64]:
        """Return offsets of the bytes that tokens cover in a text: `length(token)`, or a special one's."""
        lengths = np.array([length(token) for token in self.tokens], np.int64)
        special = [*self.special_tokens.values()]
        lengths[special] = [len(self.tokens[token]) for token in special]
        return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])

    def kinds(self, kind: Callable[[bytes], str]) -> list[str]:
        """Return the kind of every id: `special`, `reserved`, `hole` (no token), or `kind(token)`."""
        kinds = [kind(token) if token else "hole" for token in self.tokens]
        reserved = set(self.reserved)
        for name, token in self.special_tokens.items():
            kinds[token] = "reserved" if name in reserved else "special"
        return kinds


def _checked_names(special_tokens: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    for name, token in special_tokens.items():
        if not isinstance(name, str) or not name or has_surrogates(name):
            raise VocabularyError(
                f"vocabulary: the special token {name!r:.200} must be a text that is not empty and that "
                "UTF-8 can hold; use e.g. '<|endoftext|>'"
            )
        yield name, token


def _is_id(token: object) -> bool:
    return isinstance(token, int | np.integer) and not isinstance(token, bool) and 0 <= int(token) < MAX_IDS


def _check_ids(tokens: Mapping[int, bytes]) -> None:
    plain = {*map(type, tokens)} == {int} and min(tokens) >= 0 and max(tokens) < MAX_IDS
    if plain and all(tokens.values()):
        return
    for token, text in tokens.items():
        if not _is_id(token) or not text:
            raise VocabularyError(
                f"vocabulary: id {token!r:.80} of {text!r:.200}: ids must be from 0 to {MAX_IDS - 1}, "
                "and no token empty"
            )


def _check_distinct(tokens: Mapping[int, bytes]) -> None:
    ids = {token: i for i, token in tokens.items()}
    if len(ids) < len(tokens):
        twice = next(token for i, token in tokens.items() if ids[token] != i)
        raise VocabularyError(
            f"vocabulary: {twice!r} is a token under two ids (one is {ids[twice]}); remove one of them"
        )
