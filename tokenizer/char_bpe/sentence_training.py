"""Train BPE on whole sentences, as sentencepiece does it.

Laws: of the pairs of neighbouring pieces that make an allowed piece (`sentences.rules`) the most frequent is
    joined next, of equally frequent ones that whose piece has fewer characters, then the smaller string; a
    pair whose piece another pair has made is not joined; every character of the text (of its most frequent
    part, with `character_coverage`) is a piece.
Ids: those of `sentences.layout`; joined pieces in the order in which they were made, then the characters, the
most frequent first. A piece's score is minus its place among them.
"""

from collections.abc import Sequence

from tokmill.tokenizer.char_bpe.model import CharacterPairModel
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.merging.rules import JoinRules
from tokmill.tokenizer.merging.trainer import learn_pieces
from tokmill.tokenizer.pipeline.model import Model, Progress
from tokmill.tokenizer.pipeline.options import ModelOptions, accept_smaller
from tokmill.tokenizer.sentences.layout import UNKNOWN, Symbols, piece_rules, too_small
from tokmill.tokenizer.sentences.words import cut_words


class SentencePairTraining:
    """Trains one or more vocabulary sizes in the time of the largest; see `pipeline.model.Trainer`."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        """Cut the words, and choose the characters.

        Raises:
            TrainingError: a size is too small for the symbols and characters, or there is no text.
        """
        self._options, self._symbols, self._rules = options, Symbols(options), piece_rules(options)
        self._words = cut_words(counts, self._rules, options.character_coverage, self._symbols.names)
        self._fixed = len(self._symbols) + len(self._words.alphabet)
        if not self._words.alphabet:
            raise TrainingError("train: the text is empty, so there is nothing to learn; add text")
        if min(vocab_sizes) < self._fixed:
            numbers = len(self._symbols), len(self._words.alphabet)
            raise too_small(min(vocab_sizes), *numbers, options.character_coverage)
        self._numbers = [size - self._fixed for size in vocab_sizes]

    def models(self, progress: Progress | None = None) -> list[Model]:
        """Learn the pieces of the largest vocabulary, and make each model of a prefix of them.

        Raises:
            TrainingError: there are too few pieces, and `allow_smaller` is not set.
        """
        wanted, alphabet = max(self._numbers), self._words.alphabet
        rules = JoinRules(
            score="frequency",
            min_frequency=self._options.min_frequency,
            max_token_bytes=self._options.max_token_bytes,
            forbidden={name.encode() for name in self._symbols.names},
            allows=lambda piece: self._rules.allows(piece.decode()),
            shorter_first=True,
            join_again=False,
        )
        pieces = learn_pieces(self._words.counts, wanted + len(alphabet), rules, progress)
        joined = pieces[len(alphabet) :]
        if len(joined) < wanted:
            self._warn(len(joined), wanted)
        return [self._model(joined[:number]) for number in self._numbers]

    def _warn(self, made: int, wanted: int) -> None:
        error = TrainingError(
            f"train: the corpus has {made} pieces of two characters or more, but "
            f"vocab_size={self._fixed + wanted} needs {wanted}; lower vocab_size to {self._fixed + made}, or "
            "add text"
        )
        accept_smaller(self._options, error)

    def _model(self, joined: Sequence[bytes]) -> CharacterPairModel:
        learned = [(piece, -float(i)) for i, piece in enumerate([*joined, *self._words.alphabet])]
        found = self._symbols.lay_out(learned, self._options.num_reserved)
        return CharacterPairModel(found.vocabulary, found.scores, UNKNOWN, found.frozen)
