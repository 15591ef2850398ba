"""What a byte-level BPE tokenizer is: everything that decides its ids, and nothing else.

Laws: ids and byte strings are one to one, special tokens included (a special token's bytes are its name's
    UTF-8); every byte is a token; a merge joins two tokens into the token of their joined bytes; no pair
    has two merges. Ids may have holes (published vocabularies do): `vocab_size` is the greatest id plus
    one. With `ignore_merges` (as Hugging Face calls it; tiktoken always does so) a pre-token that is a
    token is that token, even if merging would not lead to it.

`to_spec` gives the definition as JSON-able data, the same for equal tokenizers, and `from_spec` takes it
back.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.byte_bpe.kernels.pairs import MAX_IDS, MAX_MERGES
from tokmill.tokenizer.components.normalizers import steps_of
from tokmill.tokenizer.components.post_processors import Template
from tokmill.tokenizer.core.alphabet import to_bytes, to_text
from tokmill.tokenizer.core.buffers import pack_bytes, unpack
from tokmill.tokenizer.core.errors import FormatError, PatternError, VocabularyError
from tokmill.tokenizer.core.reading import reading
from tokmill.tokenizer.splitting import Digits, PatternLike, resolve

SPEC_FORMAT = "tokmill"
SPEC_VERSION, TEMPLATE_VERSION = 1, 2  # whoever does not know templates must not pass over one
FAMILY = "byte_bpe"


@dataclass(frozen=True, eq=False)
class Definition:
    """A byte-level BPE tokenizer's definition.

    Attributes:
        token_data: uint8, the bytes of all tokens, by id.
        token_offsets: int64, shape (vocab_size + 1,); an id without a token has no bytes.
        merges: int32, shape (num_merges, 3): left id, right id, resulting id; in order of rank.
        special_tokens: ids by name, reserved ones included, by id.
        num_reserved: how many of them are reserved.
        split_pattern: a name, an expression, or a chain of expressions.
        digits: how digits are cut.
        normalizer: see `normalizers`.
        ignore_merges: whether a pre-token that is a token is taken whole.
        template: the special tokens that `add_special_tokens` puts around texts.
        unicode: the Unicode tables that its training text was split with: `version` and `tables`, a digest of
            the classes of characters that the split pattern tells apart; None where nobody said.
    """

    token_data: NDArray[np.uint8]
    token_offsets: NDArray[np.int64]
    merges: NDArray[np.int32]
    special_tokens: Mapping[str, int]
    split_pattern: PatternLike
    num_reserved: int = 0
    digits: Digits = "pattern"
    normalizer: str | None = None
    ignore_merges: bool = False
    template: Template | None = None
    unicode: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        steps_of(self.normalizer)
        if type(self.num_reserved) is not int or not 0 <= self.num_reserved <= len(self.special_tokens):
            raise VocabularyError(
                f"vocabulary: num_reserved={self.num_reserved!r:.80} must be from 0 to the number of special "
                f"tokens, {len(self.special_tokens)}"
            )
        _check_unicode(self.unicode)
        if self.template is not None:
            self.template.check(self.special_tokens)
        if not isinstance(self.ignore_merges, bool):
            raise VocabularyError(
                f"vocabulary: ignore_merges={self.ignore_merges!r:.80} must be true or false"
            )
        resolve(self.split_pattern, self.digits)
        if self.vocab_size > MAX_IDS or self.merges.shape[0] > MAX_MERGES:
            raise VocabularyError(
                f"vocabulary: {self.vocab_size} ids and {self.merges.shape[0]} merges are too many; "
                f"at most {MAX_IDS} ids and {MAX_MERGES} merges can be used"
            )
        missing = np.flatnonzero(self.byte_ids < 0)
        if missing.shape[0]:
            raise VocabularyError(
                f"vocabulary: {missing.shape[0]} of the 256 bytes are no tokens (the first is "
                f"{int(missing[0]):#04x}), but a byte-level vocabulary must hold them all"
            )

    @classmethod
    def build(
        cls,
        tokens: Mapping[int, bytes],
        merges: Sequence[tuple[bytes, bytes]] | NDArray[np.int32],
        special_tokens: Mapping[str, int],
        **how: Any,
    ) -> Self:
        """Build a definition from byte strings.

        Args:
            tokens: bytes of each id, special tokens left out.
            merges: in order; pairs of byte strings, or int32 rows of left, right and resulting id that are
                known to be right.
            special_tokens: ids by name.
            how: the other attributes.

        Raises:
            VocabularyError: a law is broken; says which, and where.
        """
        every = dict(tokens)
        for name, token in _checked_names(special_tokens):
            if every.setdefault(token, name.encode()) != name.encode():
                raise VocabularyError(
                    f"vocabulary: id {token} is the token {every[token]!r} and the special token {name!r}; "
                    "give one of them another id"
                )
        _check_ids(every)
        by_id = [every.get(token, b"") for token in range(max(every, default=-1) + 1)]
        data, offsets = pack_bytes(by_id)
        vocab = {token: i for i, token in every.items()}
        if len(vocab) < len(every):
            twice = next(token for i, token in every.items() if vocab[token] != i)
            raise VocabularyError(
                f"vocabulary: {twice!r} is a token under two ids (one is {vocab[twice]}); remove one of them"
            )
        rows = merges if isinstance(merges, np.ndarray) else _resolve_merges(vocab, merges)
        specials = dict(sorted(special_tokens.items(), key=lambda item: item[1]))
        return cls(data.copy(), offsets, rows, specials, **how)

    @property
    def vocab_size(self) -> int:
        """The greatest id plus one."""
        return len(self.token_offsets) - 1

    @cached_property
    def tokens(self) -> list[bytes]:
        """The bytes of each id; empty where an id has no token."""
        return unpack(self.token_data, self.token_offsets)

    @cached_property
    def pairs(self) -> list[tuple[bytes, bytes]]:
        """The merges as byte strings, in order of rank."""
        return [(self.tokens[left], self.tokens[right]) for left, right, _ in self.merges.tolist()]

    @cached_property
    def byte_ids(self) -> NDArray[np.int32]:
        """int32, shape (256,): the id of each byte, or -1."""
        singles = np.flatnonzero(np.diff(self.token_offsets) == 1)
        ids = np.full(256, -1, np.int32)
        ids[self.token_data[self.token_offsets[singles]]] = singles
        return ids

    def to_spec(self) -> dict[str, Any]:
        """Give the definition as JSON-able data that it can be built from again.

        Equal tokenizers give equal data. Byte strings are written in GPT-2's byte alphabet. `split_chain` is
        what `split_pattern` and `digits` stand for, so that a spec means the same when a later version knows
        another pattern by that name.
        """
        special_ids = set(self.special_tokens.values())
        tokens = [
            to_text(token) if token and i not in special_ids else None for i, token in enumerate(self.tokens)
        ]
        pattern = self.split_pattern
        template = {} if self.template is None else {"template": self.template.to_spec()}
        unicode = {} if self.unicode is None else {"unicode": dict(self.unicode)}
        return (
            template
            | unicode
            | {
                "format": SPEC_FORMAT,
                "version": TEMPLATE_VERSION if template else SPEC_VERSION,
                "family": FAMILY,
                "normalizer": self.normalizer,
                "split_pattern": pattern if isinstance(pattern, str) else list(pattern),
                "digits": self.digits,
                "split_chain": list(resolve(pattern, self.digits)),
                "ignore_merges": self.ignore_merges,
                "special_tokens": dict(self.special_tokens),
                "num_reserved": self.num_reserved,
                "tokens": tokens,
                "merges": self.merges[:, :2].tolist(),
            }
        )

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], where: str = "spec") -> Self:
        """Build a definition from what `to_spec` gave.

        Raises:
            FormatError: it is not of this form; the message begins with `where`.
        """
        if spec.get("format") != SPEC_FORMAT or spec.get("family") != FAMILY:
            raise FormatError(
                f"{where}: format={spec.get('format')!r} and family={spec.get('family')!r} must be "
                f"{SPEC_FORMAT!r} and {FAMILY!r}"
            )
        if spec.get("version") not in (SPEC_VERSION, TEMPLATE_VERSION):
            raise FormatError(
                f"{where}: version={spec.get('version')!r} is not known here, which reads up to "
                f"{TEMPLATE_VERSION}; a newer tokmill wrote it, so use that one"
            )
        with reading(where):
            return cls._from_fields(spec, where)

    @classmethod
    def _from_fields(cls, spec: Mapping[str, Any], where: str) -> Self:
        tokens = {i: to_bytes(text, where) for i, text in enumerate(spec["tokens"]) if text is not None}
        pattern, digits, chain = spec["split_pattern"], spec["digits"], spec["split_chain"]
        return cls.build(
            tokens,
            [(tokens[left], tokens[right]) for left, right in spec["merges"]],
            spec["special_tokens"],
            num_reserved=spec["num_reserved"],
            normalizer=spec["normalizer"],
            ignore_merges=spec["ignore_merges"],
            template=Template.from_spec(spec["template"]) if "template" in spec else None,
            unicode=spec.get("unicode"),
            **pattern_of(pattern, digits, chain),
        )


def pattern_of(pattern: PatternLike, digits: Digits, chain: list[str]) -> dict[str, Any]:
    """Keep a pattern's name where it still stands for the same chain, and the chain itself otherwise."""
    try:
        same = list(resolve(pattern, digits)) == chain
    except PatternError:
        same = False
    if same:
        return {"split_pattern": pattern if isinstance(pattern, str) else tuple(pattern), "digits": digits}
    return {"split_pattern": tuple(chain), "digits": "pattern"}


def _check_unicode(unicode: object) -> None:
    values = [unicode.get(key) for key in ("version", "tables")] if isinstance(unicode, Mapping) else []
    if unicode is not None and not (
        len(values) == 2
        and all(isinstance(value, str) and value.isprintable() for value in values)
        and all(value.isascii() and len(value) < 100 for value in values if isinstance(value, str))
    ):
        raise VocabularyError(
            f"vocabulary: unicode={unicode!r:.200} must hold the texts 'version' and 'tables', short and in "
            "ASCII, or be left out"
        )


def _checked_names(special_tokens: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    for name, token in special_tokens.items():
        if not isinstance(name, str) or not name or _has_surrogates(name):
            raise VocabularyError(
                f"vocabulary: the special token {name!r:.200} must be a text that is not empty and that "
                "UTF-8 can hold; use e.g. '<|endoftext|>'"
            )
        yield name, token


def _has_surrogates(name: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in name)


def _is_id(token: object) -> bool:
    return isinstance(token, int | np.integer) and not isinstance(token, bool) and 0 <= int(token) < MAX_IDS


def _check_ids(tokens: Mapping[int, bytes]) -> None:
    for token, text in tokens.items():
        if not _is_id(token) or not text:
            raise VocabularyError(
                f"vocabulary: id {token!r:.80} of {text!r:.200}: ids must be from 0 to {MAX_IDS - 1}, "
                "and no token empty"
            )


def _resolve_merges(vocab: Mapping[bytes, int], pairs: Sequence[tuple[bytes, bytes]]) -> NDArray[np.int32]:
    """Turn pairs of byte strings into rows of ids."""
    ids: list[int] = []
    for rank, (left, right) in enumerate(pairs):
        try:
            ids += vocab[left], vocab[right], vocab[left + right]
        except KeyError as error:
            raise VocabularyError(
                f"vocabulary: merge {rank} joins {left!r} and {right!r}, but {error.args[0]!r} is no token"
            ) from None
    if len(set(pairs)) < len(pairs):
        twice = next(pair for pair, number in Counter(pairs).items() if number > 1)
        raise VocabularyError(
            f"vocabulary: {twice[0]!r} and {twice[1]!r} are merged twice; keep the first merge"
        )
    return np.array(ids, np.int32).reshape(-1, 3)
