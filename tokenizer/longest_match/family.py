"""Longest match: the vocabulary is the pieces that merging the most frequent pairs of bytes makes.

Laws: pieces and ids are those of byte-level BPE from the same counts, since only encoding differs: at each
place the longest token is taken. No piece has a special token's bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.token_tables import lay_out_trie
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.tries import encode_longest
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.merging.trainer import BpeTrainer
from tokmill.tokenizer.pipeline.base_model import SPECIAL, BaseModel, PrefixTraining, check_bytes, check_size
from tokmill.tokenizer.pipeline.encoder import TilingEncoder
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Progress
from tokmill.tokenizer.pipeline.options import ModelOptions

NAME = "longest_match"


@dataclass(frozen=True, eq=False)
class LongestMatchModel(BaseModel):
    """A vocabulary of which the longest token is taken.

    Attributes:
        vocabulary: the bytes of every id.

    Raises:
        VocabularyError: a byte is not a token, or there are too many ids.
    """

    family = NAME

    def __post_init__(self) -> None:
        check_size(self.vocabulary)
        check_bytes(self.byte_ids, "longest match needs them all")

    @classmethod
    def from_spec(cls, vocabulary: Vocabulary, _spec: Mapping[str, Any]) -> Self:
        """Build a model from a vocabulary; there is nothing else."""
        return cls(vocabulary)

    @cached_property
    def byte_ids(self) -> NDArray[np.int32]:
        """int32, shape (256,): the id of each byte, or -1."""
        ids = np.full(256, -1, np.int32)
        for i, token in self.vocabulary.ordinary():
            if len(token) == 1:
                ids[token[0]] = i
        return ids

    def spec(self) -> dict[str, Any]:
        """Return nothing: everything is in the vocabulary."""
        return {}

    def encoder(self) -> TilingEncoder:
        """Make an encoder."""
        data, offsets = self.vocabulary.data, self.vocabulary.offsets
        longer = np.array([i for i, token in self.vocabulary.ordinary() if len(token) > 1], np.int64)
        trie, _ = lay_out_trie(data, offsets, longer, self.byte_ids)
        return TilingEncoder(encode_longest, trie, offsets)


class LongestMatchTraining(PrefixTraining):
    """Learns pieces as byte-level BPE does."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        check_options(options)
        super().__init__(options, vocab_sizes, {SPECIAL: len(options.names)}, always=256)
        self._counts = counts

    def learn(self, number: int, progress: Progress | None) -> int:
        """Learn pieces; return how many there are."""
        trainer = BpeTrainer(self._counts, MergeRules.of(self.options, self.options.names), number - 256)
        trainer.learn(number, progress)
        self._pieces = trainer.pieces
        return len(self._pieces) if len(self._counts) else 0

    def model(self, number: int) -> LongestMatchModel:
        """Make the model of the first pieces."""
        pieces, names = self._pieces[:number], self.options.names
        specials = {name: len(pieces) + i for i, name in enumerate(names)}
        return LongestMatchModel(
            Vocabulary.build(dict(enumerate(pieces)), specials, self.options.num_reserved)
        )


def check_options(options: ModelOptions) -> None:
    """Refuse bytes for unknown characters: every byte is a token anyway."""
    if options.byte_fallback:
        raise TrainingError(
            "train: byte_fallback=True is for char_bpe and unigram; longest_match has every byte anyway"
        )


def least_vocab_size(special_tokens: Sequence[str], num_reserved: int) -> int:
    """Return the size of a vocabulary of all bytes, the special and reserved tokens, and one piece."""
    return 256 + len(special_tokens) + num_reserved + 1


FAMILY = Family(
    NAME,
    "Longest match",
    "pieces",
    LongestMatchModel.from_spec,
    LongestMatchTraining,
    least_vocab_size,
    dict.fromkeys(("rwkv", "gguf"), "tokmill.tokenizer.longest_match.rwkv"),
    check_options=check_options,
)
