"""Train BPE over characters from counts of pre-tokens.

Laws: the most frequent pair of neighbouring pieces is joined next; the same counts give the same pieces in
    any order; a smaller vocabulary is a prefix of a larger one; no piece has a special token's bytes.
    `merging.trainer` has the ties.
Ids: `[UNK]` is 0, then (with `byte_fallback`) the 256 bytes, then the characters, the most frequent first,
then joined pieces in the order in which they were made, then special tokens, then reserved ones. A piece's
score is minus its place among the pieces, so that earlier pieces are made first. Characters that there is no
room for are unknown. `sentence_training` has the mode `sentencepiece`.
"""

from collections.abc import Sequence

import numpy as np

from tokmill.tokenizer.char_bpe.model import UNKNOWN, CharacterPairModel
from tokmill.tokenizer.char_bpe.sentence_training import SentencePairTraining
from tokmill.tokenizer.core.characters import utf8_alone
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.merging.rules import JoinRules
from tokmill.tokenizer.merging.trainer import learn_pieces
from tokmill.tokenizer.pipeline.model import Model, Progress, Trainer
from tokmill.tokenizer.pipeline.options import ModelOptions, accept_smaller


class CharacterPairTraining:
    """Trains one or more vocabulary sizes in the time of the largest; see `pipeline.model.Trainer`."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        """Take the counts of text that is UTF-8.

        Raises:
            TrainingError: a size is too small, or an option is not for this family.
        """
        self._options, self._counts = options, utf8_alone(counts)
        self._names = list(dict.fromkeys([UNKNOWN, *options.names]))
        self._num_bytes = 256 if options.byte_fallback else 0
        least = least_vocab_size(options.special_tokens, options.num_reserved) + self._num_bytes
        for size in vocab_sizes:
            if size < least:
                with_bytes = f", {self._num_bytes} bytes" if self._num_bytes else ""
                raise TrainingError(
                    f"train: vocab_size={size} is too small for {len(self._names)} special and reserved "
                    f"tokens, {UNKNOWN} among them{with_bytes}, and one piece; use at least {least}"
                )
        self._numbers = [size - least + 1 for size in vocab_sizes]

    def models(self, progress: Progress | None = None) -> list[Model]:
        """Learn the pieces of the largest vocabulary, and make each model of a prefix of them.

        Raises:
            TrainingError: there are too few pieces; the message has a feasible size.
        """
        wanted, fixed = max(self._numbers), len(self._names) + self._num_bytes
        rules = JoinRules(
            score="frequency",
            min_frequency=self._options.min_frequency,
            max_token_bytes=self._options.max_token_bytes,
            forbidden={name.encode() for name in self._names},
        )
        pieces = learn_pieces(self._counts, wanted, rules, progress)
        if not pieces:
            raise TrainingError("train: the text is empty, so there is nothing to learn; add text")
        if len(pieces) < wanted:
            error = TrainingError(
                f"train: the corpus has {len(pieces)} pieces, but vocab_size={fixed + wanted} needs "
                f"{wanted}; lower vocab_size to {fixed + len(pieces)}, or add text"
            )
            accept_smaller(self._options, error)
        return [self._model(pieces[:number]) for number in self._numbers]

    def _model(self, pieces: Sequence[bytes]) -> CharacterPairModel:
        unknown, *others = self._names
        first = 1 + self._num_bytes
        specials = {unknown: 0} | {name: first + len(pieces) + i for i, name in enumerate(others)}
        tokens = {1 + byte: bytes([byte]) for byte in range(self._num_bytes)}
        tokens |= dict(enumerate(pieces, start=first))
        vocabulary = Vocabulary.build(tokens, specials, self._options.num_reserved, range(1, first))
        scores = np.zeros(vocabulary.size)
        scores[first : first + len(pieces)] = -np.arange(len(pieces), dtype=np.float64)
        return CharacterPairModel(vocabulary, scores)


def make_trainer(counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> Trainer:
    """Return the trainer for the options' mode.

    Raises:
        TrainingError: see the trainers.
    """
    check_options(options)
    kind = SentencePairTraining if options.on_sentences else CharacterPairTraining
    return kind(counts, options, vocab_sizes)


def check_options(options: ModelOptions) -> None:
    """Refuse the tie rules of byte-level BPE.

    Raises:
        TrainingError: one is set.
    """
    if options.tie_break != "lexicographic_max":
        raise TrainingError(
            f"train: tie_break={options.tie_break!r} is for byte-level BPE; of equally frequent pairs "
            "char_bpe joins that whose joined piece has the smaller bytes first; leave it out"
        )


def least_vocab_size(special_tokens: Sequence[str], num_reserved: int) -> int:
    """Return the size of a vocabulary of `[UNK]`, the special and reserved tokens, and one character."""
    return len({UNKNOWN, *special_tokens}) + num_reserved + 1
