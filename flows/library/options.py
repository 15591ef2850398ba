"""The keywords of the library's calls, so that an editor completes them and mypy checks them.

Each class has the fields of the section of a profile of the same name, under the same names; their meanings,
bounds and defaults are those of the section (`tokmill profiles --keys`). A test compares them.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from tokmill.tasks.formats.packed.manifest import PackedFormat
from tokmill.tasks.store import Verify
from tokmill.tokenizer.pipeline.families import FamilyName

if TYPE_CHECKING:
    from tokmill.tasks.loading.batches import Dtype, Field
    from tokmill.tasks.loading.split import Remainder


class Settings(TypedDict, total=False):
    """Settings of the machine, which change no result; None for the profile's, or the default.

    Attributes:
        workers: tasks at a time; by default one per core.
        memory: memory for counts before they are written to disk, e.g. `4GB`.
        verify: how an artifact is checked before it is reused: `sizes`, or `full` for digests as well.
        rehash: read every source file again instead of trusting its size and time.
        refresh: stages (`train`, `encode`) whose artifacts are made although the store has them. What comes
            out equal leaves what follows as it is.
    """

    workers: int | None
    memory: str | None
    verify: Verify | None
    rehash: bool
    refresh: Iterable[str]


class TrainOptions(TypedDict, total=False):
    """Parameters of `[train]` but `vocab_size`."""

    split_pattern: str
    digits: Literal["pattern", "single", "groups_of_three", "groups_of_three_from_right"]
    normalizer: str | None
    special_tokens: Sequence[str]
    mode: Literal["pretokens", "sentencepiece"]
    add_dummy_prefix: bool
    remove_extra_whitespaces: bool
    normalization_rules: Mapping[str, str]
    split_by_whitespace: bool
    allow_whitespace_only_pieces: bool
    treat_whitespace_as_suffix: bool
    user_defined_symbols: Sequence[str]
    split_by_unicode_script: bool
    split_by_number: bool
    split_digits: bool
    unk_id: int
    bos_id: int
    eos_id: int
    pad_id: int
    special_sets: Sequence[Literal["chat", "fim", "bert"]]
    roles: Mapping[str, str]
    chat_template: str | None
    template: str | None
    pair_template: str | None
    pad_to_multiple_of: int
    family: FamilyName
    num_reserved: int
    min_frequency: int
    min_pretoken_frequency: int
    max_token_bytes: int | None
    tie_break: Literal["lexicographic_max", "lowest_ids", "first_seen"]
    allow_smaller: bool
    byte_fallback: bool
    seed: Literal["substrings", "words", "bpe"]
    seed_size: int
    shrinking_factor: float
    character_coverage: float
    max_piece_length: int
    score: Literal["likelihood", "frequency"]
    unknown: Literal["word", "part"]
    max_input_chars_per_word: int
    letters: Literal["characters", "bytes"]
    end_of_word: Literal["attached", "apart"]
    segmentation: Literal["merges", "longest_first"]


class SamplingOptions(TypedDict, total=False):
    """Parameters of `[balance]` and `[mix]`."""

    method: Literal["proportional", "temperature", "unimax", "weights", "proportions"]
    temperature: float
    weights: Mapping[str, float]
    proportions: Mapping[str, float]


class BalanceOptions(SamplingOptions, total=False):
    """Parameters of `[balance]`."""

    unit: Literal["bytes", "documents"]
    max_repetition: float | None
    total: int | None


class EncodeOptions(TypedDict, total=False):
    """Parameters of `[encode]`."""

    end_of_document: str | None
    begin_of_document: str | None
    min_tokens: int
    special_tokens_in_text: Literal["as_text", "raise", "allowed"]
    fim_rate: float | Mapping[str, float]
    fim_spm_rate: float
    fim_tokens: tuple[str, str, str] | None
    fim_seed: int


class AuditOptions(TypedDict, total=False):
    """Parameters of `[audit]`."""

    sample_megabytes: float
    reference: str | None
    seed: int
    probes: Sequence[Mapping[str, Any]]
    min_bytes_per_token: float | Mapping[str, float] | None
    max_fertility: float | Mapping[str, float] | None
    max_unknown_share: float | Mapping[str, float] | None
    max_premium: float | Mapping[str, float] | None
    max_unused_share: float | None
    no_unreachable: bool
    max_regression: float | None
    on_failure: Literal["warn", "fail"]
    parallel: Mapping[str, str]
    compare_with: Mapping[str, Any] | None


class MixOptions(SamplingOptions, total=False):
    """Parameters of `[mix]`."""

    max_repetition: float | Mapping[str, float]
    min_epochs: float | Mapping[str, float]
    total_tokens: int | None
    schedule: Sequence[Mapping[str, Any]]
    schedule_unit: Literal["fraction", "steps", "tokens"]
    change: Literal["hold", "linear", "cosine"]
    warmup: Mapping[str, Mapping[str, Any]]
    annealing: Mapping[str, Mapping[str, Any]]
    curriculum: Mapping[str, Any] | None
    sequence_length: int | None
    global_batch_size: int | None
    long_documents: Literal["whole", "split"]
    tolerance: float
    on_miss: Literal["warn", "fail"]
    seed: int


class PackOptions(TypedDict, total=False):
    """Parameters of `[pack]` but `sequence_length`."""

    formats: Sequence[PackedFormat]
    labels: bool
    pad_id: int | None
    strategy: Literal["concat", "greedy", "best_fit", "first_fit_decreasing", "pad"]
    window: int
    long_documents: Literal["split", "truncate", "drop"]
    last_sequence: Literal["pad", "drop"]
    fim_rate: float | Mapping[str, float]
    fim_spm_rate: float
    fim_token_ids: tuple[int, int, int] | None
    fim_seed: int
    sequences_per_shard: int
    shuffle_window: int
    shuffle_seed: int


class HoldoutOptions(TypedDict, total=False):
    """Parameters of `[holdout]`."""

    share: float | Mapping[str, float]
    num_documents: Mapping[str, int]
    seed: int


class TrainingOptions(TrainOptions, BalanceOptions, total=False):
    """What `tokmill.train` takes: parameters of `[train]` and of `[balance]`."""


class DatasetOptions(TypedDict, total=False):
    """What `PackedDataset` takes beside its path."""

    batch_size: int
    fields: "Sequence[Field]"
    dtype: "Dtype"
    sequence_lengths: Sequence[tuple[int, int]]
    shuffle: bool
    seed: int
    rank: int
    world_size: int
    remainder: "Remainder"
    num_threads: int
    prefetch: int | None
    verify: bool
    store: str | Path | None


class RunOptions(Settings, total=False):
    """What `tokmill.run` takes: sections of a profile, and settings of the machine."""

    name: str
    description: str
    sources: Mapping[str, Any]
    ingest: Mapping[str, Any] | None
    holdout: Mapping[str, Any] | None
    balance: Mapping[str, Any] | None
    train: Mapping[str, Any] | None
    tokenizer: Mapping[str, Any] | None
    encode: Mapping[str, Any] | None
    audit: Mapping[str, Any] | None
    score: Mapping[str, Any] | None
    mix: Mapping[str, Any] | None
    replan: Mapping[str, Any] | None
    pack: Mapping[str, Any] | None
    tokenizer_card: Mapping[str, Any] | None
    card: Mapping[str, Any] | None
    experiment: Mapping[str, Any] | None
    schedule: Mapping[str, Any] | None
    execution: Mapping[str, Any] | None
    openlineage: Mapping[str, Any] | None
    mlflow: Mapping[str, Any] | None
