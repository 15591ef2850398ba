"""BPE over characters, trained from counts of pre-tokens, or on whole sentences as sentencepiece does it.

Laws: the same counts give the same pieces in any order; a smaller vocabulary is a prefix of a larger one; no
piece has a special token's bytes. Ids: `[UNK]` is 0, then (with `byte_fallback`) the 256 bytes, characters,
the most frequent first, joined pieces in order, special and reserved tokens; a piece's score is minus its
place. On sentences, a pair must make an allowed piece (`sentences.words`), of equally frequent ones that with
fewer characters is joined, then the smaller string, and ids are those of `sentences.options`.
"""

from collections.abc import Sequence

import numpy as np

from tokmill.tokenizer.char_bpe.kernels import sample_pretokens
from tokmill.tokenizer.char_bpe.model import NAME, CharacterPairModel
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.text import utf8_alone
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.merging.trainer import learn_merges
from tokmill.tokenizer.pipeline.base_model import (
    SPECIAL_WITH_UNKNOWN,
    PrefixTraining,
    least_vocab_size,
    names_of,
    piece_vocabulary,
)
from tokmill.tokenizer.pipeline.encoder import sampler
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Model, Progress, Trainer
from tokmill.tokenizer.pipeline.options import ModelOptions, accept_smaller, refuse_tie_break
from tokmill.tokenizer.sentences.options import UNKNOWN as SENTENCE_UNKNOWN
from tokmill.tokenizer.sentences.options import Symbols, piece_rules, too_small
from tokmill.tokenizer.sentences.words import cut_words


class SentencePairTraining:
    """Trains one or more vocabulary sizes in the time of the largest; see `pipeline.model.Trainer`."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        """Cut the words, and choose the characters."""
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
        """Learn the pieces of the largest vocabulary, and make each model of a prefix of them."""
        wanted, alphabet = max(self._numbers), self._words.alphabet
        chosen = {
            "tie_break": None,
            "shorter_first": True,
            "allows": lambda piece: self._rules.allows(piece.decode()),
        }
        rules = MergeRules.of(self._options, self._symbols.names, **chosen)
        learned = learn_merges(self._words.counts, wanted + len(alphabet), rules, progress=progress)
        joined = learned.pieces[len(alphabet) :]
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
        return CharacterPairModel(found.vocabulary, found.scores, SENTENCE_UNKNOWN, found.frozen)


class CharacterPairTraining(PrefixTraining):
    """Learns pieces of pre-tokens that are UTF-8."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        self._names = names_of(options)
        fixed = {SPECIAL_WITH_UNKNOWN: len(self._names), "bytes": 256 if options.byte_fallback else 0}
        super().__init__(options, vocab_sizes, fixed)
        self._counts = utf8_alone(counts)

    def learn(self, number: int, progress: Progress | None) -> int:
        """Learn pieces; return how many there are."""
        rules = MergeRules.of(self.options, self._names, tie_break=None)
        self._pieces = learn_merges(self._counts, number, rules, progress=progress).pieces
        return len(self._pieces)

    def model(self, number: int) -> CharacterPairModel:
        """Make the model of the first pieces."""
        pieces = self._pieces[:number]
        vocabulary = piece_vocabulary(pieces, self.options, byte_fallback=self.options.byte_fallback)
        scores, first = np.zeros(vocabulary.size), 1 + len(vocabulary.byte_ids)
        scores[first : first + len(pieces)] = -np.arange(len(pieces), dtype=np.float64)
        return CharacterPairModel(vocabulary, scores)


def make_trainer(counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> Trainer:
    """Return the trainer for the options' mode."""
    check_options(options)
    kind = SentencePairTraining if options.on_sentences else CharacterPairTraining
    return kind(counts, options, vocab_sizes)


def check_options(options: ModelOptions) -> None:
    """Refuse the tie rules of byte-level BPE."""
    refuse_tie_break(
        options,
        "byte-level BPE; of equally frequent pairs "
        "char_bpe joins that whose joined piece has the smaller bytes first",
    )


FAMILY = Family(
    NAME,
    "BPE over characters",
    "pieces",
    CharacterPairModel.from_spec,
    make_trainer,
    least_vocab_size,
    dict.fromkeys(("sentencepiece", "huggingface", "gguf"), "tokmill.tokenizer.char_bpe.formats"),
    check_options=check_options,
    revision=3,
    sample=sampler(sample_pretokens),
)
