"""The kernels' tables of a model of BPE over words."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.components.decoders import ENDS
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.tries import lay_out_trie
from tokmill.tokenizer.kernels.pairs import PairTables, empty_tables, insert_merges
from tokmill.tokenizer.kernels.token_trie import TokenTrie
from tokmill.tokenizer.word_bpe.kernels.merging import Pieces

if TYPE_CHECKING:
    from tokmill.tokenizer.word_bpe.model import WordPairModel

_POINTS = 0x110000


def lay_out(model: "WordPairModel") -> Pieces:
    """Make the kernels' tables of a model.

    Raises:
        VocabularyError: a pair has two merges.
    """
    vocabulary, by_bytes, by_length = model.vocabulary, model.by_bytes, model.by_length
    inner = {i: token for i, token in vocabulary.ordinary() if not token.endswith(ENDS)}
    final = {i: token[: -len(ENDS)] for i, token in vocabulary.ordinary() if token.endswith(ENDS)}
    symbols, apart = _symbols(inner, by_bytes, vocabulary.size), model.is_apart
    return Pieces(
        symbols,
        symbols if apart else _symbols(final, by_bytes, vocabulary.size),
        by_bytes,
        vocabulary.ids[ENDS] if apart else -1,
        _pairs(model),
        by_length,
        _trie(inner if by_length else {}, vocabulary.size),
        _trie({i: text for i, text in final.items() if text} if by_length else {}, vocabulary.size),
        max(map(len, [*inner.values(), *final.values()]), default=0),
        vocabulary.size,
        model.unknown_id,
        model.fuse_unknown,
    )


def _symbols(texts: dict[int, bytes], by_bytes: bool, unknown: int) -> NDArray[np.int32]:
    """Return the ids of single characters by code point, or of single bytes by byte."""
    symbols = np.full(256 if by_bytes else _POINTS, unknown, np.int32)
    for i, text in texts.items():
        if by_bytes and len(text) == 1:
            symbols[text[0]] = i
        elif not by_bytes and len(text.decode()) == 1:
            symbols[ord(text.decode())] = i
    return symbols


def _pairs(model: "WordPairModel") -> PairTables:
    rows = model.merges
    tables = empty_tables(np.full(256, model.vocabulary.size, np.int32), max(rows.shape[0], 1))
    left, right, result = (np.ascontiguousarray(rows[:, column]) for column in range(3))
    twice = insert_merges(tables, left, right, result)
    if twice >= 0:
        pair = model.pairs[twice]
        raise VocabularyError(f"vocabulary: merge {twice} of {pair[0]!r} and {pair[1]!r} is there twice")
    return tables


def _trie(texts: dict[int, bytes], size: int) -> TokenTrie:
    """Return the trie of some ids by their texts."""
    data, offsets = pack_bytes([texts.get(i, b"") for i in range(size)])
    byte_ids = np.full(256, -1, np.int32)
    longer = []
    for i, text in texts.items():
        if len(text) == 1:
            byte_ids[text[0]] = i
        else:
            longer.append(i)
    return lay_out_trie(data.copy(), offsets, np.array(longer, np.int64), byte_ids)[0]


def covered(model: "WordPairModel") -> NDArray[np.int64]:
    """Return the offsets of as many bytes as each token covers in a text: the mark stands for none."""
    lengths = [len(token.removesuffix(ENDS)) for token in model.vocabulary.tokens]
    for token in model.vocabulary.special_tokens.values():
        lengths[token] = len(model.vocabulary.tokens[token])
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(lengths, np.int64))])
