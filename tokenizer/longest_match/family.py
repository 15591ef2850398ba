"""Longest match: the vocabulary is the pieces that merging the most frequent pairs of bytes makes.

Laws: the pieces are those of byte-level BPE from the same counts, since only encoding differs; the same
    counts give the same pieces in any order, but for the tie rule `first_seen`; a smaller vocabulary is a
    prefix of a larger one; no piece has a special token's bytes.
Ids: bytes in the order of byte-level BPE, joined pieces as they were made, special and reserved tokens.
"""

from collections.abc import Sequence

from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.longest_match.model import NAME, LongestMatchModel
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.merging.trainer import BpeTrainer, check_learned
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Model, Progress
from tokmill.tokenizer.pipeline.options import ModelOptions


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
