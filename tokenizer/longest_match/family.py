"""Longest match: the vocabulary is the pieces that merging the most frequent pairs of bytes makes.

Laws: pieces and ids are those of byte-level BPE from the same counts, since only encoding differs: at each
place the longest token is taken. No piece has a special token's bytes.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.stopping import raise_if_stopped
from tokmill.tokenizer.core.token_tables import lay_out_trie
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.lookup import locate_tokens
from tokmill.tokenizer.kernels.tries import TokenTrie, encode_longest
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.merging.trainer import BpeTrainer, check_learned
from tokmill.tokenizer.pipeline.base_model import Accounting, BaseModel, check_bytes, check_size
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Encoding, Law, Model, Progress, SegmentedText
from tokmill.tokenizer.pipeline.options import ModelOptions
from tokmill.tokenizer.splitting import Pretokens


class LongestMatchEncoder:
    """Turns pre-tokens into ids; safe to share between threads, which write nothing of it."""

    def __init__(self, vocabulary: Vocabulary, byte_ids: NDArray[np.int32]) -> None:
        self.law: Law = Accounting(vocabulary.offsets, _NO_UNKNOWN)
        self._offsets = vocabulary.offsets
        longer = np.array([i for i, token in vocabulary.ordinary() if len(token) > 1], np.int64)
        self._trie, _ = lay_out_trie(vocabulary.data, vocabulary.offsets, longer, byte_ids)

    @contextmanager
    def workspace(self) -> Iterator["Workspace"]:
        """Lend a workspace to one thread for the length of the block."""
        yield Workspace(self._trie)

    def locate(
        self, ids: NDArray[np.int64], text: SegmentedText
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return where each token begins and ends, by their lengths alone."""
        starts, ends = np.empty_like(ids), np.empty_like(ids)
        locate_tokens(ids, self._offsets, text.bounds, text.kinds, starts, ends)
        return starts, ends


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

    def encoder(self) -> LongestMatchEncoder:
        """Make an encoder."""
        return LongestMatchEncoder(self.vocabulary, self.byte_ids)


class LongestMatchTraining:
    """Trains one or more vocabulary sizes in the time of the largest; see `pipeline.model.Trainer`."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        """Take the counts."""
        check_options(options)
        self._counts, self._options = counts, options
        least = least_vocab_size(options.special_tokens, options.num_reserved)
        for size in vocab_sizes:
            if size < least:
                raise TrainingError(
                    f"train: vocab_size={size} is too small for 256 bytes, {len(options.names)} special and "
                    f"reserved tokens, and one piece; use at least {least}"
                )
        self._numbers = [size - len(options.names) for size in vocab_sizes]

    def models(self, progress: Progress | None = None) -> list[Model]:
        """Learn the pieces of the largest vocabulary, and make each model of a prefix of them."""
        wanted, fixed = max(self._numbers), len(self._options.names)
        trainer = BpeTrainer(self._counts, MergeRules.of(self._options, self._options.names), wanted - 256)
        trainer.learn(wanted, progress)
        pieces = trainer.pieces
        check_learned(len(pieces) if len(self._counts) else 0, wanted, fixed, self._options)
        return [self._model(pieces[:number]) for number in self._numbers]

    def _model(self, pieces: Sequence[bytes]) -> LongestMatchModel:
        specials = {name: len(pieces) + i for i, name in enumerate(self._options.names)}
        tokens = dict(enumerate(pieces))
        return LongestMatchModel(Vocabulary.build(tokens, specials, self._options.num_reserved))


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


_NO_UNKNOWN = -1


class Workspace:
    """A vocabulary's trie; it needs no scratch."""

    def __init__(self, trie: TokenTrie) -> None:
        self._trie = trie

    def encode(self, data: NDArray[np.uint8], pretokens: Pretokens, kinds: NDArray[np.int64]) -> Encoding:
        """Encode the pre-tokens of segments."""
        raise_if_stopped()
        number = kinds.shape[0]
        room = int((pretokens.ends - pretokens.starts).sum()) + number
        ids, ends = np.empty(room, np.uint32), np.empty(number + 1, np.int64)
        arguments = data, pretokens.starts, pretokens.ends, pretokens.offsets, kinds, self._trie
        return Encoding(ids[: encode_longest(*arguments, ids, ends)], ends)
