"""The encoder of BPE over words: tables that threads share, and a workspace with a cache for each."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.components.decoders import ENDS
from tokmill.tokenizer.core.errors import TokenizerError, VocabularyError
from tokmill.tokenizer.core.stopping import raise_if_stopped
from tokmill.tokenizer.core.token_tables import trie_of
from tokmill.tokenizer.kernels.cache import empty_block, empty_cache
from tokmill.tokenizer.kernels.merges import Scratch, make_scratch
from tokmill.tokenizer.kernels.pairs import PairTables, empty_tables, insert_merges
from tokmill.tokenizer.pipeline.base_model import Accounting
from tokmill.tokenizer.pipeline.model import Encoding, Law, SegmentedText
from tokmill.tokenizer.pipeline.workspaces import BEHIND, USUAL_BYTES, LendsWorkspaces
from tokmill.tokenizer.splitting import Pretokens
from tokmill.tokenizer.splitting.splitter import edges_of, words_of
from tokmill.tokenizer.word_bpe.kernels.encoding import Memory, encode_words, locate_words
from tokmill.tokenizer.word_bpe.kernels.merging import Pieces

if TYPE_CHECKING:
    from tokmill.tokenizer.word_bpe.model import WordPairModel

_POINTS = 0x110000


def lay_out(model: "WordPairModel") -> Pieces:
    """Make the kernels' tables of a model."""
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
        trie_of(inner if by_length else {}, vocabulary.size),
        trie_of({i: text for i, text in final.items() if text} if by_length else {}, vocabulary.size),
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


_MAX_BYTES = (1 << 31) - 3
_CACHE_BITS = 16, 14, 18


class WordPairEncoder(LendsWorkspaces["Workspace"]):
    """Turns pre-tokens into ids; safe to share between threads."""

    def __init__(self, model: "WordPairModel") -> None:
        self.law: Law = Accounting(
            model.vocabulary.covered(lambda token: len(token.removesuffix(ENDS))), model.unknown_id
        )
        self.pieces = lay_out(model)
        super().__init__(lambda: Workspace(self.pieces))

    def locate(
        self, ids: NDArray[np.int64], text: SegmentedText
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where each token begins and ends, by encoding again.

        A mark that is a token of its own is nowhere: it begins and ends where its word ends.
        """
        words = words_of(text.data, text.split())
        room = id_room(words, text.kinds.shape[0])
        spans, scratch = np.empty((room, 2), np.int64), scratch_for(words)
        arguments = (
            text.data,
            words.starts,
            words.ends,
            words.offsets,
            text.kinds,
            text.bounds,
            self.pieces,
            scratch,
        )
        number = locate_words(*arguments, np.empty(room, np.uint32), spans)
        return spans[:number, 0].copy(), spans[:number, 1].copy()


class Workspace:
    """An encoder's pieces, and working memory to encode with them; for one thread at a time."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces, self._scratch = pieces, make_scratch(USUAL_BYTES)
        self._cache, self._block = empty_cache(*_CACHE_BITS), empty_block()
        self._nowhere = np.empty((0, 2), np.int64)

    def encode(self, data: NDArray[np.uint8], pretokens: Pretokens, kinds: NDArray[np.int64]) -> Encoding:
        """Encode the pre-tokens of segments."""
        raise_if_stopped()
        words, number = words_of(data, pretokens), kinds.shape[0]
        memory = Memory(self._cache, scratch_for(words, self._scratch), self._block, self._nowhere)
        ids, ends = np.empty(id_room(words, number), np.uint32), np.empty(number + 1, np.int64)
        lost = np.empty(number, np.int64)
        arguments = data, words.starts, words.ends, words.offsets, kinds, edges_of(pretokens, number)
        size = encode_words(*arguments, self._pieces, memory, ids, ends, lost)
        return Encoding(ids[:size], ends, lost)


def id_room(words: Pretokens, num_segments: int) -> int:
    """Return how many ids there may be: one per byte, one for each mark and each segment."""
    return int((words.ends - words.starts + 1).sum()) + num_segments + BEHIND


def scratch_for(words: Pretokens, usual: Scratch | None = None) -> Scratch:
    """Return the usual scratch, or a larger one if a word needs it."""
    longest = int((words.ends - words.starts).max(initial=0))
    if longest > _MAX_BYTES:
        raise TokenizerError(
            f"encode: a word has {longest} bytes, but at most {_MAX_BYTES} can be encoded; cut the document"
        )
    if usual is not None and longest < usual.ids.shape[0]:
        return usual
    return make_scratch(longest + 1)
