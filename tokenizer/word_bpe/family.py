"""BPE over words, trained from counts of pre-tokens.

Laws: a word counts as often as the pre-tokens that contain it; the same counts give the same merges in any
order, but for the tie rule `first_seen`; a smaller vocabulary is a prefix of a larger one; no piece has a
special token's bytes, and none that does not end a word ends with `</w>`. Ids: `[UNK]` is 0, unless letters
are bytes; then the letters, the most frequent first (bytes: all of them, in the order of byte-level BPE, and
all with `</w>`; `</w>` by itself first), joined pieces in order, special and reserved tokens. `lowest_ids`
goes by these ids.
"""

from collections.abc import Sequence

import numpy as np

from tokmill.tokenizer.components.decoders import ENDS
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import EncodedBatch, Texts
from tokmill.tokenizer.core.errors import LawError, TokenizerError, TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.text import BYTE_ORDER, utf8_alone
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.counting import count_words
from tokmill.tokenizer.merging.rules import Marks, MergeRules
from tokmill.tokenizer.merging.trainer import check_learned, learn_merges
from tokmill.tokenizer.pipeline.base_model import UNKNOWN, least_vocab_size
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Model, Progress
from tokmill.tokenizer.pipeline.options import ModelOptions
from tokmill.tokenizer.pipeline.segmentations import check_seed, check_strength, cut_texts
from tokmill.tokenizer.splitting.splitter import words_of
from tokmill.tokenizer.word_bpe.kernels import sample_words
from tokmill.tokenizer.word_bpe.model import NAME, WordPairModel, id_room, model_of, scratch_for


class WordPairTraining:
    """Trains one or more vocabulary sizes in the time of the largest; see `pipeline.model.Trainer`."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        """Find the words of the pre-tokens; without letters that are bytes, only those that are UTF-8."""
        check_options(options)
        self._options, by_bytes, apart = options, options.letters == "bytes", options.end_of_word == "apart"
        self._marks = Marks(ends=ENDS, apart=apart, by_bytes=by_bytes)
        self._always = _always(self._marks)
        self._names = list(dict.fromkeys([*([] if by_bytes else [UNKNOWN]), *options.names]))
        least = len(self._names) + len(self._always) + 1
        for size in vocab_sizes:
            if size < least:
                raise TrainingError(
                    f"train: vocab_size={size} is too small for {len(self._names)} special and reserved "
                    f"tokens, {len(self._always)} pieces that are always there, and one more; use at least "
                    f"{least}"
                )
        self._numbers = [size - len(self._names) for size in vocab_sizes]
        words = count_words(counts, as_met=options.tie_break == "first_seen")
        self._words = words if by_bytes else utf8_alone(words)

    def models(self, progress: Progress | None = None) -> list[Model]:
        """Learn the merges of the largest vocabulary, and make each model of a prefix of them."""
        wanted, fixed = max(self._numbers), len(self._names)
        rules = MergeRules.of(self._options, self._names, marks=self._marks)
        learned = learn_merges(self._words, wanted, rules, self._always, progress)
        pieces, merges = learned.pieces, learned.merged
        check_learned(len(pieces) if len(self._words) else 0, wanted, fixed, self._options)
        return [self._model(pieces, merges, number) for number in self._numbers]

    def _model(
        self, pieces: Sequence[bytes], merges: Sequence[tuple[int, int]], number: int
    ) -> WordPairModel:
        """Make the model of the first pieces, with the merges up to the one that makes the last of them."""
        numbers = {piece: i for i, piece in enumerate(pieces)}
        made = [numbers[pieces[left] + pieces[right]] for left, right in merges]
        number = min(number, len(pieces))
        upto = made.index(number - 1) + 1 if number - 1 in made else 0
        first = 0 if self._marks.by_bytes else 1
        rows = [(*pair, result) for pair, result in zip(merges[:upto], made, strict=False)]
        unknown, others = self._names[:first], self._names[first:]
        specials = dict.fromkeys(unknown, 0) | {name: first + number + i for i, name in enumerate(others)}
        tokens = dict(enumerate(pieces[:number], start=first))
        return WordPairModel(
            Vocabulary.build(tokens, specials, self._options.num_reserved),
            np.array(rows, np.int32).reshape(-1, 3) + first,
            UNKNOWN if unknown else None,
            fuse_unknown=False,
            letters=self._options.letters,
            end_of_word=self._options.end_of_word,
            segmentation=self._options.segmentation,
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


def sample_batch(definition: Definition, texts: Texts, *, dropout: float, seed: int = 0) -> EncodedBatch:
    """Encode texts with BPE-dropout.

    At each step of merging a word every place that a merge could join is left out with the probability
    `dropout`, and of the others the one of the lowest rank is joined, the leftmost first. A word is done when
    all places are left out. The draw depends on the seed, the word and its number in its text. Unknown
    letters stay unknown tokens.
    """
    check_strength("dropout", dropout, 1)
    check_seed(seed)
    if definition.family != NAME or model_of(definition).by_length:
        raise TokenizerError("sample: dropout leaves merges out, and this tokenizer encodes without merges")
    model = model_of(definition)
    data, bounds, pretokens = cut_texts(definition, texts)
    words, number = words_of(data, pretokens), bounds.shape[0] - 1
    scratch, encoder = scratch_for(words), model.encoder()
    ids, ends = np.empty(id_room(words, number), np.uint32), np.zeros(number + 1, np.int64)
    lost, left_out = np.empty(number, np.int64), np.empty(scratch.ids.shape[0], np.uint64)
    arguments = (
        data,
        words.starts,
        words.ends,
        words.offsets,
        encoder.pieces,
        scratch,
        left_out,
        float(dropout),
    )
    nowhere = np.empty((0, 2), np.int64)
    size = sample_words(*arguments, np.array([seed], np.uint64), nowhere, ids, ends, lost)
    lengths = np.concatenate([np.zeros(1, np.int64), np.cumsum(words.ends - words.starts)])
    white = np.diff(bounds) - np.diff(lengths[words.offsets])
    breach = encoder.law.breach(ids[:size], ends, bounds, lost + white)
    if breach is not None:
        raise LawError(breach.says, breach.segment)
    return EncodedBatch(ids[:size].astype(buffers.id_type(definition.vocab_size)), ends)


FAMILY = Family(
    NAME,
    "BPE over words",
    "pieces",
    WordPairModel.from_spec,
    WordPairTraining,
    least_vocab_size,
    {name: f"tokmill.tokenizer.word_bpe.{name}" for name in ("huggingface", "gpt2", "codes")},
    "end_of_word",
    check_options,
    sample=sample_batch,
)
