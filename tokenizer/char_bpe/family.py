"""BPE over characters, trained from counts of pre-tokens, or on whole sentences as sentencepiece does it.

Laws: the same counts give the same pieces in any order; a smaller vocabulary is a prefix of a larger one; no
piece has a special token's bytes. Ids: `[UNK]` is 0, then (with `byte_fallback`) the 256 bytes, characters,
the most frequent first, joined pieces in order, special and reserved tokens; a piece's score is minus its
place. On sentences, a pair must make an allowed piece (`sentences.words`), of equally frequent ones that with
fewer characters is joined, then the smaller string, and ids are those of `sentences.options`.
"""

from collections.abc import Sequence

import numpy as np

from tokmill.tokenizer.char_bpe.kernels import sample_characters
from tokmill.tokenizer.char_bpe.model import NAME, CharacterPairModel
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import EncodedBatch, Texts
from tokmill.tokenizer.core.errors import LawError, TokenizerError, TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.text import utf8_alone
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.merges import make_scratch
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.merging.trainer import check_learned, learn_merges
from tokmill.tokenizer.pipeline.base_model import UNKNOWN, least_vocab_size
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Model, Progress, Trainer
from tokmill.tokenizer.pipeline.options import ModelOptions, accept_smaller, refuse_tie_break
from tokmill.tokenizer.pipeline.segmentations import check_seed, check_strength, cut_texts
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


class CharacterPairTraining:
    """Trains one or more vocabulary sizes in the time of the largest; see `pipeline.model.Trainer`."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        """Take the counts of text that is UTF-8."""
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
        """Learn the pieces of the largest vocabulary, and make each model of a prefix of them."""
        wanted, fixed = max(self._numbers), len(self._names) + self._num_bytes
        rules = MergeRules.of(self._options, self._names, tie_break=None)
        pieces = learn_merges(self._counts, wanted, rules, progress=progress).pieces
        check_learned(len(pieces), wanted, fixed, self._options)
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


def sample_batch(definition: Definition, texts: Texts, *, dropout: float, seed: int = 0) -> EncodedBatch:
    """Encode texts with BPE-dropout.

    At each step every place where two pieces can be joined is left out with the probability `dropout`, and of
    the others the one whose joined piece has the greatest score is joined, the leftmost first. A pre-token is
    done when all places are left out. The draw depends on the seed, the pre-token and its number in its text.
    """
    check_strength("dropout", dropout, 1)
    check_seed(seed)
    model = definition.model
    if not isinstance(model, CharacterPairModel):
        raise TokenizerError(f"sample: these merges are those of {NAME}, and this is {definition.family}")
    data, bounds, pretokens = cut_texts(definition, texts)
    number, longest = bounds.shape[0] - 1, int((pretokens.ends - pretokens.starts).max(initial=0))
    scratch, encoder = make_scratch(longest), model.encoder()
    ids, ends = np.empty(data.shape[0], np.uint32), np.zeros(number + 1, np.int64)
    lost, left_out = np.empty(number, np.int64), np.empty(scratch.ids.shape[0], np.uint64)
    arguments = data, pretokens.starts, pretokens.ends, pretokens.offsets, encoder.pieces, scratch, left_out
    size = sample_characters(*arguments, float(dropout), np.array([seed], np.uint64), ids, ends, lost)
    breach = encoder.law.breach(ids[:size], ends, bounds, lost)
    if breach is not None:
        raise LawError(breach.says, breach.segment)
    return EncodedBatch(ids[:size].astype(buffers.id_type(definition.vocab_size)), ends)


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
    sample=sample_batch,
)
