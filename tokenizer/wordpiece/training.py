"""Train WordPiece from counts of pre-tokens.

Laws: the pair of neighbouring pieces with the best score is joined next; a word counts as often as the
    pre-tokens that contain it; the same counts give the same pieces in any order; a smaller vocabulary is a
    prefix of a larger one; no piece has a special token's bytes. `merging.trainer` has the scores and
    their ties.
Ids: `[UNK]` is 0, then the characters, the most frequent first, then joined pieces in the order in which they
were made, then special tokens, then reserved ones. Characters that there is no room for are unknown.
"""

from collections.abc import Sequence

from tokmill.tokenizer.components.decoders import CONTINUES
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.merging.rules import JoinRules, Marks
from tokmill.tokenizer.merging.trainer import learn_pieces
from tokmill.tokenizer.merging.words import count_words
from tokmill.tokenizer.pipeline.model import Model, Progress
from tokmill.tokenizer.pipeline.options import ModelOptions, accept_smaller
from tokmill.tokenizer.wordpiece.model import UNKNOWN, WordPieceModel


class WordPieceTraining:
    """Trains one or more vocabulary sizes in the time of the largest; see `pipeline.model.Trainer`."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        """Find the words of the pre-tokens.

        Raises:
            TrainingError: a size is too small, or an option is not for this family.
        """
        check_options(options)
        self._options = options
        self._names = list(dict.fromkeys([UNKNOWN, *options.names]))
        least = least_vocab_size(options.special_tokens, options.num_reserved)
        self._numbers = [_num_pieces(size, least) for size in vocab_sizes]
        self._words = count_words(counts)

    def models(self, progress: Progress | None = None) -> list[Model]:
        """Learn the pieces of the largest vocabulary, and make each model of a prefix of them.

        Raises:
            TrainingError: there are too few pieces; the message has a feasible size.
        """
        wanted = max(self._numbers)
        rules = JoinRules(
            score=self._options.score,
            marks=Marks(CONTINUES),
            min_frequency=self._options.min_frequency,
            max_token_bytes=self._options.max_token_bytes,
            forbidden={name.encode() for name in self._names},
        )
        pieces = learn_pieces(self._words, wanted, rules, progress)
        if not pieces:
            raise TrainingError("train: the text is empty, so there is nothing to learn; add text")
        if len(pieces) < wanted:
            fixed = len(self._names)
            error = TrainingError(
                f"train: the corpus has {len(pieces)} pieces, but vocab_size={fixed + wanted} needs "
                f"{wanted}; lower vocab_size to {fixed + len(pieces)}, or add text"
            )
            accept_smaller(self._options, error)
        return [self._model(pieces[:number]) for number in self._numbers]

    def _model(self, pieces: Sequence[bytes]) -> WordPieceModel:
        unknown, *others = self._names
        specials = {unknown: 0} | {name: 1 + len(pieces) + i for i, name in enumerate(others)}
        vocabulary = Vocabulary.build(dict(enumerate(pieces, start=1)), specials, self._options.num_reserved)
        most, rule = self._options.max_input_chars_per_word, self._options.unknown
        return WordPieceModel(vocabulary, UNKNOWN, most, rule)


def check_options(options: ModelOptions) -> None:
    """Refuse the tie rules of byte-level BPE.

    Raises:
        TrainingError: one is set.
    """
    if options.tie_break != "lexicographic_max":
        raise TrainingError(
            f"train: tie_break={options.tie_break!r} is for byte-level BPE; of pairs with equal scores "
            "wordpiece joins the more frequent one first; leave it out"
        )


def least_vocab_size(special_tokens: Sequence[str], num_reserved: int) -> int:
    """Return the size of a vocabulary of `[UNK]`, the special and reserved tokens, and one piece."""
    return len({UNKNOWN, *special_tokens}) + num_reserved + 1


def _num_pieces(vocab_size: int, least: int) -> int:
    if vocab_size < least:
        raise TrainingError(
            f"train: vocab_size={vocab_size} is too small for {least - 1} special and reserved tokens, "
            f"{UNKNOWN} among them, and one piece; use at least {least}"
        )
    return vocab_size - least + 1
