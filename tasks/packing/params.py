"""Parameters of packing: those of the plan, and those of writing a shard."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator

from tokmill.tasks.core.stage import Params
from tokmill.tasks.formats.packed.manifest import (
    WINDOWED,
    LastSequence,
    LongDocuments,
    PackedFormat,
    Strategy,
)

_LONGEST_WINDOWED = 1 << 24
MOST_WINDOW = 1 << 20
Rate = Annotated[float, Field(ge=0, le=1)]
TokenId = Annotated[int, Field(ge=0)]


class PackPlanParams(Params):
    """How documents become sequences."""

    sequence_length: int = Field(
        default=2048,
        ge=8,
        lt=1 << 31,
        description=(
            "Tokens per sequence, including padding: the model's context length. At least 8; any number will "
            "do. A packing can be read at every multiple of it."
        ),
        examples=[2048],
    )
    strategy: Strategy = Field(
        default="concat",
        description=(
            "'concat' joins documents end to end and cuts wherever a sequence ends: no padding, nothing "
            "lost. The others keep documents whole. 'best_fit' and 'first_fit_decreasing' fill sequences "
            "from a window of documents, longest first, with very little padding; 'greedy' takes "
            "documents in order, and pads when the next does not fit; 'pad' gives each its own sequence."
        ),
    )
    window: int = Field(
        default=20_000,
        ge=1,
        le=1 << 22,
        description=(
            "For 'best_fit' and 'first_fit_decreasing': number of documents to pack at a time. A document "
            "stays within its window of the mixture's order, and the sources' shares hold "
            "within the window, too; larger windows pad less."
        ),
    )
    long_documents: LongDocuments = Field(
        default="split",
        description=(
            "With whole documents, how to treat those longer than a sequence: 'split' into "
            "full sequences and a rest that is packed with others, 'truncate' to one sequence, or 'drop'. "
            "Lost tokens are in the accounts."
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
            "Fill in the middle: the fraction of documents, from 0 to 1, whose tokens are rearranged into "
            "prefix, suffix, middle; one number, or a table by source (0 for sources that it does not name). "
            "Not with 'concat', which would cut the examples."
        ),
    )
    fim_spm_rate: Rate = Field(
        default=0.5,
        description="The fraction of the rearranged documents with the suffix first (SPM instead of PSM).",
    )
    fim_token_ids: tuple[TokenId, TokenId, TokenId] | None = Field(
        default=None,
        description="Ids of the tokens before prefix, suffix and middle, in this order.",
        examples=[[100258, 100260, 100259]],
    )
    fim_seed: int = Field(
        default=0,
        ge=0,
        lt=1 << 61,
        description="Seed that decides which documents are rearranged, and where they are cut.",
    )
    shuffle_window: int = Field(
        default=1024,
        ge=0,
        le=MOST_WINDOW,
        description=(
            "Number of sequences to shuffle together, so that the pieces of a long document do not follow "
            "each other; 0 keeps the order of packing. The sources keep their shares within a window, and "
            "windows keep their order. With a curriculum a window has at most 1/32 of the sequences."
        ),
    )
    shuffle_seed: int = Field(
        default=0, ge=0, lt=1 << 61, description="Seed of the order of sequences within a window."
    )
    sequences_per_shard: int = Field(
        default=8192,
        ge=1,
        lt=1 << 31,
        description="Sequences per file; one task writes one file.",
    )

    @property
    def rearranges(self) -> bool:
        """Whether any document may be rearranged."""
        rates = self.fim_rate.values() if isinstance(self.fim_rate, Mapping) else [self.fim_rate]
        return any(rate > 0 for rate in rates)

    @classmethod
    def without_effect(cls, given: Mapping[str, Any]) -> dict[str, str]:
        """Return settings of other strategies, and of fill in the middle if no document is rearranged."""
        strategy = given.get("strategy", cls.model_fields["strategy"].default)
        unread = {"last_sequence"} if strategy != "concat" else {"long_documents"}
        unread |= {"window"} if strategy not in WINDOWED else set()
        of_fim = () if given.get("fim_rate") else ("fim_spm_rate", "fim_token_ids", "fim_seed")
        unshuffled = ("shuffle_seed",) if given.get("shuffle_window") == 0 else ()
        return (
            dict.fromkeys(sorted(unread), f"the strategy is '{strategy}'")
            | dict.fromkeys(of_fim, "fim_rate is 0")
            | dict.fromkeys(unshuffled, "shuffle_window is 0")
        )

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
                "use the ids of your vocabulary's prefix, suffix and middle tokens"
            )
        return self


class FormatParams(Params):
    """The formats to write sequences in."""

    formats: tuple[PackedFormat, ...] = Field(
        default=("memmap",),
        min_length=1,
        description=(
            "One or several of 'memmap' (flat .bin of tokens with .npy boundaries), 'npy', 'parquet', "
            "'arrow' (Hugging Face datasets), 'jsonl', 'megatron' (.bin and .idx) and 'mds' (MosaicML "
            "streaming). Every format holds all sequences; `tokmill data export` adds one later."
        ),
        examples=[["memmap", "parquet"]],
    )

    labels: bool = Field(
        default=False,
        description=(
            "Also write what trainers need for the loss: label_mask files for OLMo next to 'memmap' and "
            "'npy', and the columns labels and attention_mask in 'parquet', 'arrow' and 'jsonl'."
        ),
    )

    @field_validator("formats")
    @classmethod
    def _sort_formats(cls, given: tuple[PackedFormat, ...]) -> tuple[PackedFormat, ...]:
        """Sort the formats and remove duplicates, so that neither affects the fingerprint."""
        return tuple(sorted(set(given)))


class _WriteParams(FormatParams):
    """How to write sequences."""

    pad_id: int | None = Field(
        default=None,
        ge=0,
        lt=1 << 32,
        description=(
            "Id of the padding token. Empty: the end-of-document token, or 0 if there is none. "
            "Boundaries, segment ids and the loss mask exclude padding, whatever its id."
        ),
    )


class PackShardParams(_WriteParams):
    """The shard of the plan to write, and how."""

    index: int = Field(ge=0, description="Number of the shard in the plan, from 0.")


class PackParams(PackPlanParams, _WriteParams):
    """How documents become sequences of one length, and the formats to write them in."""

    def plan_params(self) -> PackPlanParams:
        """Those of the plan."""
        return PackPlanParams(**_part(self, PackPlanParams))

    def shard_params(self, index: int) -> PackShardParams:
        """Those of writing a shard."""
        return PackShardParams(index=index, **_part(self, _WriteParams))

    def plain(self) -> "PackParams":
        """The same without rearranging, shuffling or losing documents, as text is packed for validation."""
        without = {name for name in type(self).model_fields if name.startswith(("fim_", "shuffle_"))}
        kept = self.model_dump(exclude=without | {"last_sequence", "long_documents"})
        return PackParams(**kept, last_sequence="pad", long_documents="split", shuffle_window=0)


def _part(params: Params, model: type[Params]) -> dict[str, Any]:
    return {name: getattr(params, name) for name in model.model_fields}
