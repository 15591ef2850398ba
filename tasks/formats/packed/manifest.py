"""The manifests of packed sequences: how documents became sequences, the shards, and takedowns.

`begin_of_document_id` comes before each document and `end_of_document_id` after it, once per document and not
once per piece: a document that continues in another sequence neither ends nor begins there. The encoder adds
these tokens; packing checks them. `takedown.json` and `excluded.json` name documents, and hold no text.
"""

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from tokmill.tasks.core.stage import Account
from tokmill.tasks.formats.encoded import TokenDtype
from tokmill.tasks.formats.files.manifests import Entry, Manifest

Strategy: TypeAlias = Literal["concat", "greedy", "best_fit", "first_fit_decreasing", "pad"]
LongDocuments: TypeAlias = Literal["split", "truncate", "drop"]
LastSequence: TypeAlias = Literal["pad", "drop"]
PackedFormat: TypeAlias = Literal["arrow", "jsonl", "mds", "megatron", "memmap", "npy", "parquet"]
"""The names of the formats; see `tasks.formats.packed.shard_format` for what a format is."""

WINDOWED: frozenset[Strategy] = frozenset({"best_fit", "first_fit_decreasing"})
"""The strategies that pack a window of documents at a time."""


class FimTokens(Entry):
    """The three tokens of a document that was rearranged to fill in its middle (`tasks.fim`)."""

    prefix_id: int
    suffix_id: int
    middle_id: int
    seed: int


class FarthestBlock(Entry):
    """The block of sequences, by its first one, in which a source's share is farthest from its request."""

    first_sequence: int
    requested_share: float
    packed_share: float

    @property
    def deviation(self) -> float:
        """The difference of both shares."""
        return abs(self.packed_share - self.requested_share)


class PackedShare(Entry):
    """One source's share of the tokens before and after packing; see `tasks.packing.accounts`."""

    source: str
    mixed_share: float  # of the mixture's tokens
    packed_share: float  # of the packed tokens
    deviation: float  # the most by which its shares of a block and of the mixture in the same place differ
    farthest: FarthestBlock | None = None  # None if the mixture has no request, as after a takedown


class Packing(Manifest):
    """The fields that a packing plan and a packed artifact share."""

    tokenizer: str  # content digest of the tokenizer artifact
    dtype: TokenDtype  # width of the tokens, little-endian
    vocab_size: int = Field(ge=1)
    begin_of_document_id: int | None = None  # id of the token before each document, or None
    end_of_document_id: int | None  # id of the token after each document, or None
    sequence_length: int = Field(ge=1, lt=1 << 31)  # tokens per sequence, including padding
    strategy: Strategy  # see `tasks.packing.strategies`
    window: int | None = None  # documents packed at a time; None if the strategy has no window
    long_documents: LongDocuments | None  # of more than a sequence; None if any document may be cut
    last_sequence: LastSequence | None  # None if any sequence may be partial
    fim: FimTokens | None = None  # the tokens of rearranged pieces; None if there are none
    shuffle_window: int | None = None  # sequences shuffled together; None if the order is that of packing
    shuffle_seed: int | None = None
    num_sequences: int = Field(ge=0, lt=1 << 32)
    num_tokens: int  # without padding
    num_padding_tokens: int
    sources: tuple[str, ...]  # names; the pieces' `source` is an index into them
    shares: tuple[PackedShare, ...] = ()  # without takedowns, in the order of `sources`
    share_block_sequences: int | None = None  # sequences in each block whose shares were measured

    @property
    def share_deviation(self) -> float:
        """The largest deviation of any source; 0 if none was measured."""
        return max((share.deviation for share in self.shares), default=0.0)

    @property
    def request_deviation(self) -> float | None:
        """The largest difference of any source's share of a block from its request; None if unknown."""
        deviations = [share.farthest.deviation for share in self.shares if share.farthest is not None]
        return round(max(deviations), 6) if deviations else None


class PackedShardEntry(Entry):
    """One shard: sequences [first_sequence, first_sequence + num_sequences)."""

    index: int = Field(ge=0, lt=1 << 32)
    first_sequence: int = Field(ge=0, lt=1 << 32)
    num_sequences: int = Field(ge=1)
    num_tokens: int = Field(ge=0)

    @property
    def sequences(self) -> range:
        """The numbers of its sequences."""
        return range(self.first_sequence, self.first_sequence + self.num_sequences)


class PlannedShard(PackedShardEntry):
    """One shard to write, and its number of rows in `pieces.parquet`."""

    num_pieces: int

    @property
    def entry(self) -> PackedShardEntry:
        """The entry of the shard in a packed artifact's manifest."""
        return PackedShardEntry(**self.model_dump(exclude={"num_pieces"}))


class ShardedPacking(Packing):
    """A packing with a list of its shards, in order; their sums are checked when a manifest is read."""

    shards: tuple[PackedShardEntry, ...]

    @property
    def firsts(self) -> NDArray[np.int64]:
        """Number of the sequences before each shard here; a shard alone begins with its first one."""
        return np.cumsum([0, *(entry.num_sequences for entry in self.shards)], dtype=np.int64)[:-1]

    @model_validator(mode="after")
    def _check_sums(self) -> Self:
        """Reject counts that do not add up: readers use them as indices."""
        next_sequence = self.shards[0].first_sequence if self.shards else 0
        for entry in self.shards:
            if entry.first_sequence != next_sequence:
                raise ValueError(f"shard {entry.index} begins at {entry.first_sequence}, not {next_sequence}")
            next_sequence += entry.num_sequences
        sums = [sum(getattr(one, name) for one in self.shards) for name in ("num_sequences", "num_tokens")]
        if sums != [self.num_sequences, self.num_tokens]:
            raise ValueError(f"the shards have {sums} sequences and tokens, not those of the whole")
        if self.num_tokens + self.num_padding_tokens != self.num_sequences * self.sequence_length:
            raise ValueError("tokens and padding do not fill the sequences")
        if len({entry.index for entry in self.shards}) < len(self.shards):
            raise ValueError("two shards have the same index")
        return self


class PackingManifest(ShardedPacking):
    """The content of `packing.json`, of a plan."""

    FILE: ClassVar[str] = "packing.json"
    TITLE: ClassVar[str] = "packing plan"

    num_documents: int  # input documents; repeated ones count each time
    num_split_documents: int  # documents that are whole, over several sequences
    num_cut_documents: int  # documents in several pieces that would have fitted into one sequence
    num_lost_tokens: int  # tokens of documents that are in no sequence
    shards: tuple[PlannedShard, ...]
    accounts: tuple[Account, ...]  # accounts per source and unit; see `tasks.packing.accounts`


class PackedManifest(ShardedPacking):
    """The content of `packed.json`; a packed shard has one too, with itself as the only shard."""

    FILE: ClassVar[str] = "packed.json"
    TITLE: ClassVar[str] = "packed manifest"

    formats: tuple[PackedFormat, ...] = Field(min_length=1)  # of every shard; sorted
    pad_id: int = Field(ge=0)  # id of the padding token
    labels: bool = False  # whether labels and label masks are written, too
    origin: str | None = None  # content digest of the packed artifact that this was exported from, or None
    predecessors: tuple[str, ...] = ()  # digests of artifacts whose sequences have the origin's numbers

    @property
    def token_dtype(self) -> np.dtype[Any]:
        """The dtype of tokens on disk."""
        return np.dtype(self.dtype).newbyteorder("<")

    def shard(self, index: int) -> PackedShardEntry:
        """The entry of the shard `index`."""
        return next(entry for entry in self.shards if entry.index == index)


class TakenDocument(Entry):
    """A document whose takedown was requested."""

    name: str  # by which it was requested
    source: str
    file: str
    row: int  # in the file, from 0
    shard: int  # of the corpus and the encoding
    ordinal: int  # in the shard


def in_order(documents: Iterable[Mapping[str, Any]]) -> tuple[TakenDocument, ...]:
    """Make documents from their fields, sorted by source, shard, ordinal and name."""
    made = [TakenDocument(**document) for document in documents]
    return tuple(sorted(made, key=lambda one: (one.source, one.shard, one.ordinal, one.name)))


class ExcludedDocuments(Manifest):
    """The content of `excluded.json`: all documents excluded from a mixture, by source, shard, ordinal."""

    FILE: ClassVar[str] = "excluded.json"
    TITLE: ClassVar[str] = "list of excluded documents"

    documents: tuple[TakenDocument, ...]


class TakedownManifest(Manifest):
    """The content of `takedown.json`."""

    FILE: ClassVar[str] = "takedown.json"
    TITLE: ClassVar[str] = "takedown"

    previous: str  # content digest of the packed artifact that this one replaces
    # Digests of all packed artifacts whose sequences have the same numbers, so that a loader's place in one
    # of them is valid here; the oldest first.
    predecessors: tuple[str, ...]
    documents: tuple[TakenDocument, ...]  # all that were requested, by source, shard and ordinal
    changed_sequences: tuple[int, ...]  # numbers, in order
