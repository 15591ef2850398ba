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

from tokmill.tokenizer.byte_bpe.kernels import sample_pretokens
from tokmill.tokenizer.byte_bpe.model import NAME, BytePairModel
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.text import BYTE_ORDER
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.kernels.merges import make_scratch
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.merging.trainer import BpeTrainer
from tokmill.tokenizer.pipeline.encoder import sampler
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.model import Model, Progress
from tokmill.tokenizer.pipeline.options import ModelOptions, accept_smaller


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


FAMILY = Family(
    NAME,
    "Byte-level BPE",
    "merges",
    BytePairModel.from_spec,
    BytePairTraining,
    _least_vocab_size,
    {
        "huggingface": "tokmill.tokenizer.byte_bpe.huggingface",
        "gpt2": "tokmill.tokenizer.byte_bpe.gpt2",
        "tiktoken": "tokmill.tokenizer.byte_bpe.ranks:TIKTOKEN_FORMAT",
        "tekken": "tokmill.tokenizer.byte_bpe.ranks:TEKKEN_FORMAT",
        "gguf": "tokmill.tokenizer.byte_bpe.huggingface",
    },
    sample=sampler(sample_pretokens, scratch=lambda _, length: make_scratch(length)),
)
