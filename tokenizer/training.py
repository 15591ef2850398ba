"""Train a tokenizer of any family from texts, or from counts of pre-tokens.

Laws: the same counts give the same tokenizer in any order; `train` equals counting and then training; a sweep
equals each size alone. Families document what they learn, and ties. `first_seen` goes by the order of the
counts: for `train` that of first occurrence in the texts, with any number of threads; for a mapping its own;
`PretokenCounts` are sorted by bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Unpack

from tokmill.tokenizer.core.buffers import Texts
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.counting import PretokenCounter, count_texts
from tokmill.tokenizer.pipeline.families import find_family
from tokmill.tokenizer.pipeline.model import Progress, Trainer
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
    """Train a tokenizer from texts, which are read once and never held in memory as a whole.

    Args:
        texts: documents, as str or as bytes of UTF-8; or a pyarrow array of strings.
        vocab_size: see `train_from_counts`.
        num_threads: number of threads that count pre-tokens, and that train where a family can; it does not
            change the result.
        progress: called now and then with the number of steps done and wanted (byte-level BPE: merges).
        **options: see `TrainingOptions`.

    Raises:
        TokenizerError: as `train_from_counts`, or `num_threads` is less than one, or a text is not a text.
    """
    plan = TrainingPlan(**options, num_threads=max(num_threads, 1))
    counter = _counter(texts, plan, num_threads, first_seen=plan.tie_break == "first_seen")
    trainer = find_family(plan.family).trainer(counter.take(in_order=False), plan, [vocab_size])
    return _tokenizers(trainer, plan, progress)[0]


def count_pretokens(
    texts: Texts, *, num_threads: int = 1, **options: Unpack[TrainingOptions]
) -> PretokenCounts:
    """Count the pre-tokens of texts as `train` does with the same options.

    `train_from_counts(count_pretokens(texts, **options), vocab_size=n, **options)` makes the tokenizer that
    `train(texts, vocab_size=n, **options)` makes; but not with the tie rule `first_seen`, since these counts
    are sorted by bytes.

    Args:
        texts: see `train`.
        num_threads: see `train`.
        **options: see `TrainingOptions`; options of the model alone have no effect here.

    Raises:
        TokenizerError: an option is invalid, or a text is not a text.
    """
    return _counter(texts, TrainingPlan(**options), num_threads).take()


def _counter(
    texts: Texts, plan: TrainingPlan, num_threads: int, *, first_seen: bool = False
) -> PretokenCounter:
    splitter, normalizer = plan.reading()
    how = splitter, plan.special_tokens, normalizer
    return count_texts(texts, *how, num_threads=num_threads, in_order=first_seen)


def train_from_counts(
    counts: PretokenCounts | Mapping[bytes, int],
    *,
    vocab_size: int,
    num_threads: int = 1,
    progress: Progress | None = None,
    **options: Unpack[TrainingOptions],
) -> Tokenizer:
    """Train a tokenizer from counts of pre-tokens.

    Args:
        counts: how often each pre-token occurs; made with the split pattern, digits, special tokens and
            normalizer of the options.
        vocab_size: number of tokens, including special and reserved ones; see the family's trainer.
        num_threads: number of threads that train, where a family can; it does not change the result.
        progress: called now and then with the number of steps done and wanted (byte-level BPE: merges).
        **options: see `TrainingOptions`.

    Raises:
        TrainingError: too little text for `vocab_size` (the message has a feasible size), or an invalid
            option.
    """
    sizes = [vocab_size]
    return train_sweep_from_counts(
        counts, vocab_sizes=sizes, num_threads=num_threads, progress=progress, **options
    )[0]


def train_sweep_from_counts(
    counts: PretokenCounts | Mapping[bytes, int],
    *,
    vocab_sizes: Sequence[int],
    num_threads: int = 1,
    progress: Progress | None = None,
    **options: Unpack[TrainingOptions],
) -> list[Tokenizer]:
    """Train tokenizers of several sizes in the time of the largest.

    Each tokenizer equals that of `train_from_counts`.

    Args:
        counts: see `train_from_counts`.
        vocab_sizes: one for each tokenizer, in any order.
        num_threads: see `train_from_counts`.
        progress: called now and then with the number of steps done and wanted (byte-level BPE: merges).
        **options: see `TrainingOptions`.

    Returns:
        The tokenizers in the order of their sizes.

    Raises:
        TrainingError: as `train_from_counts`, or there is no size.
    """
    if not vocab_sizes:
        raise TrainingError("train: vocab_sizes is empty; use e.g. [16_000, 32_000]")
    plan = TrainingPlan(**options, num_threads=num_threads)
    if isinstance(counts, PretokenCounts):
        flat = counts
    else:
        flat = PretokenCounts.from_dict(counts, in_order=plan.tie_break != "first_seen")
    trainer = find_family(plan.family).trainer(flat, plan, vocab_sizes)
    del flat  # the next step needs the memory, and this may be the last reference
    return _tokenizers(trainer, plan, progress)


def _tokenizers(trainer: Trainer, plan: TrainingPlan, progress: Progress | None) -> list[Tokenizer]:
    return [Tokenizer(plan.definition(model)) for model in trainer.models(progress)]
