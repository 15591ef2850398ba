"""BPE over characters: the neighbours whose joined piece has the greatest score are joined, and again.

Laws: of pairs of the same score the leftmost comes first; characters that are no pieces become their bytes,
if the vocabulary has ids for them, or the unknown token, one for all neighbours, and decode to its name. The
bytes of pieces and unknown characters add up to the normalized text. Any two pieces are joined that make a
piece, as in SentencePiece's models; a model with merges joins those alone, the first first, as Hugging Face's
tokenizers do. Source: Sennrich et al. 2016; Kudo and Richardson 2018.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.char_bpe.kernels import Pieces, encode_pretokens
from tokmill.tokenizer.components.specials import make_trie
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.merges import Unknown, make_scratch
from tokmill.tokenizer.kernels.pair_tables import (
    MAX_IDS,
    MAX_MERGES,
    PairTables,
    empty_tables,
    insert_merges,
    tables_of,
)
from tokmill.tokenizer.pipeline.base_model import (
    UNKNOWN,
    BaseModel,
    check_pieces,
    check_size,
    check_unknown,
)
from tokmill.tokenizer.pipeline.encoder import KernelEncoder
from tokmill.tokenizer.reference.byte_bpe import merge
from tokmill.tokenizer.reference.char_bpe import encode

NAME = "char_bpe"


@dataclass(frozen=True, eq=False)
class CharacterPairModel(BaseModel):
    """A vocabulary of pieces with scores.

    Attributes:
        vocabulary: the bytes of every id; the unknown token is one of its special tokens.
        scores: float64, shape (vocab_size,); the greater, the earlier is a piece made.
        unknown_token: the name of the unknown token.
        frozen: ids of pieces that are found in the text first, the longest of them, and never joined.
        merges: int32, shape (num_merges, 2), the ids of pairs in the order in which they are joined; None for
            any pair that makes a piece, by its score.
        fuse_unknown: whether neighbouring unknown characters become one unknown token.

    Raises:
        VocabularyError: the unknown token is not a special token, there are too many ids or no piece, a
            piece is not UTF-8, a score is not a finite number, or a merge makes no piece or comes twice.
    """

    scores: NDArray[np.float64]
    unknown_token: str = UNKNOWN
    frozen: tuple[int, ...] = ()
    merges: NDArray[np.int32] | None = None
    fuse_unknown: bool = True

    family = NAME

    def __post_init__(self) -> None:
        vocabulary = self.vocabulary
        check_unknown(vocabulary, self.unknown_token)
        check_size(vocabulary, MAX_IDS // 2)
        if self.scores.shape != (vocabulary.size,) or not np.isfinite(self.scores).all():
            raise VocabularyError(
                f"vocabulary: {self.scores.shape[0]} scores for {vocabulary.size} ids; there must be a "
                "finite number for each"
            )
        _check_vocabulary(vocabulary, self.frozen)
        if self.merges is not None:
            _check_merges(self.merges, self.results)

    @classmethod
    def from_spec(cls, vocabulary: Vocabulary, spec: Mapping[str, Any]) -> Self:
        """Build a model from a vocabulary and the result of `spec`."""
        frozen = tuple(int(i) for i in spec.get("frozen", ()))
        merges = np.array(spec["merges"], np.int32).reshape(-1, 2) if "merges" in spec else None
        scores = np.array(spec["scores"], np.float64) if merges is None else np.zeros(vocabulary.size)
        fuse = bool(spec.get("fuse_unknown", True))
        return cls(vocabulary, scores, spec["unknown_token"], frozen, merges, fuse)

    def spec(self) -> dict[str, Any]:
        """Return the scores, by id, or the merges, and the rest; the pieces are in the vocabulary."""
        frozen = {"frozen": list(self.frozen)} if self.frozen else {}
        apart = {} if self.fuse_unknown else {"fuse_unknown": False}
        by = {"scores": self.scores.tolist()} if self.merges is None else {"merges": self.merges.tolist()}
        return {"unknown_token": self.unknown_token, **by, **frozen, **apart}

    @cached_property
    def results(self) -> NDArray[np.int32]:
        """The id of the piece that each merge makes, -1 for none; int32, shape (num_merges,)."""
        tokens, byte_ids = self.vocabulary.tokens, self.vocabulary.byte_ids
        ids = {token: i for i, token in self.vocabulary.ordinary() if i not in byte_ids}
        pairs = [] if self.merges is None else self.merges.tolist()
        known = [left in byte_ids or right in byte_ids for left, right in pairs]
        made = [ids.get(tokens[left] + tokens[right], -1) for left, right in pairs]
        return np.array([-1 if stands_in else i for stands_in, i in zip(known, made, strict=True)], np.int32)

    @property
    def pairs(self) -> list[tuple[bytes, bytes]] | None:
        """The merges as bytes, in their order; None without a list of them."""
        if self.merges is None:
            return None
        tokens = self.vocabulary.tokens
        return [(tokens[left], tokens[right]) for left, right in self.merges.tolist()]

    def with_vocabulary(self, vocabulary: Vocabulary) -> Self:
        """Return the same model with other special tokens; added ones have the score 0."""
        scores = np.zeros(vocabulary.size)
        scores[: self.vocabulary.size] = self.scores
        return replace(self, vocabulary=vocabulary, scores=scores)

    def encoder(self) -> KernelEncoder:
        """Return the encoder, which is made once."""
        return self._encoder

    @cached_property
    def _encoder(self) -> KernelEncoder:
        offsets, unknown = self.vocabulary.offsets, self.unknown_id
        return KernelEncoder(encode_pretokens, lay_out(self), offsets, unknown, make_scratch)

    def kind(self, token: bytes) -> str:
        """Return the kind of an ordinary token."""
        return "character" if len(token.decode("utf-8", "replace")) == 1 else "piece"

    def recovers(self, pretokens: Sequence[bytes]) -> list[bytes]:
        """Return the pre-tokens, with the unknown token's name for each run of unknown characters.

        Nothing is unknown where bytes stand in for it.
        """
        if self.vocabulary.byte_ids:
            return list(pretokens)
        tokens = self.vocabulary.tokens
        frozen, known = [tokens[i].decode() for i in self.frozen], {t for _, t in self.vocabulary.ordinary()}
        scores = {t.decode(): float(self.scores[i]) for i, t in self.vocabulary.ordinary()}
        scores = {piece: score for piece, score in scores.items() if piece not in frozen}
        pairs = [(left.decode(), right.decode()) for left, right in self.pairs or ()]
        ranks = {pair: rank for rank, pair in enumerate(pairs)}
        found = list[bytes]()
        for text in map(bytes.decode, pretokens):
            pieces = encode(text, scores, frozen) if self.pairs is None else merge(text, ranks)
            unknown = False
            for piece in map(str.encode, pieces):
                if piece in known or not (unknown and self.fuse_unknown):
                    found.append(piece if piece in known else self.unknown_token.encode())
                unknown = piece not in known
        return found


def _check_vocabulary(vocabulary: Vocabulary, frozen: Sequence[int]) -> None:
    ordinary = {i: token for i, token in vocabulary.ordinary() if i not in vocabulary.byte_ids}
    if not ordinary:
        raise VocabularyError(
            "vocabulary: there is no piece beside the special tokens; it needs at least one"
        )
    check_pieces(ordinary.items())
    strange = [i for i in frozen if i not in ordinary]
    if strange:
        raise VocabularyError(f"vocabulary: id {strange[0]} is frozen, but is not a piece")
    standing_in = {vocabulary.tokens[token] for token in vocabulary.byte_ids}
    known = {token for token in ordinary.values() if token.isascii()} | standing_in
    if standing_in and not known.issuperset(bytes([byte]) for byte in range(256)):
        raise VocabularyError(
            f"vocabulary: {len(standing_in)} ids stand in for bytes; there must be one for each of the 256 "
            "that is not a piece itself"
        )


def _check_merges(merges: NDArray[np.int32], results: NDArray[np.int32]) -> None:
    if merges.ndim != 2 or merges.shape[1:] != (2,) or len(merges) >= MAX_MERGES:
        raise VocabularyError(
            f"vocabulary: the merges have the shape {merges.shape}, but must be pairs of ids, at most "
            f"{MAX_MERGES - 1}"
        )
    lost = np.flatnonzero(results < 0)
    if lost.shape[0]:
        raise VocabularyError(
            f"vocabulary: merge {lost[0]}, of the ids {merges[lost[0]].tolist()}, makes no piece of it"
        )
    _, first, counts = np.unique(merges, axis=0, return_index=True, return_counts=True)
    if (counts > 1).any():
        again = int(first[counts > 1].min())
        raise VocabularyError(
            f"vocabulary: merge {again} of the ids {merges[again].tolist()} comes again; remove one of them"
        )


_POINTS, _NO_BYTES = 0x110000, np.zeros(256, np.int32)


def lay_out(model: "CharacterPairModel") -> Pieces:
    """Make the kernels' tables of a model."""
    if model.merges is None:
        return _lay_out_scores(model)
    pairs, _ = tables_of(_NO_BYTES, np.column_stack([model.merges, model.results]))
    return _pieces(model, {token.decode(): i for i, token in _ordinary(model)}, pairs)


def _ordinary(model: "CharacterPairModel") -> list[tuple[int, bytes]]:
    """Return the pieces that characters are joined to."""
    without = model.vocabulary.byte_ids | set(model.frozen)
    return [(i, token) for i, token in model.vocabulary.ordinary() if i not in without]


def _lay_out_scores(model: "CharacterPairModel") -> Pieces:
    texts = {i: token.decode() for i, token in _ordinary(model)}
    symbols = {text: i for i, text in texts.items()}
    for text in texts.values():
        for character in text:
            symbols.setdefault(character, model.vocabulary.size + len(symbols))
    longer = sorted((i for i, text in texts.items() if len(text) > 1), key=lambda i: (-model.scores[i], i))
    merges = [
        (symbols[texts[i][:cut]], symbols[texts[i][cut:]], rank, i)
        for rank, i in enumerate(longer)
        for cut in range(1, len(texts[i]))
        if texts[i][:cut] in symbols and texts[i][cut:] in symbols
    ]
    # a piece may have no merge, so there can be more ranks than merges
    pairs = empty_tables(_NO_BYTES, max(len(merges), len(longer), 1))
    insert_merges(pairs, *np.array(merges, np.int32).reshape(-1, 4).T.copy())
    scores = model.scores[longer]
    pairs.groups[1 : len(longer)] = np.cumsum(scores[1:] != scores[:-1])
    return _pieces(model, symbols, pairs)


def _pieces(model: "CharacterPairModel", symbols: Mapping[str, int], pairs: PairTables) -> Pieces:
    """Put the tables together, with what does not depend on how pairs are chosen."""
    vocabulary, nothing = model.vocabulary, max([model.vocabulary.size, *symbols.values()]) + 1
    points = np.full(_POINTS, nothing, np.int32)
    for text, symbol in symbols.items():
        if len(text) == 1:
            points[ord(text)] = symbol
    by_byte = {vocabulary.tokens[i]: i for i in vocabulary.byte_ids}
    every = [bytes([byte]) for byte in range(256)] if by_byte else []
    standing_in = np.array([by_byte.get(byte, vocabulary.ids.get(byte, -1)) for byte in every], np.int32)
    frozen = make_trie(tuple((vocabulary.tokens[i].decode(), i) for i in model.frozen))
    unknown = Unknown(vocabulary.size, model.unknown_id, standing_in, model.fuse_unknown)
    return Pieces(points, nothing, frozen, pairs, unknown)
