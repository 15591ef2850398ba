"""The encoder of WordPiece: finds the words of pre-tokens and cuts them into pieces, in batches."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.closed_vocabulary.encoder import Accounting, lay_out_tokens
from tokmill.tokenizer.components.decoders import CONTINUES
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.stopping import raise_if_stopped
from tokmill.tokenizer.core.tries import lay_out_trie
from tokmill.tokenizer.kernels.token_trie import TokenTrie
from tokmill.tokenizer.pipeline.model import Encoding, Law, TextNormalizer
from tokmill.tokenizer.splitting import Pretokens, Splitter
from tokmill.tokenizer.splitting.splitter import edges_of, words_of
from tokmill.tokenizer.wordpiece.kernels.encoding import Pieces, encode_words
from tokmill.tokenizer.wordpiece.raw_words import RawWords, raw_words

if TYPE_CHECKING:
    from tokmill.tokenizer.wordpiece.model import WordPieceModel

_NOWHERE = np.empty((0, 2), np.int64)


class WordPieceEncoder:
    """Turns pre-tokens into ids; safe to share between threads.

    Attributes:
        law: what every encoding is checked against.
    """

    def __init__(self, model: "WordPieceModel") -> None:
        self._pieces = _lay_out(model)
        self._words = [token for _, token in model.vocabulary.ordinary()]
        self.law: Law = Accounting(_covered(model), model.unknown_id)

    @contextmanager
    def workspace(self) -> Iterator["Workspace"]:
        """Lend a workspace to one thread for the length of the block."""
        yield Workspace(_own(self._pieces))

    def raw_text(self, normalizer: TextNormalizer, splitter: Splitter) -> RawWords | None:
        """Return what encodes text as it is; see `pipeline.model.TakesRawText`."""
        return raw_words(normalizer, splitter, self._pieces, self._words)

    def locate(
        self,
        ids: NDArray[np.int64],
        data: NDArray[np.uint8],
        bounds: NDArray[np.int64],
        kinds: NDArray[np.int64],
        split: Callable[[], Pretokens],
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where each token begins and ends: where its piece does; see `pipeline.model.Encoder`."""
        # a word that turns out to be unknown has had its first pieces written, so these are more than the ids
        spans = np.empty((int(bounds[-1] - bounds[0]) + kinds.shape[0] + 1, 2), np.int64)
        _encode(data, split(), kinds, bounds, _own(self._pieces), spans)
        found = spans[: ids.shape[0]]
        return found[:, 0].copy(), found[:, 1].copy()


class Workspace:
    """A vocabulary's tables with scratch of its own; for one thread at a time."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces

    def encode(self, data: NDArray[np.uint8], pretokens: Pretokens, kinds: NDArray[np.int64]) -> Encoding:
        """Encode the pre-tokens of segments; see `pipeline.model.Workspace`."""
        raise_if_stopped()
        return _encode(data, pretokens, kinds, edges_of(pretokens, kinds.shape[0]), self._pieces, _NOWHERE)


def _encode(
    data: NDArray[np.uint8],
    pretokens: Pretokens,
    kinds: NDArray[np.int64],
    edges: NDArray[np.int64],
    pieces: Pieces,
    spans: NDArray[np.int64],
) -> Encoding:
    words, number = words_of(data, pretokens), kinds.shape[0]
    room = int((words.ends - words.starts).sum()) + number
    ids, ends, lost = np.empty(room, np.uint32), np.empty(number + 1, np.int64), np.empty(number, np.int64)
    given = data, words.starts, words.ends, words.offsets, kinds, edges, pieces
    size = encode_words(*given, ids, ends, lost, spans)
    return Encoding(ids[:size], ends, lost)


def _own(pieces: Pieces) -> Pieces:
    """Return the pieces with a block of scratch for one thread."""
    return pieces._replace(tables=pieces.tables._replace(block=np.empty_like(pieces.tables.block)))


def _lay_out(model: "WordPieceModel") -> Pieces:
    """Lay a vocabulary out for the kernels."""
    vocabulary = model.vocabulary
    beginning, continuing = dict[int, bytes](), dict[int, bytes]()
    for i, token in vocabulary.ordinary():
        is_continuing = model.continues(token)
        (continuing if is_continuing else beginning)[i] = token[len(CONTINUES) :] if is_continuing else token
    ids = np.array(list(beginning), np.int64)
    return Pieces(
        lay_out_tokens(vocabulary, ids),
        _trie(beginning, vocabulary.size),
        _trie(continuing, vocabulary.size),
        model.unknown_id,
        model.max_input_chars_per_word,
        model.unknown == "part",
    )


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


def _covered(model: "WordPieceModel") -> NDArray[np.int64]:
    """Return the offsets of as many bytes as each token covers in a text."""
    covered = [len(token) - len(CONTINUES) * model.continues(token) for token in model.vocabulary.tokens]
    for token in model.vocabulary.special_tokens.values():
        covered[token] = len(model.vocabulary.tokens[token])
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.array(covered, np.int64))])
