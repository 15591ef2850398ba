"""A unigram language model: every piece has a log probability, and text is cut into the most probable pieces.

Laws: a pre-token becomes the pieces whose scores have the greatest sum; ties by `lattice`; a
character that is not a piece may become the unknown token, at the least score minus 10; neighbouring ones are
one token, and decode to its name. The bytes of pieces and unknown characters add up to the normalized text.
Source: Kudo 2018, "Subword Regularization".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import Text
from tokmill.tokenizer.core.errors import TokenizerError, VocabularyError
from tokmill.tokenizer.core.token_tables import lay_out_trie
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.encoding import make_memory
from tokmill.tokenizer.pipeline.base_model import UNKNOWN, BaseModel, check_size, check_unknown
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.encoder import KernelEncoder, cut_texts
from tokmill.tokenizer.reference.unigram import best, characters
from tokmill.tokenizer.unigram.lattice import Pieces, Ranked, make_found, make_paths, rank_paths
from tokmill.tokenizer.unigram.segmentation import (
    NUM_BITS,
    Work,
    encode_pretokens,
    make_room,
    mark_neighbours,
)

NAME = "unigram"
UNKNOWN_PENALTY = 10.0
USER_DEFINED_SCORE = 0.0
"""What sentencepiece gives the symbols that users defined, whatever a file says."""

Precision = Literal["double", "single"]
LEAST_SCORE = -1e9
"""Far below every log probability; sums of scores above it stay finite and exact enough."""


class UnigramEncoder(KernelEncoder):
    """Turns pre-tokens into ids; safe to share between threads.

    Attributes:
        longest: the bytes of the longest piece.
    """

    def __init__(self, model: "UnigramModel") -> None:
        vocabulary, unknown, single = model.vocabulary, model.unknown_id, model.precision == "single"
        standing_in, costs = vocabulary.byte_ids, model.scores.copy()
        ordinary = np.array([i for i, _ in vocabulary.ordinary() if i not in standing_in], np.int64)
        costs[unknown] = model.unknown_score
        byte_ids = np.array(sorted(standing_in, key=vocabulary.tokens.__getitem__), np.int32)
        pieces = lay_out(vocabulary.data, vocabulary.offsets, ordinary, costs)
        pieces = pieces._replace(unknown=unknown, byte_ids=byte_ids, single=single)
        if single:
            neighbours = np.zeros(NUM_BITS // 64, np.uint64)
            mark_neighbours(vocabulary.data, vocabulary.offsets, ordinary, neighbours)
            worst = float(np.abs(costs[[*ordinary, unknown]]).max())
            pieces = pieces._replace(neighbours=neighbours, worst=worst)
        self.longest = longest = int(np.diff(vocabulary.offsets)[ordinary].max())
        super().__init__(
            encode_pretokens,
            pieces,
            vocabulary.offsets,
            unknown,
            lambda length: Work(make_paths(length, longest), make_room()),
            memory=lambda: make_memory(remembers=not single),
        )


@dataclass(frozen=True, eq=False)
class UnigramModel(BaseModel):
    """A vocabulary of pieces with scores.

    Attributes:
        vocabulary: the bytes of every id; the unknown token is one of its special tokens.
        scores: float64, shape (vocab_size,); the natural logarithm of each piece's probability. Special
            tokens have one, too, usually 0, which counts only towards the least score; ids without a token
            have 0.
        unknown_token: the name of the unknown token.
        precision: in which sums of scores are kept: `single` for models that sentencepiece made, and whose
            scores are 32-bit numbers.

    Raises:
        VocabularyError: the unknown token is not a special token, there are too many ids or no piece, or a
            score is not a number from -1e9 to 0.
    """

    scores: NDArray[np.float64]
    unknown_token: str = UNKNOWN
    precision: Precision = "double"

    family = NAME

    def __post_init__(self) -> None:
        check_unknown(self.vocabulary, self.unknown_token)
        check_size(self.vocabulary)
        if next(self.vocabulary.ordinary(), None) is None:
            raise VocabularyError(
                "vocabulary: there is no piece beside the special tokens; it needs at least one"
            )
        _check_scores(self.scores, self.vocabulary)
        _check_parts(self.precision, self.vocabulary)

    @classmethod
    def from_spec(cls, vocabulary: Vocabulary, spec: Mapping[str, Any]) -> Self:
        """Build a model from a vocabulary and the result of `spec`."""
        scores, precision = scores_of(spec["scores"]), spec.get("precision", "double")
        return cls(vocabulary, scores, spec["unknown_token"], precision)

    @cached_property
    def unknown_score(self) -> float:
        """The score of an unknown character: the least score of all ids, minus 10."""
        return self.rounded(float(self.scores.min()) - UNKNOWN_PENALTY)

    @property
    def joins_bytes(self) -> bool:
        """Whether unknown characters that follow each other are one text, as to Hugging Face's tokenizers."""
        return self.precision == "double" and bool(self.vocabulary.byte_ids)

    def rounded(self, score: float) -> float:
        """Return a score as it is kept: a 32-bit number where the precision is `single`."""
        return float(np.float32(score)) if self.precision == "single" else score

    def spec(self) -> dict[str, Any]:
        """Return the scores, by id, and the name of the unknown token; the pieces are in the vocabulary."""
        single = {} if self.precision == "double" else {"precision": self.precision}
        return {"unknown_token": self.unknown_token, "scores": self.scores.tolist(), **single}

    def with_vocabulary(self, vocabulary: Vocabulary) -> Self:
        """Return the same model with other special tokens; added ones have the score 0."""
        scores = np.zeros(vocabulary.size)
        scores[: self.vocabulary.size] = self.scores
        return replace(self, vocabulary=vocabulary, scores=scores)

    def encoder(self) -> UnigramEncoder:
        """Return the encoder, which is made once."""
        return self._encoder

    @cached_property
    def _encoder(self) -> UnigramEncoder:
        return UnigramEncoder(self)

    def kind(self, token: bytes) -> str:
        """Return the kind of an ordinary token."""
        return "character" if len(characters(token)) == 1 else "piece"

    def recovers(self, pretokens: Sequence[bytes]) -> list[bytes]:
        """Return the pieces, with the unknown token's name for each run of unknown characters.

        Nothing is unknown where bytes stand in for it.
        That depends on the best segmentation, which the slow model finds here.
        """
        if self.vocabulary.byte_ids:
            return list(pretokens)
        scores = {token: float(self.scores[i]) for i, token in self.vocabulary.ordinary()}
        cuts = (best(pretoken, scores, self.unknown_score, self.rounded) for pretoken in pretokens)
        found = [piece for cut in cuts for piece in cut]
        return [piece or self.unknown_token.encode() for piece in found]


def scores_of(values: object) -> NDArray[np.float64]:
    """Return scores as an array."""
    listed = list(values) if isinstance(values, Sequence | np.ndarray) else [values]
    for place, value in enumerate(listed):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise VocabularyError(
                f"vocabulary: the score of id {place} is {value!r:.80}, but must be a number"
            )
    return np.array(listed, np.float64)


def _check_scores(scores: NDArray[np.float64], vocabulary: Vocabulary) -> None:
    if scores.shape != (vocabulary.size,):
        raise VocabularyError(
            f"vocabulary: {scores.shape[0]} scores for {vocabulary.size} ids; there must be one for each"
        )
    wrong = np.flatnonzero(~((scores >= LEAST_SCORE) & (scores <= 0)))
    if wrong.shape[0]:
        i = int(wrong[0])
        raise VocabularyError(
            f"vocabulary: the score of id {i}, {vocabulary.tokens[i]!r:.80}, is {scores[i]}, but a score is "
            f"the logarithm of a probability: a number from {LEAST_SCORE:g} to 0"
        )


def _check_parts(precision: str, vocabulary: Vocabulary) -> None:
    if precision not in get_args(Precision):
        raise VocabularyError(f"vocabulary: precision={precision!r:.80} must be 'double' or 'single'")
    standing_in = sorted(vocabulary.tokens[token] for token in vocabulary.byte_ids)
    if standing_in and standing_in != [bytes([byte]) for byte in range(256)]:
        raise VocabularyError(
            f"vocabulary: {len(standing_in)} ids stand in for bytes; there must be one for each of the 256"
        )


def lay_out(
    data: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    pieces: NDArray[np.int64],
    scores: NDArray[np.float64],
) -> Pieces:
    """Make the kernels' tables of pieces; no id is the unknown token's."""
    lengths = np.diff(offsets)
    byte_ids = np.full(256, -1, np.int32)
    single = pieces[lengths[pieces] == 1]
    byte_ids[data[offsets[single]]] = single
    trie, _ = lay_out_trie(data, offsets, pieces[lengths[pieces] > 1], byte_ids)
    return Pieces(trie, scores, -1, np.empty(0, np.int32), False, np.zeros(0, np.uint64), 0.0)


def n_best(definition: Definition, text: Text, k: int) -> list[tuple[list[int], float]]:
    """Return the `k` most probable segmentations of a text, with their log probabilities, the best first.

    There are fewer if the text has no more. Equal ones are in the order in which Viterbi meets them, so the
    first one is the encoding. Special tokens are encoded as text. `definition` is that of a `Tokenizer`.

    Raises:
        TokenizerError: it is not a unigram tokenizer, or `k` is not a positive integer.
    """
    if type(k) is not int or k < 1:
        raise TokenizerError(f"n_best: k={k!r} must be a positive integer; use e.g. 5")
    encoder = _encoder(definition)
    data, _, pretokens = cut_texts(definition, [text])
    size = data.shape[0]
    ranked = Ranked(np.empty((size + 1) * k), *np.empty((3, (size + 1) * k), np.int32))
    counts, found = np.zeros(size + 1, np.int64), make_found(encoder.longest)
    rank_paths(data, pretokens.starts, pretokens.ends, encoder.parts.model, found, k, ranked, counts)
    bounds = set(pretokens.ends.tolist())
    return [
        (_followed(ranked, data, k, rank, bounds, encoder.parts.model), float(ranked.scores[size * k + rank]))
        for rank in range(int(counts[size]))
    ]


def _followed(
    ranked: Ranked, data: NDArray[np.uint8], k: int, rank: int, bounds: set[int], pieces: Pieces
) -> list[int]:
    """Return the ids of a path, from its end.

    An unknown character becomes its bytes, or, with its neighbours in the pre-token, one unknown token.
    """
    ids, place = list[int](), data.shape[0]
    while place > 0:
        row = place * k + rank
        token, start = int(ranked.ids[row]), int(ranked.starts[row])
        if token == pieces.unknown and pieces.byte_ids.shape[0]:
            ids += pieces.byte_ids[data[start:place]][::-1].tolist()
        elif token != pieces.unknown or not ids or ids[-1] != token or place in bounds:
            ids.append(token)
        place, rank = start, int(ranked.ranks[row])
    return ids[::-1]


def _encoder(definition: Definition) -> UnigramEncoder:
    model = definition.model
    if not isinstance(model, UnigramModel):
        raise TokenizerError(f"only the pieces of unigram have probabilities, and this is {model.family}")
    return model.encoder()
