"""Byte-level BPE from a vocabulary in memory: a mapping and a list of merges."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from tokmill.tokenizer.byte_bpe.model import define
from tokmill.tokenizer.components.specials import check_names
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.pipeline.definition import Definition

Vocab: TypeAlias = Mapping[bytes, int] | Mapping[int, bytes]
Merges: TypeAlias = Sequence[tuple[bytes, bytes]]


def definition_of(
    vocab: Vocab, merges: Merges, special_tokens: Mapping[str, int] | Iterable[str], **how: Any
) -> Definition:
    """Build a definition; see `Tokenizer.from_vocab`."""
    tokens = _by_id(vocab)
    specials = _special_ids(tokens, special_tokens)
    names = {name.encode() for name in specials}
    return define(
        {token: text for token, text in tokens.items() if text not in names},
        [_checked_pair(rank, pair) for rank, pair in enumerate(merges)],
        specials,
        **how,
    )


def _by_id(vocab: Vocab) -> dict[int, bytes]:
    """Turn a vocabulary of either direction into bytes by id."""
    if not isinstance(vocab, Mapping):
        raise VocabularyError(
            f"vocab: {type(vocab).__name__} must be a mapping, of bytes to ids or of ids to bytes"
        )
    forward = all(isinstance(key, bytes) for key in vocab)
    tokens: dict[int, bytes] = {}
    for key, value in vocab.items():
        text, token = (key, value) if forward else (value, key)
        if not isinstance(text, bytes) or not isinstance(token, int):
            raise VocabularyError(
                f"vocab: {key!r}: {value!r} must be bytes and an integer id, in the same order in all entries"
            )
        if token in tokens:
            raise VocabularyError(
                f"vocab: {tokens[token]!r} and {text!r} have the same id {token}; give one of them another"
            )
        tokens[token] = text
    return tokens


def _special_ids(
    tokens: Mapping[int, bytes], special_tokens: Mapping[str, int] | Iterable[str]
) -> dict[str, int]:
    """Return the id of each special token: the given one, else the vocabulary's, else the next free one."""
    names = check_names(special_tokens, "special_tokens")
    if isinstance(special_tokens, Mapping):
        return {name: special_tokens[name] for name in names}
    known = {text: token for token, text in tokens.items()}
    free = itertools.count(max(tokens, default=-1) + 1)
    return {name: known[name.encode()] if name.encode() in known else next(free) for name in names}


def _checked_pair(rank: int, pair: Any) -> tuple[bytes, bytes]:
    parts = tuple(pair) if isinstance(pair, tuple | list) else ()
    if len(parts) != 2 or not all(isinstance(part, bytes) for part in parts):
        raise VocabularyError(
            f"merges: merge {rank} is {pair!r:.80}, but must be a pair of byte strings such as (b't', b'he')"
        )
    return cast(tuple[bytes, bytes], parts)
