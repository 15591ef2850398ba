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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from tokenizer import buffers
from tokenizer.alphabet import BYTE_ORDER
from tokenizer.bpe_training import BpeTrainer, MergeRules, Progress
from tokenizer.counting import PretokenCounter, PretokenCounts
from tokenizer.definition import FAMILY, Definition
from tokenizer.errors import TrainingError
from tokenizer.normalizers import steps_of
from tokenizer.specials import check_names, reserved_name
from tokenizer.splitting import Digits, PatternLike, compile_pattern, resolve
from tokenizer.tokenizer import Tokenizer

TieBreak = Literal["lexicographic_max", "lowest_ids"]


def train(  # noqa: PLR0913 - the face, by keyword
    texts: Iterable[str],
    *,
    vocab_size: int,
    family: str = FAMILY,
    split_pattern: PatternLike = "gpt2",
    digits: Digits = "pattern",
    normalizer: str | None = None,
    special_tokens: Sequence[str] = (),
    num_reserved: int = 0,
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    tie_break: TieBreak = "lexicographic_max",
    progress: Progress | None = None,
) -> Tokenizer:
    """Train a tokenizer from texts; see `train_from_counts`."""
    splitter = compile_pattern(split_pattern, digits)
    counter = PretokenCounter()
    for batch in _batches(texts):
        counter.add_documents(*buffers.pack(batch), splitter, special_tokens, normalizer)
    return train_from_counts(
        counter.counts(),
        vocab_size=vocab_size,
        family=family,
        split_pattern=split_pattern,
        digits=digits,
        normalizer=normalizer,
        special_tokens=special_tokens,
        num_reserved=num_reserved,
        min_frequency=min_frequency,
        max_token_bytes=max_token_bytes,
        tie_break=tie_break,
        progress=progress,
    )


def train_from_counts(  # noqa: PLR0913 - the face, by keyword
    counts: PretokenCounts | Mapping[bytes, int],
    *,
    vocab_size: int,
    family: str = FAMILY,
    split_pattern: PatternLike = "gpt2",
    digits: Digits = "pattern",
    normalizer: str | None = None,
    special_tokens: Sequence[str] = (),
    num_reserved: int = 0,
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    tie_break: TieBreak = "lexicographic_max",
    progress: Progress | None = None,
) -> Tokenizer:
    """Train a tokenizer from counts of pre-tokens.

    Args:
        counts: how often each pre-token occurs.
        vocab_size: bytes, merges, special and reserved tokens together.
        family: `byte_bpe`.
        split_pattern: how text is cut into pre-tokens; must be what the counts were made with.
        digits: how digits are cut.
        normalizer: what is done to text first.
        special_tokens: names, which get the ids after the merges, in this order.
        num_reserved: how many tokens `<|reserved_0|>`, ... follow them.
        min_frequency: pairs that occur less often are not merged.
        max_token_bytes: longer tokens are not made.
        tie_break: which of the most frequent pairs comes first.
        progress: called now and then with the number of merges made and wanted.

    Raises:
        TrainingError: too few pairs for `vocab_size` (says what would do), or parameters that make no sense.
    """
    _check_choices(family, tie_break)
    _check_numbers(min_frequency=(min_frequency, 0), max_token_bytes=(max_token_bytes, 1))
    _check_numbers(num_reserved=(num_reserved, 0))
    resolve(split_pattern, digits)
    steps_of(normalizer)
    names = [*check_names(special_tokens, "special_tokens"), *map(reserved_name, range(num_reserved))]
    check_names(names, "special_tokens and reserved tokens")
    num_merges = _room_for_merges(vocab_size, len(names))
    rules = MergeRules(tie_break, min_frequency, max_token_bytes, [name.encode() for name in names])
    merges = _train_merges(counts, num_merges, vocab_size, rules, progress)
    tokens = {i: bytes([byte]) for i, byte in enumerate(BYTE_ORDER)}
    tokens |= {256 + i: left + right for i, (left, right) in enumerate(merges)}
    specials = {name: 256 + num_merges + i for i, name in enumerate(names)}
    return Tokenizer(
        Definition.build(
            tokens,
            merges,
            specials,
            split_pattern=split_pattern,
            digits=digits,
            normalizer=normalizer,
            num_reserved=num_reserved,
        )
    )


def _room_for_merges(vocab_size: int, num_names: int) -> int:
    """The tokens that are left for merges beside 256 bytes and the special and reserved tokens."""
    num_merges = vocab_size - 256 - num_names
    if num_merges < 0:
        raise TrainingError(
            f"train: vocab_size={vocab_size} is too small for 256 bytes and {num_names} special and "
            f"reserved tokens; use at least {256 + num_names}"
        )
    return num_merges


def _batches(texts: Iterable[str], num_chars: int = 1 << 22) -> Iterator[list[str]]:
    """Gather texts into batches, so that a stream of them is never in memory as a whole."""
    batch: list[str] = []
    size = 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size >= num_chars:
            yield batch
            batch, size = [], 0
    yield batch


def _check_choices(family: str, tie_break: str) -> None:
    for name, value, known in (("family", family, (FAMILY,)), ("tie_break", tie_break, get_args(TieBreak))):
        if value not in known:
            raise TrainingError(f"train: {name}={value!r} is not known; use one of {', '.join(known)}")


def _check_numbers(**numbers: tuple[int | None, int]) -> None:
    for name, (value, least) in numbers.items():
        if value is not None and value < least:
            raise TrainingError(f"train: {name}={value} must be at least {least}")


def _train_merges(
    counts: PretokenCounts | Mapping[bytes, int],
    num_merges: int,
    vocab_size: int,
    rules: MergeRules,
    progress: Progress | None,
) -> list[tuple[bytes, bytes]]:
    flat = counts if isinstance(counts, PretokenCounts) else PretokenCounts.from_dict(counts)
    trainer = BpeTrainer(flat, rules, num_merges)
    made = trainer.run(num_merges, progress)
    if made < num_merges:
        rarer = f" that occur {rules.min_frequency} times or more" if rules.min_frequency > 1 else ""
        distinct = np.count_nonzero(np.bincount(flat.data, minlength=256))
        raise TrainingError(
            f"train: the corpus has {distinct} distinct bytes and {made} mergeable pairs{rarer}, but "
            f"vocab_size={vocab_size} needs {num_merges} merges; lower vocab_size to "
            f"{vocab_size - num_merges + made}, {'lower min_frequency, ' if rarer else ''}or add text"
        )
    return trainer.merges()
