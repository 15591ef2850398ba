"""What every manifest of a packing says: the words for how documents became sequences, and the figures.

A document's boundary tokens are stated here once. `begin_of_document_id` stands before each document and
`end_of_document_id` behind it, once a document and not once a piece: a document that goes on in another
sequence neither ends nor begins there. The encoder puts them; packing checks every document that it packs.
"""

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from tokmill.tasks.formats.encoded import TokenDtype

Strategy: TypeAlias = Literal["concat", "greedy", "best_fit", "first_fit_decreasing", "pad"]
LongDocuments: TypeAlias = Literal["split", "truncate", "drop"]
LastSequence: TypeAlias = Literal["pad", "drop"]

WINDOWED: frozenset[Strategy] = frozenset({"best_fit", "first_fit_decreasing"})
"""The strategies that see a window of documents at a time."""


class FimTokens(BaseModel):
    """The three tokens of a document that was rearranged to fill in its middle; see `tasks.fim.tokens`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prefix_id: int
    suffix_id: int
    middle_id: int
    seed: int


class PackedShare(BaseModel):
    """How one source's share of the tokens came through packing; see `tasks.packing.shares`.

    Attributes:
        source: its name.
        mixed_share: its part of the mixture's tokens.
        packed_share: its part of the packed tokens.
        deviation: the most by which its part of a block of sequences differs from its part of the mixture in
            the same place.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    mixed_share: float
    packed_share: float
    deviation: float


class Packing(BaseModel):
    """The part that a plan of sequences and the sequences themselves have in common.

    Attributes:
        tokenizer: content digest of the tokenizer artifact.
        dtype: width of the tokens, little-endian.
        begin_of_document_id: id of the token that begins each document, or None.
        end_of_document_id: id of the token that ends each document, or None.
        sequence_length: tokens a sequence, padding included.
        strategy: how documents became sequences; see `tasks.packing.pieces`.
        window: documents that were packed at a time; None where the strategy has no window.
        long_documents: what became of documents longer than a sequence; None where any is cut.
        last_sequence: what became of the last, partial sequence; None where every one may be partial.
        fim: what a rearranged piece looks like; None where there is none.
        num_sequences: sequences in all.
        num_tokens: tokens in the sequences, padding not counted.
        num_padding_tokens: padding that fills the sequences up.
        sources: names; the pieces' `source` is an index into them.
        shares: how the sources' shares came through packing, as they were before any takedown; in the order
            of `sources`. Empty where an earlier version packed.
        share_block_sequences: sequences in each of the blocks whose shares were measured.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    tokenizer: str
    dtype: TokenDtype
    vocab_size: int = Field(ge=1)
    begin_of_document_id: int | None = None
    end_of_document_id: int | None
    sequence_length: int = Field(ge=1, lt=1 << 31)
    strategy: Strategy
    window: int | None = None
    long_documents: LongDocuments | None
    last_sequence: LastSequence | None
    fim: FimTokens | None = None
    num_sequences: int = Field(ge=0, lt=1 << 32)
    num_tokens: int
    num_padding_tokens: int
    sources: tuple[str, ...]
    shares: tuple[PackedShare, ...] = ()
    share_block_sequences: int | None = None

    @property
    def share_deviation(self) -> float:
        """The largest deviation of any source; 0 where none was measured."""
        return max((share.deviation for share in self.shares), default=0.0)
