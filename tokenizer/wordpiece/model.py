"""The model of WordPiece: pieces that begin words, and pieces with `##` that continue them.

Words are the runs of characters of a pre-token that are not white space. A word is cut into the longest piece
that it begins with, then the longest continuing piece at each place after it.

Laws: the ids of a word do not depend on its neighbours; the bytes of the pieces, without `##`, of unknown
    text and of white space add up to the normalized text. A word that does not fit, or that has more than
    `max_input_chars_per_word` characters, becomes the unknown token as a whole (`unknown="word"`, as BERT's).
    With `unknown="part"` a place where no continuing piece fits may take a piece that begins words, and
    neighbouring characters where none fits become one unknown token.
Lost: white space; unknown text, which decodes to the unknown token's name. Text of `##` and a piece is no
    continuing piece, because decoding would take its `##` away.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, get_args

import numpy as np

from tokmill.tokenizer.components.decoders import CONTINUES
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.base_model import (
    UNKNOWN,
    UNKNOWN_PROBES,
    BaseModel,
    check_size,
    check_unknown,
)
from tokmill.tokenizer.pipeline.options import Unknown
from tokmill.tokenizer.splitting import Pretokens
from tokmill.tokenizer.splitting.splitter import words_of
from tokmill.tokenizer.wordpiece.encoder import WordPieceEncoder, continues

NAME = "wordpiece"
MAX_INPUT_CHARS = 100
_PROBES = MappingProxyType({**UNKNOWN_PROBES, "long word": "Aa" * 60})


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
        by_part = self.unknown == "part"
        return WordPieceEncoder(self.vocabulary, self.unknown_id, self.max_input_chars_per_word, by_part)

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
        found: list[bytes] = []
        for start, end in zip(words.starts.tolist(), words.ends.tolist(), strict=True):
            found += self._cut(data[start:end].tobytes())
        return found

    @cached_property
    def _pieces(self) -> frozenset[bytes]:
        return frozenset(token for _, token in self.vocabulary.ordinary())

    def _cut(self, word: bytes) -> list[bytes]:
        """Cut one word, trying every end of each piece."""
        cuts = [i for i, byte in enumerate(word) if byte & 0xC0 != 0x80 or i == 0] + [len(word)]
        unknown, found, at = self.unknown_token.encode(), list[bytes](), 0
        if sum(byte & 0xC0 != 0x80 for byte in word) > self.max_input_chars_per_word:
            return [unknown]
        while at < len(word):
            ends = range(len(word), at, -1)
            fitting = ((p, end) for p in self._prefixes(at) for end in ends if self._is(p, word[at:end]))
            piece, after = next(fitting, (None, 0))
            if piece is not None:
                found.append(piece + word[at:after])
            elif self.unknown == "word":
                return [unknown]
            else:
                after = next(cut for cut in cuts if cut > at)
                found += [] if found and found[-1] is unknown else [unknown]
            at = after
        return found

    def _prefixes(self, at: int) -> tuple[bytes, ...]:
        """Return what a piece may begin with at a place of a word, the preferred one first."""
        if at == 0:
            return (b"",)
        return (CONTINUES, b"") if self.unknown == "part" else (CONTINUES,)

    def _is(self, prefix: bytes, text: bytes) -> bool:
        """Whether there is such a piece; one that begins a word must not read as a continuing one."""
        return prefix + text in self._pieces and (bool(prefix) or not continues(text))

    def probes(self) -> Mapping[str, str]:
        """Return a text that is unlikely to be in any vocabulary, and a long word."""
        return _PROBES
