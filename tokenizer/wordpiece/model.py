"""The model of WordPiece: pieces that begin words, and pieces with `##` that continue them.

A word (a run of characters of a pre-token that are not white space) is cut into the longest piece that it
begins with, then the longest continuing piece at each place. Laws: the bytes of the pieces, without `##`, of
unknown text and of white space add up to the normalized text. A word that does not fit, or has more than
`max_input_chars_per_word` characters, is unknown as a whole (`unknown="word"`, as BERT's). With `"part"` a
place where no continuing piece fits may take a piece that begins words, and neighbouring characters where
none fits become one unknown token. Text of `##` and a piece is no continuing piece, as decoding would take
its `##` away.

Training is from counts of pre-tokens; the pair with the best score is joined next (`merging.trainer`). Laws:
a word counts as often as the pre-tokens that contain it; the same counts give the same pieces in any order; a
smaller vocabulary is a prefix of a larger one; no piece has a special token's bytes. Ids: `[UNK]` is 0, then
the characters, the most frequent first, as many as there is room for, joined pieces in order, special and
reserved tokens.
"""

import functools
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.components.character_maps import PAGE, CharacterMap
from tokmill.tokenizer.components.decoders import CONTINUES
from tokmill.tokenizer.components.normalizers import Normalizer
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.stopping import raise_if_stopped
from tokmill.tokenizer.core.token_tables import trie_of
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.counting import count_words
from tokmill.tokenizer.jit.arrays import zero_pages
from tokmill.tokenizer.kernels.cache import BLOCK, EncodingCache, copy_cache, empty_block, empty_cache
from tokmill.tokenizer.kernels.encoding import NOWHERE
from tokmill.tokenizer.merging.rules import Marks, MergeRules
from tokmill.tokenizer.merging.trainer import learn_merges
from tokmill.tokenizer.pipeline.base_model import (
    SPECIAL_WITH_UNKNOWN,
    UNKNOWN,
    UNKNOWN_PROBES,
    BaseModel,
    PrefixTraining,
    check_size,
    check_unknown,
    least_vocab_size,
    names_of,
    piece_vocabulary,
)
from tokmill.tokenizer.pipeline.encoder import KernelEncoder, LendsWorkspaces
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Encoding, Progress, TextNormalizer
from tokmill.tokenizer.pipeline.options import ModelOptions, Unknown, refuse_tie_break
from tokmill.tokenizer.reference.wordpiece import encode
from tokmill.tokenizer.splitting import Pretokens, Splitter, compile_pattern, resolve
from tokmill.tokenizer.splitting.splitter import words_of
from tokmill.tokenizer.wordpiece.kernels import Pieces, encode_words
from tokmill.tokenizer.wordpiece.raw_words import (
    ALONE,
    ASKS,
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

NAME = "wordpiece"
MAX_INPUT_CHARS = 100
_PROBES = MappingProxyType({**UNKNOWN_PROBES, "long word": "Aa" * 60})


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


class WordPieceEncoder(KernelEncoder):
    """Turns pre-tokens into ids, or text as it is; safe to share between threads."""

    def __init__(self, model: "WordPieceModel") -> None:
        vocabulary, unknown_id = model.vocabulary, model.unknown_id
        self._words = [token for _, token in vocabulary.ordinary()]
        covered = vocabulary.covered(lambda token: len(token) - len(CONTINUES) * continues(token))
        super().__init__(encode_words, _lay_out(model), covered, unknown_id, cut=words_of)

    def raw_text(self, normalizer: TextNormalizer, splitter: Splitter) -> RawWords | None:
        """Return what encodes text as it is."""
        return raw_words(normalizer, splitter, self.parts.model, self._words)


@dataclass(frozen=True, eq=False)
class WordPieceModel(BaseModel):
    """A WordPiece model.

    Attributes:
        vocabulary: the bytes of every id, `##` included; the unknown token is one of its special tokens.
        unknown_token: the name of the unknown token.
        max_input_chars_per_word: longer words are unknown as a whole.
        unknown: what becomes unknown where no piece fits: the `word`, or the `part`.

    Raises:
        VocabularyError: the unknown token is not a special token, an option is invalid, or there are too many
            ids.
    """

    unknown_token: str = UNKNOWN
    max_input_chars_per_word: int = MAX_INPUT_CHARS
    unknown: Unknown = "word"

    family = NAME

    def __post_init__(self) -> None:
        check_unknown(self.vocabulary, self.unknown_token)
        check_size(self.vocabulary)
        most = self.max_input_chars_per_word
        if type(most) is not int or not 0 < most < 1 << 31:
            raise VocabularyError(
                f"vocabulary: max_input_chars_per_word={most!r:.80} must be a number from 1 to 2^31 - 1"
            )
        if self.unknown not in get_args(Unknown):
            raise VocabularyError(f"vocabulary: unknown={self.unknown!r:.80} must be 'word' or 'part'")

    @classmethod
    def from_spec(cls, vocabulary: Vocabulary, spec: Mapping[str, Any]) -> "WordPieceModel":
        """Build a model from the result of `spec`."""
        return cls(vocabulary, spec["unknown_token"], spec["max_input_chars_per_word"], spec["unknown"])

    def spec(self) -> dict[str, Any]:
        """Return the unknown token's name, and the rules of what becomes unknown."""
        return {
            "unknown_token": self.unknown_token,
            "max_input_chars_per_word": self.max_input_chars_per_word,
            "unknown": self.unknown,
        }

    def encoder(self) -> WordPieceEncoder:
        """Make an encoder."""
        return WordPieceEncoder(self)

    def kind(self, token: bytes) -> str:
        """Return the kind of an ordinary token."""
        return "continuing" if continues(token) else "word"

    def figures(self) -> dict[str, int]:
        """Return the number of pieces, and of those that continue words."""
        pieces = [token for _, token in self.vocabulary.ordinary()]
        return {"num_pieces": len(pieces), "num_continuing": sum(map(continues, pieces))}

    def recovers(self, pretokens: Sequence[bytes]) -> list[bytes]:
        """Return the pieces of the words, found by trying; the unknown token's name where none fits."""
        data, offsets = pack_bytes(list(pretokens))
        words = words_of(data, Pretokens(offsets[:-1], offsets[1:], np.array([0, len(pretokens)])))
        by_part, most = self.unknown == "part", self.max_input_chars_per_word
        found: list[str] = []
        for start, end in zip(words.starts.tolist(), words.ends.tolist(), strict=True):
            word = data[start:end].tobytes().decode("utf-8", "surrogateescape")
            found += encode(word, self._pieces, by_part=by_part, max_chars=most)
        return [
            self.unknown_token.encode() if piece == UNKNOWN else piece.encode("utf-8", "surrogateescape")
            for piece in found
        ]

    @cached_property
    def _pieces(self) -> set[str]:
        return {token.decode("utf-8", "surrogateescape") for _, token in self.vocabulary.ordinary()}

    def probes(self) -> Mapping[str, str]:
        """Return a text that is unlikely to be in any vocabulary, and a long word."""
        return _PROBES


_BESIDE = b"x"  # a part of words that no character joins
_VISIBLE, _WHITE = list(range(0x21, 0x7F)), [9, 10, 13, 32]
_PLAIN = [(WORD if chr(point).isalnum() else ALONE) + (1 << KIND_BITS) for point in _VISIBLE]
"""The kinds of ASCII's visible characters for which the kernel has a short way."""

_CACHE_BITS = 16, 14, 18
_USUAL_IDS = 1 << 18


class RawWorkspace:
    """A memory of words, and room for ids; for one thread at a time."""

    def __init__(self, characters: CharacterKinds, pieces: Pieces, cache: EncodingCache) -> None:
        self._characters, self._pieces = characters, pieces
        units = Units(*np.empty((3, BLOCK), np.int64))
        self._memory = Memory(cache, units, empty_block(), np.empty(MAX_WORD + 16, np.uint8), NOWHERE)
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


def continues(token: bytes) -> bool:
    """Whether a token is a piece that continues a word."""
    return token.startswith(CONTINUES) and len(token) > len(CONTINUES)


def _lay_out(model: WordPieceModel) -> Pieces:
    """Lay a vocabulary out for the kernels."""
    size, beginning, continuing = model.vocabulary.size, dict[int, bytes](), dict[int, bytes]()
    for i, token in model.vocabulary.ordinary():
        if continues(token):
            continuing[i] = token[len(CONTINUES) :]
        else:
            beginning[i] = token
    limits = model.max_input_chars_per_word, model.unknown == "part"
    return Pieces(trie_of(beginning, size), trie_of(continuing, size), model.unknown_id, *limits)


class WordPieceTraining(PrefixTraining):
    """Learns pieces of the words of pre-tokens."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        check_options(options)
        super().__init__(options, vocab_sizes, {SPECIAL_WITH_UNKNOWN: len(names_of(options))})
        self._words = count_words(counts)

    def learn(self, number: int, progress: Progress | None) -> int:
        """Learn pieces; return how many there are."""
        by_likelihood = self.options.score == "likelihood"
        rules = MergeRules.of(self.options, names_of(self.options), tie_break=None)
        rules = replace(rules, marks=Marks(CONTINUES), by_likelihood=by_likelihood)
        self._pieces = learn_merges(self._words, number, rules, progress=progress).pieces
        return len(self._pieces)

    def model(self, number: int) -> WordPieceModel:
        """Make the model of the first pieces."""
        most, rule = self.options.max_input_chars_per_word, self.options.unknown
        return WordPieceModel(piece_vocabulary(self._pieces[:number], self.options), UNKNOWN, most, rule)


def check_options(options: ModelOptions) -> None:
    """Refuse the tie rules of byte-level BPE."""
    refuse_tie_break(
        options,
        "byte-level BPE; of pairs with equal scores wordpiece joins the more frequent one first",
    )


FAMILY = Family(
    NAME,
    "WordPiece",
    "pieces",
    WordPieceModel.from_spec,
    WordPieceTraining,
    least_vocab_size,
    {
        "huggingface": "tokmill.tokenizer.wordpiece.formats:HUGGINGFACE",
        **dict.fromkeys(("bert", "gguf"), "tokmill.tokenizer.wordpiece.formats"),
    },
    "wordpiece",
    check_options=check_options,
    revision=1,
)
