"""GPT-2's format: `vocab.json` (ids by token) and `merges.txt` (one pair per line), in GPT-2's byte alphabet.

A sidecar says how text is split and which tokens are special. Without one, the split pattern is GPT-2's, and
the special tokens are those that are not a byte and that no merge makes. They stand there as their own text.
Source: openai/gpt-2 `encoder.py`.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

from tokmill.tokenizer.byte_bpe.model import define, model_of, read_merges
from tokmill.tokenizer.components.specials import check_names
from tokmill.tokenizer.core.errors import FormatError, VocabularyError, refuse_malformed
from tokmill.tokenizer.core.text import to_byte_strings, to_bytes, to_texts
from tokmill.tokenizer.core.vocabulary import texts_by_id
from tokmill.tokenizer.formats.models import read_pairs, special_ids, vocab_by_text, write_pairs
from tokmill.tokenizer.formats.sidecar import Usage
from tokmill.tokenizer.pipeline.definition import Definition


def write(definition: Definition, folder: Path) -> list[Path]:
    """Write the two files and the sidecar into a folder."""
    model = model_of(definition)
    texts = to_texts(definition.tokens)
    vocab = vocab_by_text(definition, "gpt2", texts)
    pairs = [(texts[left], texts[right]) for left, right, _ in model.merges.tolist()]
    return write_pairs(definition, folder, vocab, pairs, ignore_merges=model.ignore_merges)


def read(path: Path, usage: Usage) -> Definition:
    """Read the two files."""
    vocab, pairs, usage, where = read_pairs(path, usage, check=to_byte_strings)
    with refuse_malformed(where):
        return _definition(vocab, pairs, usage, where)


def _definition(vocab: dict[str, int], pairs: list[tuple[str, str]], usage: Usage, where: str) -> Definition:
    specials = special_ids(vocab, pairs, usage.special_tokens, _may_be_special)
    ordinary = {text: i for text, i in vocab.items() if text not in specials}
    texts = texts_by_id(ordinary, {})
    tokens = dict(zip(texts, to_byte_strings([*texts.values()], where), strict=True))
    return define(
        tokens,
        read_merges(pairs, texts, where),
        specials,
        ignore_merges=bool(usage.ignore_merges),
        num_reserved=usage.num_reserved or 0,
        **usage.parts("gpt2"),
    )


def _may_be_special(text: str) -> bool:
    """Whether a text is not a byte in the alphabet."""
    try:
        to_bytes(text)
    except FormatError:
        return True
    return len(text) != 1


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
