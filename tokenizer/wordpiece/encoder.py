"""The encoder of WordPiece: finds the words of pre-tokens and cuts them into pieces, in batches.

Words of text that is not normalized yet are not normalized again if they were met before, with a normalizer
that changes each character by itself, and BERT's pre-tokenizer, which cuts by the kinds of single characters
(`kernels.raw_words`). Law: ids are those of the normalizer, the split pattern and the model, one after the
other; text with a character that these treat otherwise goes through them.
"""

import functools
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.components.character_maps import PAGE, CharacterMap
from tokmill.tokenizer.components.decoders import CONTINUES
from tokmill.tokenizer.components.normalizers import Normalizer
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.stopping import raise_if_stopped
from tokmill.tokenizer.core.token_tables import lay_out_tokens, trie_of
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.jit.arrays import zero_pages
from tokmill.tokenizer.kernels.cache import EncodingCache, copy_cache, empty_cache
from tokmill.tokenizer.pipeline.base_model import Accounting
from tokmill.tokenizer.pipeline.model import Encoding, Law, SegmentedText, TextNormalizer
from tokmill.tokenizer.pipeline.workspaces import LendsWorkspaces
from tokmill.tokenizer.splitting import Pretokens, Splitter, compile_pattern, resolve
from tokmill.tokenizer.splitting.splitter import edges_of, words_of
from tokmill.tokenizer.wordpiece.kernels.encoding import Pieces, encode_words
from tokmill.tokenizer.wordpiece.kernels.raw_words import (
    ALONE,
    ASKS,
    BLOCK,
    DONE,
    FULL,
    GONE,
    KIND_BITS,
    MAX_WORD,
    MIXED,
    SPACE,
    WORD,
    Memory,
    RawTables,
    Units,
    encode_raw,
)

_BESIDE = b"x"  # a part of words that no character joins
_VISIBLE, _WHITE = list(range(0x21, 0x7F)), [9, 10, 13, 32]
_PLAIN = [(WORD if chr(point).isalnum() else ALONE) + (1 << KIND_BITS) for point in _VISIBLE]
"""The kinds of ASCII's visible characters for which the kernel has a short way."""

_CACHE_BITS = 16, 14, 18
_USUAL_IDS = 1 << 18


class CharacterKinds:
    """What becomes of characters under a normalizer and a pre-tokenizer; safe to share between threads."""

    def __init__(self, characters: CharacterMap, splitter: Splitter) -> None:
        self._characters, self._splitter, self._lock = characters, splitter, threading.Lock()
        self._kinds = zero_pages(0x110000, np.uint8)
        self.ask(0)
        plain = bool((self._kinds[_VISIBLE] == _PLAIN).all() and (self._kinds[_WHITE] == SPACE).all())
        self.tables = RawTables(self._kinds, characters.tables, plain)

    def ask(self, point: int) -> None:
        """Find out the kinds of the characters of a page."""
        first = point // PAGE * PAGE
        with self._lock:
            texts = self._characters.page(first)
            kinds = _kinds_of([text or b"" for text in texts], self._splitter)
            kinds[[text is None for text in texts]] = MIXED
            self._kinds[first : first + PAGE] = kinds


class RawWords(LendsWorkspaces["RawWorkspace"]):
    """Encodes text as it is; safe to share between threads, which borrow a workspace each."""

    def __init__(self, characters: CharacterKinds, pieces: Pieces, words: Sequence[bytes]) -> None:
        """Take the kinds of characters, the vocabulary, and words that are met soon."""
        cache = empty_cache(*_CACHE_BITS)
        super().__init__(lambda: RawWorkspace(characters, pieces, copy_cache(cache)))
        data, offsets = pack_bytes([b" ".join(words)])
        RawWorkspace(characters, pieces, cache).encode(data, offsets, np.array([-1]))


class RawWorkspace:
    """A memory of words, and room for ids; for one thread at a time."""

    def __init__(self, characters: CharacterKinds, pieces: Pieces, cache: EncodingCache) -> None:
        self._characters = characters
        self._pieces = pieces._replace(
            tables=pieces.tables._replace(block=np.empty_like(pieces.tables.block))
        )
        places, starts, ends, sizes = np.empty((4, BLOCK), np.int64)
        lows, highs = np.empty((2, BLOCK), np.uint64)
        units = Units(places, lows, highs, starts, ends, sizes)
        word, where = np.empty(MAX_WORD + 16, np.uint8), np.zeros((2, 1), np.int64)
        self._memory = Memory(cache, units, word, where[0], where[1], np.empty((0, 2), np.int64))
        self._ids = np.empty(_USUAL_IDS, np.uint32)

    def encode(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64], kinds: NDArray[np.int64]
    ) -> tuple[Encoding, NDArray[np.int64]] | None:
        """Encode segments of text."""
        raise_if_stopped()
        number = kinds.shape[0]
        ends, (sizes, lost) = np.zeros(number + 1, np.int64), np.zeros((2, number), np.int64)
        state = np.array([0, bounds[0], 0, 0], np.int64)
        arguments = data, bounds, kinds, self._characters.tables, self._pieces, self._memory
        ids = self._ids
        while (why := encode_raw(*arguments, ids, ends, sizes, lost, state)) != DONE:
            if why == ASKS:
                self._characters.ask(int(state[3]))
            elif why == FULL:
                ids = np.concatenate([ids, np.empty_like(ids)])  # and not kept, as it may be large
            else:
                return None
        edges = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
        return Encoding(ids[: state[2]], ends, lost), edges


def raw_words(
    normalizer: TextNormalizer, splitter: Splitter, pieces: Pieces, words: Iterable[bytes]
) -> RawWords | None:
    """Return what encodes text as it is, or None if these do not allow that."""
    characters = normalizer.characters if isinstance(normalizer, Normalizer) else None
    if characters is None or splitter.chain != resolve("bert"):
        return None
    soon = [word for word in words if word.isalnum() and word.isascii()]
    return RawWords(_kinds_under(characters), pieces, soon[::-1])


@functools.lru_cache(maxsize=8)
def _kinds_under(characters: CharacterMap) -> CharacterKinds:
    """Return the kinds of characters with BERT's pre-tokenizer, once for each normalizer."""
    return CharacterKinds(characters, compile_pattern("bert"))


def _kinds_of(texts: list[bytes], splitter: Splitter) -> NDArray[np.uint8]:
    """Return what normalized texts of characters do between parts of words, with their bytes."""
    data, offsets = pack_bytes([_BESIDE + text + _BESIDE for text in texts])
    words = words_of(data, splitter.split(data, offsets))
    number = np.diff(words.offsets)
    firsts, lasts = words.offsets[:-1], words.offsets[1:] - 1
    lengths = words.ends - words.starts
    total = np.add.reduceat(lengths, firsts) - 2 * len(_BESIDE)
    apart = (lengths[firsts] == len(_BESIDE)) & (lengths[lasts] == len(_BESIDE))
    kinds = np.full(len(texts), MIXED, np.int64)
    kinds[number == 1] = WORD
    kinds[(number == 1) & (total == 0)] = GONE
    kinds[(number == 2) & (total == 0)] = SPACE
    kinds[(number == 3) & (total > 0) & apart] = ALONE
    return (kinds + (total << KIND_BITS)).astype(np.uint8)


_NOWHERE = np.empty((0, 2), np.int64)


class WordPieceEncoder:
    """Turns pre-tokens into ids; safe to share between threads."""

    def __init__(self, vocabulary: Vocabulary, unknown_id: int, max_chars: int, by_part: bool) -> None:
        self._pieces = _lay_out(vocabulary, unknown_id, max_chars, by_part)
        self._words = [token for _, token in vocabulary.ordinary()]
        covered = vocabulary.covered(lambda token: len(token) - len(CONTINUES) * continues(token))
        self.law: Law = Accounting(covered, unknown_id)

    @contextmanager
    def workspace(self) -> Iterator["Workspace"]:
        """Lend a workspace to one thread for the length of the block."""
        yield Workspace(_own(self._pieces))

    def raw_text(self, normalizer: TextNormalizer, splitter: Splitter) -> RawWords | None:
        """Return what encodes text as it is."""
        return raw_words(normalizer, splitter, self._pieces, self._words)

    def locate(
        self, ids: NDArray[np.int64], text: SegmentedText
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where each token begins and ends: where its piece does."""
        # a word that turns out to be unknown has had its first pieces written, so these are more than the ids
        spans = np.empty((int(text.bounds[-1] - text.bounds[0]) + text.kinds.shape[0] + 1, 2), np.int64)
        _encode(text.data, text.split(), text.kinds, text.bounds, _own(self._pieces), spans)
        found = spans[: ids.shape[0]]
        return found[:, 0].copy(), found[:, 1].copy()


class Workspace:
    """A vocabulary's tables with scratch of its own; for one thread at a time."""

    def __init__(self, pieces: Pieces) -> None:
        self._pieces = pieces

    def encode(self, data: NDArray[np.uint8], pretokens: Pretokens, kinds: NDArray[np.int64]) -> Encoding:
        """Encode the pre-tokens of segments."""
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
    arguments = data, words.starts, words.ends, words.offsets, kinds, edges, pieces
    size = encode_words(*arguments, ids, ends, lost, spans)
    return Encoding(ids[:size], ends, lost)


def _own(pieces: Pieces) -> Pieces:
    """Return the pieces with a block of scratch for one thread."""
    return pieces._replace(tables=pieces.tables._replace(block=np.empty_like(pieces.tables.block)))


def continues(token: bytes) -> bool:
    """Whether a token is a piece that continues a word."""
    return token.startswith(CONTINUES) and len(token) > len(CONTINUES)


def _lay_out(vocabulary: Vocabulary, unknown_id: int, max_chars: int, by_part: bool) -> Pieces:
    """Lay a vocabulary out for the kernels."""
    beginning, continuing = dict[int, bytes](), dict[int, bytes]()
    for i, token in vocabulary.ordinary():
        is_continuing = continues(token)
        (continuing if is_continuing else beginning)[i] = token[len(CONTINUES) :] if is_continuing else token
    ids = np.array(list(beginning), np.int64)
    return Pieces(
        lay_out_tokens(vocabulary, ids),
        trie_of(beginning, vocabulary.size),
        trie_of(continuing, vocabulary.size),
        unknown_id,
        max_chars,
        by_part,
    )
