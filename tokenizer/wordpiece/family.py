"""WordPiece, trained from counts of pre-tokens.

Laws: the pair with the best score is joined next (`merging.trainer`); a word counts as often as the
pre-tokens that contain it; the same counts give the same pieces in any order; a smaller vocabulary is a
prefix of a larger one; no piece has a special token's bytes. Ids: `[UNK]` is 0, then the characters, the most
frequent first, as many as there is room for, joined pieces in order, special and reserved tokens.
"""

from collections.abc import Sequence

from tokmill.tokenizer.components.decoders import CONTINUES
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.counting import count_words
from tokmill.tokenizer.merging.rules import Marks, MergeRules
from tokmill.tokenizer.merging.trainer import check_learned, learn_merges
from tokmill.tokenizer.pipeline.base_model import UNKNOWN, least_vocab_size
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Model, Progress
from tokmill.tokenizer.pipeline.options import ModelOptions, refuse_tie_break
from tokmill.tokenizer.wordpiece.model import NAME, WordPieceModel


class WordPieceTraining:
    """Trains one or more vocabulary sizes in the time of the largest; see `pipeline.model.Trainer`."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        """Find the words of the pre-tokens."""
        check_options(options)
        self._options = options
        self._names = list(dict.fromkeys([UNKNOWN, *options.names]))
        least = least_vocab_size(options.special_tokens, options.num_reserved)
        self._numbers = [_num_pieces(size, least) for size in vocab_sizes]
        self._words = count_words(counts)

    def models(self, progress: Progress | None = None) -> list[Model]:
        """Learn the pieces of the largest vocabulary, and make each model of a prefix of them."""
        wanted = max(self._numbers)
        chosen = {
            "tie_break": None,
            "marks": Marks(CONTINUES),
            "by_likelihood": self._options.score == "likelihood",
        }
        rules = MergeRules.of(self._options, self._names, **chosen)
        pieces = learn_merges(self._words, wanted, rules, progress=progress).pieces
        check_learned(len(pieces), wanted, len(self._names), self._options)
        return [self._model(pieces[:number]) for number in self._numbers]

    def _model(self, pieces: Sequence[bytes]) -> WordPieceModel:
        unknown, *others = self._names
        specials = {unknown: 0} | {name: 1 + len(pieces) + i for i, name in enumerate(others)}
        vocabulary = Vocabulary.build(dict(enumerate(pieces, start=1)), specials, self._options.num_reserved)
        most, rule = self._options.max_input_chars_per_word, self._options.unknown
        return WordPieceModel(vocabulary, UNKNOWN, most, rule)


def check_options(options: ModelOptions) -> None:
    """Refuse the tie rules of byte-level BPE."""
    refuse_tie_break(
        options,
        "byte-level BPE; of pairs with equal scores wordpiece joins the more frequent one first",
    )


def _num_pieces(vocab_size: int, least: int) -> int:
    if vocab_size < least:
        raise TrainingError(
            f"train: vocab_size={vocab_size} is too small for {least - 1} special and reserved tokens, "
            f"{UNKNOWN} among them, and one piece; use at least {least}"
        )
    return vocab_size - least + 1


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
