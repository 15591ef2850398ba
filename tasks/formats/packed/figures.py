"""The part that all manifests of a packing share: how documents became sequences, and the counts.

`begin_of_document_id` comes before each document and `end_of_document_id` after it, once per document and not
once per piece: a document that continues in another sequence neither ends nor begins there. The encoder adds
these tokens; packing checks them in every document.
"""

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from tokmill.tasks.formats.encoded import TokenDtype

Strategy: TypeAlias = Literal["concat", "greedy", "best_fit", "first_fit_decreasing", "pad"]
LongDocuments: TypeAlias = Literal["split", "truncate", "drop"]
LastSequence: TypeAlias = Literal["pad", "drop"]

WINDOWED: frozenset[Strategy] = frozenset({"best_fit", "first_fit_decreasing"})
"""The strategies that pack a window of documents at a time."""


class FimTokens(BaseModel):
    """The three tokens of a document that was rearranged to fill in its middle; see `tasks.fim.tokens`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    prefix_id: int
    suffix_id: int
    middle_id: int
    seed: int


class FarthestBlock(BaseModel):
    """The block of sequences in which a source's share is farthest from its request.

    Attributes:
        first_sequence: the block's first sequence.
        requested_share: the share that was asked for there.
        packed_share: the source's share of the block's tokens.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    first_sequence: int
    requested_share: float
    packed_share: float

    @property
    def deviation(self) -> float:
        """The difference of both shares."""
        return abs(self.packed_share - self.requested_share)


class PackedShare(BaseModel):
    """One source's share of the tokens before and after packing; see `tasks.packing.shares`.

    Attributes:
        source: name of the source.
        mixed_share: its share of the mixture's tokens.
        packed_share: its share of the packed tokens.
        deviation: largest difference between its share of a block of sequences and its share of the mixture
            in the same place.
        farthest: where it is farthest from its request; None if the mixture has none, as after a takedown.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    mixed_share: float
    packed_share: float
    deviation: float
    farthest: FarthestBlock | None = None


class Packing(BaseModel):
    """The fields that a packing plan and a packed artifact share.

    Attributes:
        tokenizer: content digest of the tokenizer artifact.
        dtype: width of the tokens, little-endian.
        begin_of_document_id: id of the token that begins each document, or None.
        end_of_document_id: id of the token that ends each document, or None.
        sequence_length: tokens per sequence, including padding.
        strategy: how documents became sequences; see `tasks.packing.strategies`.
        window: documents packed at a time; None if the strategy has no window.
        long_documents: how documents longer than a sequence were treated; None if any document may be cut.
        last_sequence: how the last, partial sequence was treated; None if any sequence may be partial.
        fim: the tokens of rearranged pieces; None if there are none.
        shuffle_window: sequences that were shuffled together; None if the order is that of packing.
        shuffle_seed: seed of the shuffle, or None.
        num_sequences: sequences in all.
        num_tokens: tokens in the sequences, without padding.
        num_padding_tokens: padding tokens.
        sources: names; the pieces' `source` is an index into them.
        shares: the sources' shares before and after packing, without takedowns; in the order of `sources`.
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
    shuffle_window: int | None = None
    shuffle_seed: int | None = None
    num_sequences: int = Field(ge=0, lt=1 << 32)
    num_tokens: int
    num_padding_tokens: int
    sources: tuple[str, ...]
    shares: tuple[PackedShare, ...] = ()
    share_block_sequences: int | None = None

    @property
    def share_deviation(self) -> float:
        """The largest deviation of any source; 0 if none was measured."""
        return max((share.deviation for share in self.shares), default=0.0)

    @property
    def request_deviation(self) -> float | None:
        """The largest difference of any source's share of a block from its request; None if unknown."""
        found = [share.farthest.deviation for share in self.shares if share.farthest is not None]
        return round(max(found), 6) if found else None
