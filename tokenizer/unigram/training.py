"""Train a unigram language model from counts of pre-tokens (Kudo 2018), as sentencepiece does it.

Laws: the same counts give the same pieces and scores in any order and with any number of threads; every
    character of the text (of its most frequent part, with `character_coverage`) is a piece; a sweep gives the
    same as each size alone; no piece has a special token's bytes.
Ids: `[UNK]` is 0, then the pieces, the greatest score first and of equal ones the smaller string, then
    special tokens, then reserved ones.

A piece has at most `max_piece_length` characters and `max_token_bytes` bytes (a single character may have
more), lies in a pre-token, and occurs at least twice, or `min_frequency` times.
"""

from collections.abc import Sequence

import numpy as np

from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.model import Model, Progress
from tokmill.tokenizer.pipeline.options import ModelOptions
from tokmill.tokenizer.unigram.model import UNKNOWN, UnigramModel
from tokmill.tokenizer.unigram.seeding import SeedRules, find_seeds
from tokmill.tokenizer.unigram.text import TrainingText, prepare
from tokmill.tokenizer.unigram.trainer import UnigramTrainer

_NO_LIMIT = 1 << 31


class UnigramTraining:
    """Trains one or more vocabulary sizes, each alone; see `pipeline.model.Trainer`."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        """Prepare the text, and find the seeds.

        Args:
            counts: how often each pre-token occurs, in any order.
            options: see `ModelOptions`.
            vocab_sizes: one for each model.

        Raises:
            TrainingError: a size is too small for the alphabet, there is no text, or an option is not for
                this family.
        """
        check_options(options)
        self._options, self._sizes = options, vocab_sizes
        self._names = list(dict.fromkeys([UNKNOWN, *options.names]))
        forbidden = {name.encode() for name in self._names}
        self._text = prepare(counts, options.count_unit, options.character_coverage, forbidden)
        least = len(self._names) + len(self._text.alphabet)
        if not self._text.alphabet:
            raise TrainingError("train: the text is empty, so there is nothing to learn; add text")
        for size in vocab_sizes:
            if size < least:
                raise self._too_small(size, least)
        self._seeds = find_seeds(self._text, _rules(options, forbidden))

    def models(self, progress: Progress | None = None) -> list[Model]:
        """Make a model of each size, in order.

        Raises:
            TrainingError: the text has fewer pieces; the message has their number.
        """
        return [self._model(size, progress) for size in self._sizes]

    def _model(self, vocab_size: int, progress: Progress | None) -> UnigramModel:
        number = vocab_size - len(self._names)
        trainer = UnigramTrainer(self._text, self._seeds, self._options.num_threads)
        trainer.run(number, self._options.shrinking_factor, progress)
        pieces = trainer.best(number)
        if len(pieces) < number:
            raise TrainingError(
                f"train: the corpus has only {len(pieces)} pieces that are expected to occur, but "
                f"vocab_size={vocab_size} needs {number}; lower vocab_size to "
                f"{len(self._names) + len(pieces)}, or add text"
            )
        return _make(self._text, pieces, self._names, self._options.num_reserved)

    def _too_small(self, size: int, least: int) -> TrainingError:
        return TrainingError(
            f"train: vocab_size={size} is too small for {len(self._text.alphabet)} characters and "
            f"{len(self._names)} special and reserved tokens, {UNKNOWN} among them; use at least {least}, or "
            f"lower character_coverage={self._options.character_coverage}"
        )


def least_vocab_size(special_tokens: Sequence[str], num_reserved: int) -> int:
    """Return the size of a vocabulary of `[UNK]`, the special and reserved tokens, and one character."""
    return len({UNKNOWN, *special_tokens}) + num_reserved + 1


def check_options(options: ModelOptions) -> None:
    """Refuse the options of merges.

    Raises:
        TrainingError: one is set.
    """
    if options.tie_break != "lexicographic_max":
        raise TrainingError(
            f"train: tie_break={options.tie_break!r} is for merges, which this family does not make: of "
            "equal scores the smaller string comes first; leave it out"
        )


def _rules(options: ModelOptions, forbidden: set[bytes]) -> SeedRules:
    return SeedRules(
        options.seed,
        options.seed_size,
        options.min_frequency / options.count_unit,
        options.max_piece_length,
        options.max_token_bytes or _NO_LIMIT,
        forbidden,
    )


def _make(
    text: TrainingText, pieces: Sequence[tuple[bytes, float]], names: Sequence[str], num_reserved: int
) -> UnigramModel:
    """Give ids to pieces and special tokens."""
    unknown, *others = names
    specials = {unknown: 0} | {name: 1 + len(pieces) + i for i, name in enumerate(others)}
    tokens = {i: text.spelled(piece) for i, (piece, _) in enumerate(pieces, start=1)}
    scores = np.zeros(1 + len(pieces) + len(others))
    scores[1 : 1 + len(pieces)] = [min(score, 0.0) for _, score in pieces]
    return UnigramModel(Vocabulary.build(tokens, specials, num_reserved), scores)
