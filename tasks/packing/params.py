"""Parameters of packing: what the plan depends on, and what the writing of a shard depends on."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from tokmill.tasks.core.stage import Params
from tokmill.tasks.formats.packed.figures import WINDOWED, LastSequence, LongDocuments, Strategy
from tokmill.tasks.formats.packed.layout import PackedFormat

_LONGEST_WINDOWED = 1 << 24
Rate = Annotated[float, Field(ge=0, le=1)]
TokenId = Annotated[int, Field(ge=0)]


class PackPlanParams(Params):
    """How documents become sequences."""

    sequence_length: int = Field(
        default=2048,
        ge=8,
        lt=1 << 31,
        description=(
            "Tokens a sequence, padding included: the model's context length. At least 8; any number will "
            "do. A packing can be read at every multiple of it."
        ),
        examples=[2048],
    )
    strategy: Strategy = Field(
        default="concat",
        description=(
            "'concat' lays documents end to end and cuts wherever a sequence ends: no padding, nothing "
            "lost. The others keep documents whole. 'best_fit' and 'first_fit_decreasing' fill sequences "
            "from a window of documents, longest first, and leave next to no padding; 'greedy' takes "
            "documents in order, and pads when the next does not fit; 'pad' gives each its own sequence."
        ),
    )
    window: int = Field(
        default=20_000,
        ge=1,
        le=1 << 22,
        description=(
            "For 'best_fit' and 'first_fit_decreasing': documents that are packed at a time. A document "
            "leaves its place in the mixture's order within its window only, and the sources' shares hold "
            "within it, too; larger windows pad less."
        ),
    )
    long_documents: LongDocuments = Field(
        default="split",
        description=(
            "What becomes of documents longer than a sequence, where documents are kept whole: 'split' into "
            "full sequences and a rest that is packed with others, 'truncate' to one sequence, or 'drop'. "
            "What is lost is in the accounts."
        ),
    )
    last_sequence: LastSequence = Field(
        default="pad",
        description=(
            "For 'concat': 'pad' the last, partial sequence, or 'drop' it, which loses fewer than "
            "sequence_length tokens."
        ),
    )
    fim_rate: Rate | Mapping[str, Rate] = Field(
        default=0.0,
        description=(
            "Fill in the middle: the part of the documents, from 0 to 1, whose tokens are rearranged into "
            "prefix, suffix, middle; one number, or a table by source (0 for those that it does not name). "
            "Not with 'concat', which would cut the examples."
        ),
    )
    fim_spm_rate: Rate = Field(
        default=0.5,
        description="The part of the rearranged documents that has the suffix first (SPM instead of PSM).",
    )
    fim_token_ids: tuple[TokenId, TokenId, TokenId] | None = Field(
        default=None,
        description="Ids of the tokens that stand before prefix, suffix and middle, in this order.",
        examples=[[100258, 100260, 100259]],
    )
    fim_seed: int = Field(
        default=0,
        ge=0,
        lt=1 << 61,
        description="Decides which documents are rearranged, and where they are cut.",
    )
    sequences_per_shard: int = Field(
        default=8192,
        ge=1,
        lt=1 << 31,
        description="Sequences in one file, which one task writes.",
    )

    @property
    def rearranges(self) -> bool:
        """Whether any document may be rearranged."""
        rates = self.fim_rate.values() if isinstance(self.fim_rate, Mapping) else [self.fim_rate]
        return any(rate > 0 for rate in rates)

    @model_validator(mode="after")
    def _check_together(self) -> Self:
        if self.strategy in WINDOWED and self.sequence_length > _LONGEST_WINDOWED:
            raise ValueError(
                f"sequence_length={self.sequence_length} must be at most {_LONGEST_WINDOWED} for "
                f"strategy='{self.strategy}'; use 'greedy' or 'concat' for longer ones"
            )
        if self.rearranges and self.strategy == "concat":
            raise ValueError(
                "fim_rate needs documents that are kept whole, and strategy='concat' cuts them; use e.g. "
                "'best_fit'"
            )
        if self.rearranges and (self.fim_token_ids is None or len(set(self.fim_token_ids)) < 3):
            raise ValueError(
                f"fim_token_ids={self.fim_token_ids} must be three different ids where fim_rate is not 0; "
                "give those of your vocabulary's prefix, suffix and middle tokens"
            )
        return self


class FormatParams(Params):
    """In which formats sequences are written."""

    formats: tuple[PackedFormat, ...] = Field(
        default=("memmap",),
        min_length=1,
        description=(
            "One or several of 'memmap' (flat .bin of tokens with .npy boundaries), 'npy', 'parquet', "
            "'arrow' (Hugging Face datasets), 'jsonl', 'megatron' (.bin and .idx) and 'mds' (MosaicML "
            "streaming). Every format holds all sequences; `tokmill export` adds one later."
        ),
        examples=[["memmap", "parquet"]],
    )

    labels: bool = Field(
        default=False,
        description=(
            "Write what trainers take for the loss, too: label_mask files for OLMo beside 'memmap' and "
            "'npy', and the columns labels and attention_mask in 'parquet', 'arrow' and 'jsonl'."
        ),
    )

    @field_validator("formats")
    @classmethod
    def _sort_formats(cls, given: tuple[PackedFormat, ...]) -> tuple[PackedFormat, ...]:
        """The order in which formats are named, or naming one twice, makes no difference."""
        return tuple(sorted(set(given)))


class _WriteParams(FormatParams):
    """How sequences are written."""

    mask_continued: bool = Field(
        default=False,
        description=(
            "Leave the first token of a piece that continues a document out of the loss mask: nothing that "
            "the model sees has told of it."
        ),
    )
    pad_id: int | None = Field(
        default=None,
        ge=0,
        lt=1 << 32,
        description=(
            "Token id that fills sequences up. Empty: the end-of-document token, or 0 where there is none. "
            "Boundaries, segment ids and the loss mask leave padding out, whatever its id."
        ),
    )


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
