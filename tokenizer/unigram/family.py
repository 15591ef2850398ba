"""Unigram language models (Kudo 2018), trained from counts of pre-tokens as sentencepiece does it.

Laws: the same counts give the same pieces and scores in any order and with any number of threads; every
    character of the text (of its most frequent part, with `character_coverage`) is a piece; a sweep gives the
    same as each size alone; no piece has a special token's bytes.
Ids: `[UNK]` is 0, then (with `byte_fallback`) the 256 bytes, then the pieces, the greatest score first and of
    equal ones the smaller string, then special tokens, then reserved ones. With the mode `sentencepiece`
    they are those of `sentences.layout`, scores are 32-bit numbers, and pieces are those that
    `sentences.words` allow.

A piece has at most `max_piece_length` characters and `max_token_bytes` bytes (a single character may have
more), lies in a pre-token, and occurs at least twice, or `min_frequency` times.
"""

from collections.abc import Callable, Sequence

import numpy as np

from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.base_model import UNKNOWN, least_vocab_size
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Model, Progress
from tokmill.tokenizer.pipeline.options import ModelOptions, accept_smaller, refuse_tie_break
from tokmill.tokenizer.sentences import layout as sentences
from tokmill.tokenizer.sentences.layout import Symbols, piece_rules, too_small
from tokmill.tokenizer.sentences.words import cut_words
from tokmill.tokenizer.unigram.model import NAME, USER_DEFINED_SCORE, UnigramModel
from tokmill.tokenizer.unigram.sampling import sample_batch
from tokmill.tokenizer.unigram.seeding import SeedRules, TrainingText, find_seeds, prepare
from tokmill.tokenizer.unigram.trainer import UnigramTrainer

_NO_LIMIT = 1 << 31


class UnigramTraining:
    """Trains one or more vocabulary sizes, each alone; see `pipeline.model.Trainer`."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        """Prepare the text, and find the seeds."""
        check_options(options)
        self._options, self._sizes = options, vocab_sizes
        self._ids = SentenceIds(options) if options.on_sentences else PretokenIds(options)
        self._text = self._ids.text(counts)
        least = self._ids.number + len(self._text.alphabet)
        if not self._text.alphabet:
            raise TrainingError("train: the text is empty, so there is nothing to learn; add text")
        for size in vocab_sizes:
            if size < least:
                numbers = self._ids.number, len(self._text.alphabet)
                raise too_small(size, *numbers, options.character_coverage)
        self._seeds = find_seeds(self._text, _rules(options, self._ids))

    def models(self, progress: Progress | None = None) -> list[Model]:
        """Make a model of each size, in order."""
        return [self._model(size, progress) for size in self._sizes]

    def _model(self, vocab_size: int, progress: Progress | None) -> UnigramModel:
        number = vocab_size - self._ids.number
        trainer = UnigramTrainer(self._text, self._seeds, self._options.num_threads)
        trainer.run(number, self._options.shrinking_factor, progress)
        pieces = trainer.best(number)
        if len(pieces) < number:
            error = TrainingError(
                f"train: the corpus has only {len(pieces)} pieces that are expected to occur, but "
                f"vocab_size={vocab_size} needs {number}; lower vocab_size to "
                f"{self._ids.number + len(pieces)}, or add text"
            )
            accept_smaller(self._options, error)
        spelled = [(self._text.spelled(piece), min(score, 0.0)) for piece, score in pieces]
        return self._ids.model(spelled)


def check_options(options: ModelOptions) -> None:
    """Refuse the options of merges."""
    refuse_tie_break(
        options,
        "merges, which this family does not make: of equal scores the smaller string comes first",
    )


def _rules(options: ModelOptions, ids: "PretokenIds | SentenceIds") -> SeedRules:
    return SeedRules(
        options.seed,
        options.seed_size,
        options.min_frequency / options.count_unit,
        options.max_piece_length,
        options.max_token_bytes or _NO_LIMIT,
        ids.forbidden,
        ids.allows,
        options.count_unit,
    )


class PretokenIds:
    """The ids of a model that is trained on pre-tokens.

    Attributes:
        number: how many are not learned.
        forbidden: strings that are not pieces.
        allows: whether a string may be a piece; None if all may be.
    """

    allows: Callable[[str], bool] | None = None

    def __init__(self, options: ModelOptions) -> None:
        """Take the special tokens of the options, and `[UNK]`."""
        self._options, self._names = options, list(dict.fromkeys([UNKNOWN, *options.names]))
        self._num_bytes = 256 if options.byte_fallback else 0
        self.number, self.forbidden = len(self._names) + self._num_bytes, {n.encode() for n in self._names}

    def text(self, counts: PretokenCounts) -> TrainingText:
        """Prepare the text."""
        return prepare(counts, self._options.count_unit, self._options.character_coverage, self.forbidden)

    def model(self, pieces: Sequence[tuple[bytes, float]]) -> UnigramModel:
        """Give ids to pieces and special tokens."""
        unknown, *others = self._names
        first = 1 + self._num_bytes
        after = first + len(pieces)
        specials = {unknown: 0} | {name: after + i for i, name in enumerate(others)}
        tokens = {1 + byte: bytes([byte]) for byte in range(self._num_bytes)}
        tokens |= {i: piece for i, (piece, _) in enumerate(pieces, start=first)}
        scores = np.zeros(after + len(others))
        scores[first:after] = [score for _, score in pieces]
        vocabulary = Vocabulary.build(tokens, specials, self._options.num_reserved, range(1, first))
        return UnigramModel(vocabulary, scores)


class SentenceIds:
    """The ids of a model that is trained on whole sentences; see `PretokenIds`."""

    def __init__(self, options: ModelOptions) -> None:
        """Give ids to the symbols."""
        self._options, self._symbols, self._rules = options, Symbols(options), piece_rules(options)
        self.number, self.allows = len(self._symbols), self._rules.allows
        self.forbidden = {name.encode() for name in self._symbols.names}

    def text(self, counts: PretokenCounts) -> TrainingText:
        """Prepare the text."""
        words = cut_words(counts, self._rules, self._options.character_coverage, self._symbols.names)
        order = sorted(range(len(words.alphabet)), key=words.alphabet.__getitem__)
        return TrainingText(
            words.counts.data,
            words.counts.offsets,
            words.counts.counts.astype(np.float64) / self._options.count_unit,
            [words.alphabet[i] for i in order],
            words.frequencies[order] / self._options.count_unit,
            {},
        )

    def model(self, pieces: Sequence[tuple[bytes, float]]) -> UnigramModel:
        """Give ids to pieces and symbols."""
        found = self._symbols.lay_out(pieces, self._options.num_reserved)
        scores = found.scores.copy()
        scores[list(found.frozen)] = USER_DEFINED_SCORE
        return UnigramModel(found.vocabulary, scores, sentences.UNKNOWN, "single")


FAMILY = Family(
    NAME,
    "Unigram",
    "pruned pieces",
    UnigramModel.from_spec,
    UnigramTraining,
    least_vocab_size,
    {
        "huggingface": "tokmill.tokenizer.unigram.huggingface",
        "sentencepiece": "tokmill.tokenizer.unigram.sentencepiece",
        "gguf": "tokmill.tokenizer.unigram.sentencepiece",
    },
    check_options=check_options,
    revision=3,
    sample=sample_batch,
    strength="alpha",
)
