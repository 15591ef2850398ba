"""Parameters of packing: what the plan depends on, and what the writing of a shard depends on."""

from typing import Any, Literal, TypeAlias

from pydantic import Field, field_validator

from tasks.formats.packed_files import PackedFormat
from tasks.packing.pieces import LongDocuments, Strategy
from tasks.stage import Params

LastSequence: TypeAlias = Literal["pad", "drop"]


class PackPlanParams(Params):
    """How documents become sequences."""

    sequence_length: int = Field(
        default=2048,
        ge=8,
        lt=1 << 31,
        description=(
            "Tokens a sequence, padding included: the model's context length. At least 8; any number will do."
        ),
        examples=[2048],
    )
    strategy: Strategy = Field(
        default="concat",
        description=(
            "'concat' lays documents end to end and cuts wherever a sequence ends: no padding, nothing "
            "lost. 'greedy' keeps documents whole: the next one goes into the open sequence if it fits, "
            "else the sequence is padded."
        ),
    )
    long_documents: LongDocuments = Field(
        default="split",
        description=(
            "For 'greedy': what becomes of documents longer than a sequence. 'split' into full sequences "
            "and a rest that is packed with others, 'truncate' to one sequence, or 'drop'. What is lost is "
            "in the accounts."
        ),
    )
    last_sequence: LastSequence = Field(
        default="pad",
        description=(
            "For 'concat': 'pad' the last, partial sequence, or 'drop' it, which loses fewer than "
            "sequence_length tokens."
        ),
    )
    sequences_per_shard: int = Field(
        default=8192,
        ge=1,
        description="Sequences in one file. A shard is written by one task, which holds it in memory.",
    )


class _WriteParams(Params):
    """How sequences are written."""

    formats: tuple[PackedFormat, ...] = Field(
        default=("memmap",),
        min_length=1,
        description=(
            "'memmap' (flat .bin of tokens with .npy boundaries, for memory-mapped loaders) and/or "
            "'parquet' (columns input_ids, position_ids, segment_ids, seq_lengths). Every format holds all "
            "sequences."
        ),
        examples=[["memmap", "parquet"]],
    )
    pad_id: int | None = Field(
        default=None,
        ge=0,
        description=(
            "Token id that fills sequences up. Empty: the end-of-document token, or 0 where there is none. "
            "Boundaries, segment ids and the loss mask leave padding out, whatever its id."
        ),
    )

    @field_validator("formats")
    @classmethod
    def _sort_formats(cls, given: tuple[PackedFormat, ...]) -> tuple[PackedFormat, ...]:
        """The order in which formats are named, or naming one twice, makes no difference."""
        return tuple(sorted(set(given)))


class PackShardParams(_WriteParams):
    """Which shard of the plan to write, and how."""

    index: int = Field(ge=0, description="Number of the shard in the plan, from 0.")


class PackParams(PackPlanParams, _WriteParams):
    """How documents become sequences of one length, and in which formats they are written."""

    def plan_params(self) -> PackPlanParams:
        """The part that the plan depends on."""
        return PackPlanParams(**_part(self, PackPlanParams))

    def shard_params(self, index: int) -> PackShardParams:
        """The part that the writing of shard `index` depends on."""
        return PackShardParams(index=index, **_part(self, _WriteParams))


def _part(params: Params, model: type[Params]) -> dict[str, Any]:
    return {name: getattr(params, name) for name in model.model_fields}
