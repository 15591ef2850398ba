"""Training a byte-level BPE tokenizer from counts of pre-tokens.

Laws: the most frequent pair of neighbouring tokens is merged next; a pair counts once for every place where
    it stands (overlapping places count: `aaa` has the pair a a twice) and every time its pre-token occurs;
    the same counts give the same merges in whatever order they come; a shorter training is a prefix of a
    longer one; no merge makes a special token's bytes.
Ids: byte b has the rank it has in GPT-2's byte alphabet (0 to 255), then merges in order, then special
    tokens, then reserved ones.

Equal counts are decided by `tie_break`: with `lexicographic_max` the greater pair of byte strings wins (the
first one's bytes are compared, then the second one's), with `lowest_ids` the pair of the lower ids, as
Hugging Face's `BpeTrainer`.
"""

from collections.abc import Mapping, Sequence
from typing import Unpack

from tokmill.tokenizer.byte_bpe.trainer import BpeTrainer, Progress
from tokmill.tokenizer.core.buffers import Texts
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.counting import PretokenCounter, count_texts
from tokmill.tokenizer.splitting import compile_pattern
from tokmill.tokenizer.tokenizer import Tokenizer
from tokmill.tokenizer.training_options import TrainingOptions, TrainingPlan


def train(
    texts: Texts,
    *,
    vocab_size: int,
    num_threads: int = 1,
    progress: Progress | None = None,
    **options: Unpack[TrainingOptions],
) -> Tokenizer:
    """Train a tokenizer from texts, which are gone through once and never in memory as a whole.

    Args:
        texts: documents, as str or as bytes of UTF-8; or a pyarrow array of strings.
        vocab_size: see `train_from_counts`, as for what follows.
        num_threads: how many threads count pre-tokens; changes no result.
        progress: called now and then with the number of merges made and wanted.
        **options: see `TrainingOptions`.

    Raises:
        TokenizerError: as `train_from_counts`, or `num_threads` is less than one, or something is no text.
    """
    plan = TrainingPlan(**options)
    counter = _counter(texts, plan, num_threads)
    trainer = BpeTrainer(counter.take(in_order=False), plan.rules(), plan.num_merges(vocab_size))
    return _tokenizers(trainer, plan, [vocab_size], progress)[0]


def count_pretokens(
    texts: Texts, *, num_threads: int = 1, **options: Unpack[TrainingOptions]
) -> PretokenCounts:
    """Count the pre-tokens of texts as `train` does with the same options.

    `train_from_counts(count_pretokens(texts, **options), vocab_size=n, **options)` makes the tokenizer that
    `train(texts, vocab_size=n, **options)` makes.

    Args:
        texts: see `train`.
        num_threads: see `train`.
        **options: see `TrainingOptions`; those that only concern merging change nothing here.

    Raises:
        TokenizerError: options that make no sense, or something is no text; says which.
    """
    return _counter(texts, TrainingPlan(**options), num_threads).take()


def _counter(texts: Texts, plan: TrainingPlan, num_threads: int) -> PretokenCounter:
    splitter = compile_pattern(plan.split_pattern, plan.digits)
    return count_texts(texts, splitter, plan.special_tokens, plan.normalizer, num_threads=num_threads)


def train_from_counts(
    counts: PretokenCounts | Mapping[bytes, int],
    *,
    vocab_size: int,
    progress: Progress | None = None,
    **options: Unpack[TrainingOptions],
) -> Tokenizer:
    """Train a tokenizer from counts of pre-tokens.

    Args:
        counts: how often each pre-token occurs; made with the split pattern, digits, special tokens and
            normalizer that the options say.
        vocab_size: bytes, merges, special and reserved tokens together.
        progress: called now and then with the number of merges made and wanted.
        **options: see `TrainingOptions`.

    Raises:
        TrainingError: too few pairs for `vocab_size` (says what would do), or options that make no sense.
    """
    return train_sweep_from_counts(counts, vocab_sizes=[vocab_size], progress=progress, **options)[0]


def train_sweep_from_counts(
    counts: PretokenCounts | Mapping[bytes, int],
    *,
    vocab_sizes: Sequence[int],
    progress: Progress | None = None,
    **options: Unpack[TrainingOptions],
) -> list[Tokenizer]:
    """Train tokenizers of several sizes for the price of the largest.

    A shorter training is a prefix of a longer one, so each tokenizer equals what `train_from_counts` makes.

    Args:
        counts: see `train_from_counts`.
        vocab_sizes: one a tokenizer, in any order.
        progress: called now and then with the number of merges made and wanted.
        **options: see `TrainingOptions`.

    Returns:
        The tokenizers in the order of their sizes.

    Raises:
        TrainingError: as `train_from_counts`, or there is no size.
    """
    if not vocab_sizes:
        raise TrainingError("train: vocab_sizes is empty; use e.g. [16_000, 32_000]")
    plan = TrainingPlan(**options)
    flat = counts if isinstance(counts, PretokenCounts) else PretokenCounts.from_dict(counts)
    trainer = BpeTrainer(flat, plan.rules(), max(map(plan.num_merges, vocab_sizes)))
    del flat  # what comes next needs the memory, and this may be the last to hold them
    return _tokenizers(trainer, plan, vocab_sizes, progress)


def _tokenizers(
    trainer: BpeTrainer, plan: TrainingPlan, vocab_sizes: Sequence[int], progress: Progress | None
) -> list[Tokenizer]:
    """Make the merges of the largest vocabulary, and each tokenizer of its part of them."""
    numbers = [plan.num_merges(vocab_size) for vocab_size in vocab_sizes]
    made = trainer.run(max(numbers), progress)
    if made < max(numbers):
        rarer = f" that occur {plan.min_frequency} times or more" if plan.min_frequency > 1 else ""
        pairs = f"{trainer.num_distinct_bytes} distinct bytes and {made} mergeable pairs{rarer}"
        raise TrainingError(
            f"train: the corpus has {pairs}, but vocab_size={max(vocab_sizes)} needs {max(numbers)} merges; "
            f"lower vocab_size to {max(vocab_sizes) - max(numbers) + made}, "
            f"{'lower min_frequency, ' if rarer else ''}or add text"
        )
    merges = trainer.merges()
    return [plan.tokenizer(merges[:number]) for number in numbers]
