"""Byte-level BPE, trained from counts of pre-tokens.

Laws: a pair counts once for every place where it occurs (`aaa` has the pair a a twice), times the count of
its pre-token; the same counts give the same merges in any order (but with `first_seen`); a shorter training
is a prefix of a longer one; no merge makes a special token's bytes. Ids: byte b has its rank in GPT-2's byte
alphabet, then come merges in order, special and reserved tokens. `tie_break`: `lexicographic_max` takes the
greater pair of byte strings, `lowest_ids` that of the lower ids, as Hugging Face's `BpeTrainer`, and
`first_seen`, as minbpe, that in the earliest pre-token in the order of the counts, and there farthest to the
left.
"""

from collections.abc import Sequence

import numpy as np

from tokmill.tokenizer.byte_bpe.encoder import MAX_BYTES, Tiling
from tokmill.tokenizer.byte_bpe.kernels.encoding import sample_merges
from tokmill.tokenizer.byte_bpe.model import NAME, BytePairModel, model_of
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import EncodedBatch, Texts
from tokmill.tokenizer.core.errors import LawError, TokenizerError, TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.text import BYTE_ORDER
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.merges import make_scratch
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.merging.trainer import BpeTrainer
from tokmill.tokenizer.pipeline.base_model import refuse_longer
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Model, Progress
from tokmill.tokenizer.pipeline.options import ModelOptions, accept_smaller
from tokmill.tokenizer.pipeline.segmentations import check_seed, check_strength, cut_texts


class BytePairTraining:
    """Trains one or more vocabulary sizes in the time of the largest; see `pipeline.model.Trainer`."""

    def __init__(self, counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> None:
        """Copy the counts for training; they are not needed afterwards."""
        self._options, self._sizes = options, vocab_sizes
        self._numbers = [_num_merges(size, options) for size in vocab_sizes]
        self._trainer = BpeTrainer(counts, MergeRules.of(options, options.names), max(self._numbers))

    def models(self, progress: Progress | None = None) -> list[Model]:
        """Make the merges of the largest vocabulary, and each model from a prefix of them."""
        wanted = max(self._numbers)
        made = self._trainer.run(wanted, progress)
        if made < wanted:
            accept_smaller(self._options, self._too_few(made))
        merges = self._trainer.merges()
        return [_model(merges[:number], self._options) for number in self._numbers]

    def _too_few(self, made: int) -> TrainingError:
        least, largest, wanted = self._options.min_frequency, max(self._sizes), max(self._numbers)
        rarer = f" that occur {least} times or more" if least > 1 else ""
        pairs = f"{self._trainer.num_distinct_bytes} distinct bytes and {made} mergeable pairs{rarer}"
        return TrainingError(
            f"train: the corpus has {pairs}, but vocab_size={largest} needs {wanted} merges; "
            f"lower vocab_size to {largest - wanted + made}, "
            f"{'lower min_frequency, ' if rarer else ''}or add text"
        )


def _num_merges(vocab_size: int, options: ModelOptions) -> int:
    """Return the number of tokens left for merges after 256 bytes and the special and reserved tokens."""
    num_merges = vocab_size - 256 - len(options.names)
    if num_merges < 0:
        raise TrainingError(
            f"train: vocab_size={vocab_size} is too small for 256 bytes and {len(options.names)} special "
            f"and reserved tokens; use at least {256 + len(options.names)}"
        )
    return num_merges


def _model(merges: Sequence[tuple[bytes, bytes]], options: ModelOptions) -> BytePairModel:
    tokens = {i: bytes([byte]) for i, byte in enumerate(BYTE_ORDER)}
    tokens |= {256 + i: left + right for i, (left, right) in enumerate(merges)}
    specials = {name: 256 + len(merges) + i for i, name in enumerate(options.names)}
    return BytePairModel.build(Vocabulary.build(tokens, specials, options.num_reserved), merges)


def _least_vocab_size(special_tokens: Sequence[str], num_reserved: int) -> int:
    """Return the size of a vocabulary of all bytes and the special and reserved tokens; at least 257."""
    return 256 + max(1, len(special_tokens) + num_reserved)


def sample_batch(definition: Definition, texts: Texts, *, dropout: float, seed: int = 0) -> EncodedBatch:
    """Encode texts with BPE-dropout.

    At each step of merging a pre-token every place that a merge could join is left out with the probability
    `dropout`, and of the others the one of the lowest rank is joined, the leftmost first. A pre-token is done
    when all places are left out. The draw depends on the seed, the pre-token and its number in its text:
    neither on the other texts nor on how they are batched, and equal texts are cut alike. So take another
    seed for every epoch. With `ignore_merges`, a pre-token that is a token is taken whole with the dropout 0
    alone. A step tries 1 / (1 - dropout) places on average, so that a dropout near 1 takes long for
    pre-tokens of very many bytes.
    """
    check_strength("dropout", dropout, 1)
    check_seed(seed)
    if definition.family != NAME:
        raise TokenizerError(f"sample: dropout is for the merges of {NAME}, and this is {definition.family}")
    model = model_of(definition)
    data, bounds, pretokens = cut_texts(definition, texts)
    longest = int((pretokens.ends - pretokens.starts).max(initial=0))
    refuse_longer(longest, MAX_BYTES, "sample")
    ids, offsets = np.empty(data.shape[0], np.uint32), np.zeros(bounds.shape[0], np.int64)
    arguments = (
        data,
        pretokens.starts,
        pretokens.ends,
        pretokens.offsets,
        model.tables.pairs,
        model.tables.whole,
    )
    scratch = make_scratch(longest), np.empty(longest, np.uint64)
    size = sample_merges(*arguments, *scratch, float(dropout), np.array([seed], np.uint64), ids, offsets)
    breach = Tiling(model.vocabulary.offsets).breach(ids[:size], offsets, bounds)
    if breach is not None:
        raise LawError(breach.says, breach.segment)
    return EncodedBatch(ids[:size].astype(buffers.id_type(definition.vocab_size)), offsets)


FAMILY = Family(
    NAME,
    "Byte-level BPE",
    "merges",
    BytePairModel.from_spec,
    BytePairTraining,
    _least_vocab_size,
    {
        name: f"tokmill.tokenizer.byte_bpe.{'huggingface' if name == 'gguf' else name}"
        for name in ("huggingface", "gpt2", "tiktoken", "tekken", "gguf")
    },
    sample=sample_batch,
)
