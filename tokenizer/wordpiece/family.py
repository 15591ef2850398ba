"""WordPiece, trained from counts of pre-tokens.

Laws: the pair with the best score is joined next (`merging.trainer`); a word counts as often as the
pre-tokens that contain it; the same counts give the same pieces in any order; a smaller vocabulary is a
prefix of a larger one; no piece has a special token's bytes. Ids: `[UNK]` is 0, then the characters, the most
frequent first, as many as there is room for, joined pieces in order, special and reserved tokens.
"""

from collections.abc import Sequence
from dataclasses import replace

from tokmill.tokenizer.components.decoders import CONTINUES
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.counting import count_words
from tokmill.tokenizer.merging.rules import Marks, MergeRules
from tokmill.tokenizer.merging.trainer import learn_merges
from tokmill.tokenizer.pipeline.base_model import (
    SPECIAL_WITH_UNKNOWN,
    UNKNOWN,
    PrefixTraining,
    least_vocab_size,
    names_of,
    piece_vocabulary,
)
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Progress
from tokmill.tokenizer.pipeline.options import ModelOptions, refuse_tie_break
from tokmill.tokenizer.wordpiece.model import NAME, WordPieceModel


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
        name: f"tokmill.tokenizer.wordpiece.{'bert' if name == 'gguf' else name}"
        for name in ("huggingface", "bert", "gguf")
    },
    "wordpiece",
    check_options=check_options,
    revision=1,
)
