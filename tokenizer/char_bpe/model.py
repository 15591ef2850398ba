"""BPE over characters: the neighbours whose joined piece has the greatest score are joined, and again.

Laws: of pairs whose joined pieces have the same score, the leftmost comes first; characters that are no
    pieces become their bytes, if the vocabulary has ids for them, or the unknown token, one for all
    neighbours. The bytes of the pieces and of the unknown characters add up to the normalized text.
    Decoding gives the pieces back, and the unknown token's name (`[UNK]`) for unknown text, which is lost.

Any two pieces are joined if the vocabulary has the piece that they make, not only those that training joined:
that is how SentencePiece's BPE models work. Source: Sennrich et al. 2016; Kudo and Richardson 2018.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.char_bpe.encoder import CharacterPairEncoder
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.readable import readable
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.pairs import MAX_IDS
from tokmill.tokenizer.reference.char_bpe import encode

NAME = "char_bpe"
UNKNOWN = "[UNK]"
_PROBES = MappingProxyType({"unknown": "\U000f0000\U000f0001 \U000f0002a"})


@dataclass(frozen=True, eq=False)
class CharacterPairModel:
    """A vocabulary of pieces with scores.

    Attributes:
        vocabulary: the bytes of every id; the unknown token is one of its special tokens.
        scores: float64, shape (vocab_size,); the greater, the earlier is a piece made.
        unknown_token: the name of the unknown token.
        frozen: ids of pieces that are found in the text first, the longest of them, and never joined.

    Raises:
        VocabularyError: the unknown token is not a special token, there are too many ids or no piece, a
            piece is not UTF-8, or a score is not a finite number.
    """

    vocabulary: Vocabulary
    scores: NDArray[np.float64]
    unknown_token: str = UNKNOWN
    frozen: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        vocabulary = self.vocabulary
        if self.unknown_token not in vocabulary.special_tokens:
            raise VocabularyError(
                f"vocabulary: the unknown token {self.unknown_token!r:.200} must be one of the special tokens"
            )
        if 2 * vocabulary.size > MAX_IDS:
            raise VocabularyError(
                f"vocabulary: {vocabulary.size} ids are too many; at most {MAX_IDS // 2} can be used"
            )
        if self.scores.shape != (vocabulary.size,) or not np.isfinite(self.scores).all():
            raise VocabularyError(
                f"vocabulary: {self.scores.shape[0]} scores for {vocabulary.size} ids; there must be a "
                "finite number for each"
            )
        _check_pieces(vocabulary, self.frozen)

    @classmethod
    def from_spec(cls, vocabulary: Vocabulary, spec: Mapping[str, Any]) -> Self:
        """Build a model from a vocabulary and the result of `spec`.

        Raises:
            VocabularyError: see `CharacterPairModel`.
        """
        frozen = tuple(int(i) for i in spec.get("frozen", ()))
        return cls(vocabulary, np.array(spec["scores"], np.float64), spec["unknown_token"], frozen)

    @property
    def family(self) -> str:
        """The name of its family."""
        return NAME

    @property
    def unknown_id(self) -> int:
        """The id of the unknown token."""
        return self.vocabulary.special_tokens[self.unknown_token]

    def spec(self) -> dict[str, Any]:
        """Return the scores, by id, and the name of the unknown token; the pieces are in the vocabulary."""
        frozen = {"frozen": list(self.frozen)} if self.frozen else {}
        return {"unknown_token": self.unknown_token, "scores": self.scores.tolist(), **frozen}

    def with_vocabulary(self, vocabulary: Vocabulary) -> Self:
        """Return the same model with other special tokens; added ones have the score 0."""
        scores = np.zeros(vocabulary.size)
        scores[: self.vocabulary.size] = self.scores
        return replace(self, vocabulary=vocabulary, scores=scores)

    def encoder(self) -> CharacterPairEncoder:
        """Return the encoder, which is made once."""
        return self._encoder

    @cached_property
    def _encoder(self) -> CharacterPairEncoder:
        return CharacterPairEncoder(self)

    def kinds(self) -> list[str]:
        """Return the kind of every id.

        It is `piece`, `character`, `byte`, `unknown`, `special`, `reserved` or `hole`.
        """
        kinds = self.vocabulary.kinds(_kind)
        kinds[self.unknown_id] = "unknown"
        for token in self.vocabulary.byte_ids:
            kinds[token] = "byte"
        return kinds

    def readable(self, token: int) -> str:
        """Return a token as one line of text."""
        return readable(self.vocabulary.tokens[token])

    def figures(self) -> dict[str, int]:
        """Return the number of pieces, characters among them."""
        return {"num_pieces": sum(1 for _ in self.vocabulary.ordinary())}

    def recovers(self, pretokens: Sequence[bytes]) -> list[bytes]:
        """Return the pre-tokens, with the unknown token's name for each run of unknown characters.

        Nothing is unknown where bytes stand in for it.
        """
        if self.vocabulary.byte_ids:
            return list(pretokens)
        frozen = [self.vocabulary.tokens[i].decode() for i in self.frozen]
        ordinary = {token.decode(): float(self.scores[i]) for i, token in self.vocabulary.ordinary()}
        scores = {piece: score for piece, score in ordinary.items() if piece not in frozen}
        found = list[bytes]()
        for pretoken in pretokens:
            unknown = False
            for piece in encode(pretoken.decode(), scores, frozen):
                if piece in ordinary or not unknown:
                    found.append(piece.encode() if piece in ordinary else self.unknown_token.encode())
                unknown = piece not in ordinary
        return found

    def probes(self) -> Mapping[str, str]:
        """Return a text that is unlikely to be in any vocabulary: private-use characters."""
        return _PROBES


def _kind(token: bytes) -> str:
    return "character" if len(token.decode("utf-8", "replace")) == 1 else "piece"


def _check_pieces(vocabulary: Vocabulary, frozen: Sequence[int]) -> None:
    ordinary = {i: token for i, token in vocabulary.ordinary() if i not in vocabulary.byte_ids}
    if not ordinary:
        raise VocabularyError(
            "vocabulary: there is no piece beside the special tokens; it needs at least one"
        )
    for i, token in ordinary.items():
        try:
            token.decode()
        except UnicodeDecodeError:
            raise VocabularyError(
                f"vocabulary: the piece {token!r:.200} of id {i} is not UTF-8, so no text has it"
            ) from None
    strange = [i for i in frozen if i not in ordinary]
    if strange:
        raise VocabularyError(f"vocabulary: id {strange[0]} is frozen, but is no piece")
    standing_in = sorted(vocabulary.tokens[token] for token in vocabulary.byte_ids)
    if standing_in and standing_in != [bytes([byte]) for byte in range(256)]:
        raise VocabularyError(
            f"vocabulary: {len(standing_in)} ids stand in for bytes; there must be one for each of the 256"
        )
