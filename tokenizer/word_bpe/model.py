"""The model of BPE over words: merges of the letters of words, whose ends are marked with `</w>`.

Words are the runs of characters of a pre-token that are not white space. `</w>` is attached to the last
letter, or stands after it (`end_of_word`). Letters are characters or bytes (as in CLIP). Laws: by `merges`,
the neighbours of the merge of lowest rank are joined, the leftmost first; by `longest_first`, the longest
piece anywhere in the word is taken, the leftmost first. Letters that no piece covers become the unknown
token. The bytes of pieces, without `</w>`, of unknown text and of white space add up to the normalized text.
Lost: white space, of which decoding puts one space after each `</w>`, and unknown text. Source: Sennrich,
Haddow and Birch 2016.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self, cast, get_args

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.components.decoders import ENDS
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.token_tables import trie_of
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.merges import Unknown, make_scratch
from tokmill.tokenizer.kernels.pair_tables import MAX_IDS, tables_of
from tokmill.tokenizer.pipeline.base_model import (
    UNKNOWN,
    UNKNOWN_PROBES,
    MergeModel,
    check_pieces,
    check_unknown,
)
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.encoder import KernelEncoder
from tokmill.tokenizer.pipeline.options import EndOfWord, Letters, Segmentation
from tokmill.tokenizer.reference.word_bpe import encode_longest_first, letters_of
from tokmill.tokenizer.splitting import Pretokens
from tokmill.tokenizer.splitting.splitter import words_of
from tokmill.tokenizer.word_bpe.kernels import Pieces, encode_words

NAME = "word_bpe"
_PROBES = MappingProxyType({**UNKNOWN_PROBES, "long word": "Aa" * 60, "mark": "a</w> </w>b x<"})
_CHOICES = MappingProxyType(
    {"letters": get_args(Letters), "end_of_word": get_args(EndOfWord), "segmentation": get_args(Segmentation)}
)


@dataclass(frozen=True, eq=False)
class WordPairModel(MergeModel):
    """A model of BPE over words.

    Attributes:
        vocabulary: the bytes of every id, `</w>` included; the unknown token is one of its special tokens.
        merges: int32, shape (num_merges, 3): left id, right id, resulting id; in order of rank.
        unknown_token: the name of the unknown token; None if letters are bytes, of which none is unknown.
        fuse_unknown: whether neighbouring unknown letters become one token.
        letters: what words are made of, `characters` or `bytes`.
        end_of_word: whether the mark is `attached` to the last letter or stands `apart`.
        segmentation: whether words are encoded by `merges` or by the `longest_first`.

    Raises:
        VocabularyError: an option is invalid, there are too many ids or merges, the unknown token is not a
            special token, a letter or the mark is missing, or a merge is impossible.
    """

    unknown_token: str | None = UNKNOWN
    fuse_unknown: bool = False
    letters: Letters = "characters"
    end_of_word: EndOfWord = "attached"
    segmentation: Segmentation = "merges"

    family = NAME

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise VocabularyError(
                    f"vocabulary: {name}={getattr(self, name)!r:.80} is not known; use {' or '.join(known)}"
                )
        if type(self.fuse_unknown) is not bool:
            raise VocabularyError(f"vocabulary: fuse_unknown={self.fuse_unknown!r:.80} must be true or false")
        self.check_size(MAX_IDS - 1)
        _check_letters(self)

    @classmethod
    def build(cls, vocabulary: Vocabulary, pairs: Sequence[tuple[bytes, bytes]], **how: Any) -> Self:
        """Build a model from merges as pairs of byte strings, in order of rank."""
        _check_marks(pairs)
        return cls(vocabulary, cls.rows(vocabulary.ids, pairs), **how)

    @classmethod
    def from_spec(cls, vocabulary: Vocabulary, spec: Mapping[str, Any]) -> Self:
        """Build a model from a vocabulary and the result of `spec`."""
        tokens = dict(vocabulary.ordinary())
        pairs = [(tokens[left], tokens[right]) for left, right in spec["merges"]]
        how = {name: spec[name] for name in ("unknown_token", "fuse_unknown", *_CHOICES)}
        return cls.build(vocabulary, pairs, **how)

    @property
    def by_bytes(self) -> bool:
        """Whether letters are bytes."""
        return self.letters == "bytes"

    @property
    def by_length(self) -> bool:
        """Whether the longest piece is taken first."""
        return self.segmentation == "longest_first"

    @property
    def is_apart(self) -> bool:
        """Whether the mark is a piece of its own."""
        return self.end_of_word == "apart"

    def spec(self) -> dict[str, Any]:
        """Return the merges, by ids, and the rules."""
        return {
            "unknown_token": self.unknown_token,
            "fuse_unknown": self.fuse_unknown,
            **{name: getattr(self, name) for name in _CHOICES},
            "merges": self.merges[:, :2].tolist(),
        }

    def encoder(self) -> KernelEncoder:
        """Return the encoder, made once; a mark that is a token of its own is where its word ends."""
        return self._encoder

    @cached_property
    def _encoder(self) -> KernelEncoder:
        covered = self.vocabulary.covered(lambda token: len(token.removesuffix(ENDS)))
        parts = lay_out(self), covered, self.unknown_id, lambda length: make_scratch(length + 1)
        return KernelEncoder(encode_words, *parts, cut=words_of)

    def kind(self, token: bytes) -> str:
        """Return the kind of an ordinary token: `letter`, or longer: `ending`, or `inner` of a word."""
        letters = letters_of(token.removesuffix(ENDS), by_bytes=self.by_bytes)
        if len(letters) + (self.is_apart and token.endswith(ENDS)) < 2:
            return "letter"
        return "ending" if token.endswith(ENDS) else "inner"

    def recovers(self, pretokens: Sequence[bytes]) -> list[bytes]:
        """Return the words letter by letter, marks included; the unknown token's name for unknown letters."""
        data, offsets = pack_bytes(list(pretokens))
        words = words_of(data, Pretokens(offsets[:-1], offsets[1:], np.array([0, len(pretokens)])))
        found: list[bytes] = []
        for start, end in zip(words.starts.tolist(), words.ends.tolist(), strict=True):
            found += self._recovered(data[start:end].tobytes())
        return found

    @cached_property
    def _known(self) -> frozenset[bytes]:
        return frozenset(token for _, token in self.vocabulary.ordinary())

    def _recovered(self, word: bytes) -> list[bytes]:
        """Return what is known of a word."""
        symbols = letters_of(word, ends=ENDS, by_bytes=self.by_bytes, apart=self.is_apart)
        if self.by_length:
            symbols = encode_longest_first(symbols, self._known)
        found, was_known = list[bytes](), True
        for symbol in symbols:
            known = symbol in self._known
            if known:
                found.append(symbol)
            elif self.unknown_token is not None and (was_known or not self.fuse_unknown):
                found.append(self.unknown_token.encode())
            was_known = known
        return found

    def probes(self) -> Mapping[str, str]:
        """Return a text that is unlikely to be in any vocabulary, a long word, and the mark as text."""
        return _PROBES


def _check_marks(pairs: Sequence[tuple[bytes, bytes]]) -> None:
    """Refuse merges that make the text of the mark."""
    for rank, (left, right) in enumerate(pairs):
        if left.endswith(ENDS) or ((left + right).endswith(ENDS) and not right.endswith(ENDS)):
            raise VocabularyError(
                f"vocabulary: merge {rank} of {left!r:.200} and {right!r:.200} cannot be told from the mark "
                f"{ENDS.decode()} at the end of a word"
            )


def _check_letters(model: WordPairModel) -> None:
    """Check that letters are known, or can be unknown."""
    vocabulary, known = model.vocabulary, {token for _, token in model.vocabulary.ordinary()}
    if model.is_apart and ENDS not in known:
        raise VocabularyError(
            f"vocabulary: there is no piece {ENDS.decode()}, which end_of_word='apart' needs"
        )
    if model.by_bytes:
        letters = [bytes([byte]) for byte in range(256)]
        wanted = letters if model.is_apart else [*letters, *(letter + ENDS for letter in letters)]
        missing = [letter for letter in wanted if letter not in known]
        if missing:
            raise VocabularyError(
                f"vocabulary: {len(missing)} letters are missing, the first is {missing[0]!r}, but "
                "letters='bytes' needs all 256 bytes, also with the mark if that is attached"
            )
        return
    check_unknown(vocabulary, model.unknown_token)
    check_pieces(vocabulary.ordinary())


def model_of(definition: Definition) -> WordPairModel:
    """Return the model of a definition that is known to be of this family."""
    return cast(WordPairModel, definition.model)


_POINTS = 0x110000


def lay_out(model: WordPairModel) -> Pieces:
    """Make the kernels' tables of a model."""
    vocabulary, by_bytes, by_length = model.vocabulary, model.by_bytes, model.by_length
    inner = {i: token for i, token in vocabulary.ordinary() if not token.endswith(ENDS)}
    final = {i: token[: -len(ENDS)] for i, token in vocabulary.ordinary() if token.endswith(ENDS)}
    symbols, apart = _symbols(inner, by_bytes, vocabulary.size), model.is_apart
    pairs, _ = tables_of(np.full(256, vocabulary.size, np.int32), model.merges)
    return Pieces(
        symbols,
        symbols if apart else _symbols(final, by_bytes, vocabulary.size),
        by_bytes,
        vocabulary.ids[ENDS] if apart else -1,
        pairs,
        by_length,
        trie_of(inner if by_length else {}, vocabulary.size),
        trie_of({i: text for i, text in final.items() if text} if by_length else {}, vocabulary.size),
        max(map(len, [*inner.values(), *final.values()]), default=0),
        Unknown(vocabulary.size, model.unknown_id, np.empty(0, np.int32), model.fuse_unknown),
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
