"""What a tokenizer is: its parts, its files, and the same tokenizer with other names, roles or templates."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from tokmill.tokenizer import formats
from tokmill.tokenizer.byte_bpe.gpt2 import Merges, Vocab, definition_of
from tokmill.tokenizer.core import buffers, markup
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.renaming import claimed, padded, renamed
from tokmill.tokenizer.splitting import Digits, PatternLike, Splitter

_SHOWN = 24
_SPACES = str.maketrans({" ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍"})


class DescribedTokenizer:
    """A tokenizer as its definition. Immutable, and safe to use from many threads at once.

    Attributes:
        definition: its parts.
        splitter: its compiled split pattern.
    """

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.splitter: Splitter = definition.pre_tokenizer.compile()

    def __repr__(self) -> str:
        return (
            f"Tokenizer({self.family}, vocab_size={self.vocab_size}, "
            f"split_pattern={self.definition.pre_tokenizer.split_pattern!r}, "
            f"num_special_tokens={len(self.special_tokens)})"
        )

    def _repr_html_(self) -> str:
        return _sheet(self.definition)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DescribedTokenizer) and self.spec() == other.spec()

    def __hash__(self) -> int:
        return hash((self.vocab_size, self.definition.vocabulary.data.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self).from_spec, (self.spec(),)

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any]) -> Self:
        """Build a tokenizer from the result of `spec`."""
        return cls(Definition.from_spec(spec))

    @classmethod
    def from_vocab(  # noqa: PLR0913 - each is an option of its own, said by its name
        cls,
        vocab: Vocab,
        merges: Merges,
        *,
        special_tokens: Mapping[str, int] | Iterable[str] = (),
        split_pattern: PatternLike = "gpt2",
        digits: Digits = "pattern",
        normalizer: str | None = None,
        ignore_merges: bool = False,
        num_reserved: int = 0,
        unicode: Mapping[str, str] | None = None,
    ) -> Self:
        """Build a byte-level BPE tokenizer from a vocabulary and its merges, as in other libraries.

        Args:
            vocab: ids by byte string, or byte strings by id; with or without the special tokens.
            merges: pairs of byte strings, in order of rank.
            special_tokens: ids by name, or names; a name that the vocabulary lacks gets the next free id.
            split_pattern: a name, an expression, or a chain of expressions.
            digits: how numbers are cut, as in training.
            normalizer: steps joined with `+`; None for none.
            ignore_merges: whether a pre-token that is a token is not cut by merges.
            num_reserved: number of reserved special tokens.
            unicode: the tables of characters that its text was split with; None if unknown.

        Raises:
            VocabularyError: the vocabulary breaks a law of `byte_bpe.model`; the message names it and the
                place.
            SpecialTokenError: a name that cannot be a special token.
        """
        parts = {
            "split_pattern": split_pattern,
            "digits": digits,
            "normalizer": normalizer,
            "unicode": unicode,
        }
        own = {"ignore_merges": ignore_merges, "num_reserved": num_reserved}
        return cls(definition_of(vocab, merges, special_tokens, **own, **parts))

    def spec(self) -> dict[str, Any]:
        """Return everything that decides the ids as JSON-able data, equal for equal tokenizers."""
        return self.definition.to_spec()

    def save(self, path: str | Path, format: str = "tokmill") -> list[Path]:
        """Write the tokenizer; see `formats` for the formats and their files.

        Returns:
            The files that were written.

        Raises:
            FormatError: the format cannot express this tokenizer; the message has the reason.
        """
        return formats.save(self.definition, Path(path), format)

    @property
    def family(self) -> str:
        """The name of its family."""
        return self.definition.family

    @property
    def vocab_size(self) -> int:
        """The greatest id plus one."""
        return self.definition.vocab_size

    @property
    def special_tokens(self) -> Mapping[str, int]:
        """Ids of the special tokens by name, reserved ones included, in order of id."""
        return MappingProxyType(dict(self.definition.special_tokens))

    @property
    def added_tokens(self) -> Mapping[str, int]:
        """Ids of the added tokens by text: ordinary ones that are found in every text before it is split."""
        return MappingProxyType(dict(self.definition.added_ids))

    @property
    def roles(self) -> dict[str, str]:
        """Special tokens by role, e.g. `{"eos": "<|endoftext|>"}`; `components.roles` has the roles."""
        return self.definition.all_roles

    @property
    def chat_templates(self) -> dict[str, str]:
        """Texts of Jinja templates by name, `default` for the usual one; they are carried, never executed."""
        return dict(self.definition.chat_templates)

    def with_roles(self, **roles: str | None) -> Self:
        """Return the same tokenizer with some other roles, e.g. `eos="<|im_end|>"`; None takes one away.

        Raises:
            VocabularyError: a role is not known, or its token is not a special token.
        """
        return type(self)(self.definition.with_roles(roles))

    def with_chat_template(self, text: str | None, name: str = "default") -> Self:
        """Return the same tokenizer with a chat template; None takes it away.

        Raises:
            VocabularyError: it is too long, or no text that UTF-8 can hold.
        """
        others = {key: value for key, value in self.chat_templates.items() if key != name}
        added = {} if text is None else {name: text}
        return type(self)(self.definition.with_chat_templates(others | added))

    def with_template(self, single: str | None, pair: str | None = None) -> Self:
        """Return the same tokenizer with a template of special tokens around texts; None takes it away.

        Args:
            single: for one text, e.g. `[CLS] $A [SEP]`.
            pair: for two, e.g. `[CLS] $A [SEP] $B:1 [SEP]:1`, which is what follows from that for one.

        Raises:
            VocabularyError: it is invalid, or has a token that is not a special token.
        """
        return type(self)(self.definition.with_template(single, pair))

    def claim(self, names: Sequence[str]) -> Self:
        """Return the same tokenizer with names for its first reserved tokens; no id moves.

        Raises:
            TokenizerError: fewer are reserved, or a name is a token already.
        """
        return type(self)(claimed(self.definition, names))

    def rename(self, names: Mapping[str, str]) -> Self:
        """Return the same tokenizer with other names of special tokens, new by old; no id moves.

        Raises:
            TokenizerError: an old name is not a special token, or a new one is a token already.
        """
        return type(self)(renamed(self.definition, names))

    def pad_to_multiple_of(self, multiple: int) -> Self:
        """Return the same tokenizer with reserved tokens up to a multiple of a number, such as 64 or 128.

        Raises:
            VocabularyError: `multiple` is less than one, or there would be too many ids.
        """
        return type(self)(padded(self.definition, multiple))

    @cached_property
    def vocab(self) -> dict[bytes, int]:
        """Ids by byte string, special tokens included, in order of id."""
        return dict(self.definition.vocabulary.ids)

    @cached_property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The merges in the order of their ranks.

        Raises:
            VocabularyError: the family has none.
        """
        pairs: list[tuple[bytes, bytes]] | None = getattr(self.definition.model, "pairs", None)
        if pairs is None:
            raise VocabularyError(f"merges: a {self.family} tokenizer has none; ask one of family byte_bpe")
        return pairs

    @property
    def id_type(self) -> type[np.uint16] | type[np.uint32]:
        """uint16 if every id fits, otherwise uint32."""
        return buffers.id_type(self.vocab_size)


def _sheet(definition: Definition) -> str:
    """Return a tokenizer's figures, special tokens and longest tokens as HTML."""
    pairs: dict[str, object] = {
        "family": definition.family,
        "vocabulary": f"{definition.vocab_size:,} tokens",
        "split pattern": definition.pre_tokenizer.split_pattern,
        "special tokens": _listed(definition.special_tokens),
        **({"added tokens": _listed(definition.added_ids)} if definition.added_ids else {}),
        "longest tokens": " ".join(_longest(definition)),
    }
    return markup.sheet("Tokenizer", markup.figures(pairs))


def _listed(names: Mapping[str, int]) -> str:
    shown = ", ".join(f"{name} = {token}" for name, token in list(names.items())[:_SHOWN])
    return shown + (f", … ({len(names)} in all)" if len(names) > _SHOWN else "") or "none"


def _longest(definition: Definition) -> list[str]:
    """Return the longest tokens that stand for text, spaces made visible; of equal ones the first ids."""
    ordinary = definition.vocabulary.ordinary()
    found = sorted(ordinary, key=lambda entry: (-len(entry[1]), entry[0]))[:_SHOWN]
    return [token.decode("utf-8", "replace").translate(_SPACES) for _, token in found]
