"""BPE over words, trained from counts of pre-tokens.

Laws: a word counts as often as the pre-tokens that contain it; the same counts give the same merges in any
order, but for the tie rule `first_seen`; a smaller vocabulary is a prefix of a larger one; no piece has a
special token's bytes, and none that does not end a word ends with `</w>`. Ids: `[UNK]` is 0, unless letters
are bytes; then the letters, the most frequent first (bytes: all of them, in the order of byte-level BPE, and
all with `</w>`; `</w>` by itself first), joined pieces in order, special and reserved tokens. `lowest_ids`
goes by these ids.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tokmill.tokenizer.components.decoders import ENDS
from tokmill.tokenizer.core.buffers import EncodedBatch, Texts
from tokmill.tokenizer.core.errors import TokenizerError, TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.text import BYTE_ORDER, utf8_alone
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.counting import count_words
from tokmill.tokenizer.merging.rules import Marks, MergeRules
from tokmill.tokenizer.merging.trainer import learn_merges
from tokmill.tokenizer.pipeline.base_model import (
    SPECIAL,
    UNKNOWN,
    PrefixTraining,
    least_vocab_size,
    names_of,
)
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.encoder import sampler
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Progress
from tokmill.tokenizer.pipeline.options import ModelOptions
from tokmill.tokenizer.word_bpe.kernels import sample_words
from tokmill.tokenizer.word_bpe.model import NAME, WordPairModel, model_of


class WordPairTraining(PrefixTraining):
    """Learns merges of the words of pre-tokens; without letters that are bytes, of those that are UTF-8."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        check_options(options)
        by_bytes, apart = options.letters == "bytes", options.end_of_word == "apart"
        self._marks = Marks(ends=ENDS, apart=apart, by_bytes=by_bytes)
        self._always = _always(self._marks)
        self._names = list(dict.fromkeys(options.names)) if by_bytes else names_of(options)
        super().__init__(options, vocab_sizes, {SPECIAL: len(self._names)}, len(self._always))
        words = count_words(counts, as_met=options.tie_break == "first_seen")
        self._words = words if by_bytes else utf8_alone(words)

    def learn(self, number: int, progress: Progress | None) -> int:
        """Learn pieces and merges; return the number of pieces."""
        rules = MergeRules.of(self.options, self._names, marks=self._marks)
        learned = learn_merges(self._words, number, rules, self._always, progress)
        self._pieces, self._merges = learned.pieces, learned.merged
        return len(self._pieces) if len(self._words) else 0

    def model(self, number: int) -> WordPairModel:
        """Make the model of the first pieces, with the merges up to the one that makes the last of them."""
        pieces = self._pieces[:number]
        numbers = {piece: i for i, piece in enumerate(self._pieces)}
        made = [numbers[self._pieces[left] + self._pieces[right]] for left, right in self._merges]
        upto = made.index(len(pieces) - 1) + 1 if len(pieces) - 1 in made else 0
        first = 0 if self._marks.by_bytes else 1
        rows = [(*pair, result) for pair, result in zip(self._merges[:upto], made, strict=False)]
        unknown, others = self._names[:first], self._names[first:]
        specials = dict.fromkeys(unknown, 0) | {
            name: first + len(pieces) + i for i, name in enumerate(others)
        }
        return WordPairModel(
            Vocabulary.build(dict(enumerate(pieces, start=first)), specials, self.options.num_reserved),
            np.array(rows, np.int32).reshape(-1, 3) + first,
            UNKNOWN if unknown else None,
            fuse_unknown=False,
            letters=self.options.letters,
            end_of_word=self.options.end_of_word,
            segmentation=self.options.segmentation,
        )


def _always(marks: Marks) -> list[bytes]:
    """Return the pieces that a vocabulary has in any case."""
    letters = [bytes([byte]) for byte in BYTE_ORDER] if marks.by_bytes else []
    return [ENDS, *letters] if marks.apart else [*letters, *(letter + ENDS for letter in letters)]


def check_options(options: ModelOptions) -> None:
    """Refuse bytes for unknown characters, for which there are letters that are bytes."""
    if options.byte_fallback:
        raise TrainingError(
            "train: byte_fallback=True is for char_bpe and unigram; word_bpe has letters='bytes' instead"
        )


def sample_batch(definition: Definition, texts: Texts, **how: Any) -> EncodedBatch:
    """Encode texts with BPE-dropout; unknown letters stay unknown tokens."""
    if model_of(definition).by_length:
        raise TokenizerError("sample: dropout leaves merges out, and this tokenizer encodes without merges")
    return sampler(sample_words)(definition, texts, **how)


FAMILY = Family(
    NAME,
    "BPE over words",
    "pieces",
    WordPairModel.from_spec,
    WordPairTraining,
    least_vocab_size,
    {
        name: f"tokmill.tokenizer.word_bpe.{place}"
        for name, place in (("huggingface", "huggingface"), ("gpt2", "gpt2"), ("codes", "gpt2:CODES"))
    },
    "end_of_word",
    check_options,
    sample=sample_batch,
)
