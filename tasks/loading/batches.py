"""The fields of a batch, and the making of batches: several at a time, so that small batches cost no more.

For B sequences of L tokens (`tasks.formats.packed.reader` defines the terms); if sequences are read
as several rows (`tasks.loading.lengths`), B counts rows and L is theirs:

    sequence       int64 [B]             the sequences' numbers, for `tokmill trace`; always present
    input_ids      [B, L]                uint16 | uint32 as stored, or int32 | int64
    position_ids   int32 [B, L]          from 0 in every piece; 0 on padding
    segment_ids    int32 [B, L]          from 1 in every sequence; 0 on padding
    loss_mask      bool [B, L]           whether the prediction of each token counts: false on padding, and
                                         on the first token of every piece
    labels         int64 [B, L]          the tokens where loss_mask is true, else -100; not shifted
    cu_seqlens     int32 [m + 1]         the batch as one row of B × L tokens, for attention over varying
                                         lengths: 0, the end of every piece and of every sequence's padding,
                                         up to B × L; tokens between two bounds attend only to one another
    max_seqlen     int32 []              the longest of these; comes with cu_seqlens
    bounds         B × int32 [pieces+1]  a list: the bounds of each sequence's pieces, from 0, as
                                         `tasks.formats.packed.masks.block_ranges` takes them
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import LoadingError
from tokmill.tasks.formats.packed.shard_format import IGNORED_LABEL
from tokmill.tasks.kernels.rows import mark
from tokmill.tasks.loading.lengths import cut_pieces
from tokmill.tasks.loading.rows import PackedRows

Field: TypeAlias = Literal[
    "input_ids", "position_ids", "segment_ids", "loss_mask", "labels", "cu_seqlens", "bounds"
]
Dtype: TypeAlias = Literal["stored", "int32", "int64"]
Batch: TypeAlias = dict[str, Any]

_MOST_BOUND = (1 << 31) - 1
_ZERO = np.zeros(1, dtype=np.int32)
_MARKS = ("segment_ids", "position_ids", "loss_mask")


@dataclass(frozen=True)
class Wanted:
    """The fields of batches, and the dtype of their tokens.

    Raises:
        LoadingError: an unknown field or dtype, or a dtype that cannot hold every id.
    """

    fields: tuple[Field, ...]
    dtype: Dtype

    def __post_init__(self) -> None:
        known = get_args(Field)
        unknown = [name for name in self.fields if name not in known]
        if unknown or not self.fields:
            found = f"has {unknown[0]!r}" if unknown else "is empty"
            raise LoadingError(f"loading: fields {found}; choose from {', '.join(known)}")
        if self.dtype not in get_args(Dtype):
            raise LoadingError(
                f"loading: dtype={self.dtype!r} must be one of {', '.join(get_args(Dtype))}; 'stored' is the "
                "packed artifact's own"
            )

    def token_type(self, stored: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype of `input_ids`."""
        return stored if self.dtype == "stored" else np.dtype(self.dtype)


def check_bounds(wanted: Wanted, batch_size: int, sequence_length: int) -> None:
    """Reject batches whose `cu_seqlens` do not fit in int32.

    Raises:
        LoadingError: `cu_seqlens` are wanted, and a batch has 2^31 tokens or more.
    """
    if "cu_seqlens" in wanted.fields and batch_size * sequence_length > _MOST_BOUND:
        raise LoadingError(
            f"loading: batch_size={batch_size} sequences of {sequence_length} tokens end at "
            f"{batch_size * sequence_length}, but cu_seqlens is int32; use a batch_size of at most "
            f"{_MOST_BOUND // sequence_length}"
        )


@dataclass(frozen=True)
class Block:
    """Consecutive batches that are made together.

    Attributes:
        sequences: int64 [n], the sequences of all batches.
        sizes: sequences of each batch.
        parts: number of rows that each sequence is read as.
    """

    sequences: NDArray[np.int64]
    sizes: tuple[int, ...]
    parts: int = 1


def made(block: Block, rows: PackedRows, wanted: Wanted) -> list[Batch]:
    """Make a block's batches, whose arrays are views of new arrays of the whole block.

    Raises:
        StoreError: a file is missing or has another size than the manifest says.
    """
    length = rows.sequence_length // block.parts
    columns: Batch = {"sequence": np.repeat(block.sequences, block.parts)}
    if {"input_ids", "labels"} & set(wanted.fields):
        tokens = rows.tokens(block.sequences, wanted.token_type(rows.dtype)).reshape(-1, length)
        columns |= {"input_ids": tokens} if "input_ids" in wanted.fields else {}
    bounded = set(wanted.fields) - {"input_ids"}
    if not bounded:
        return [_part(columns, first, stop) for first, stop in _ranges(block)]
    ends, firsts = _pieces(block, rows, length)
    marks = _marks(ends, firsts, length, bounded | ({"loss_mask"} if "labels" in bounded else set()))
    columns |= {name: values for name, values in marks.items() if name in bounded}
    if "labels" in bounded:
        columns["labels"] = np.where(marks["loss_mask"], tokens.astype(np.int64), IGNORED_LABEL)
    batches = []
    for first, stop in _ranges(block):
        batch = _part(columns, first, stop)
        if "cu_seqlens" in bounded:
            batch |= _cu_seqlens(ends, firsts[first : stop + 1], length)
        if "bounds" in bounded:
            batch["bounds"] = [
                np.concatenate([_ZERO, ends[begin:end]]) for begin, end in pairwise(firsts[first : stop + 1])
            ]
        batches.append(batch)
    return batches


def _pieces(block: Block, rows: PackedRows, length: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The end of each piece in its row, and the index of each row's first piece."""
    ends, firsts = rows.ends(block.sequences)
    if block.parts == 1:
        return ends, firsts
    bases = np.repeat(np.arange(len(block.sequences)) * rows.sequence_length, np.diff(firsts))
    begins = _begins(ends, firsts, rows.sequence_length)
    num_tokens = len(block.sequences) * rows.sequence_length
    return cut_pieces(ends + bases, begins, num_tokens, length)


def _ranges(block: Block) -> Iterator[tuple[int, int]]:
    """Yield the range of each batch's rows in the block."""
    return pairwise((np.cumsum([0, *block.sizes]) * block.parts).tolist())


def _part(columns: Batch, first: int, stop: int) -> Batch:
    return {name: values[first:stop] for name, values in columns.items()}


def _marks(ends: NDArray[np.int32], firsts: NDArray[np.int64], length: int, fields: Collection[str]) -> Batch:
    """Those of `segment_ids`, `position_ids` and `loss_mask` that are among the fields."""
    size = (len(firsts) - 1) * length
    found: Batch = {
        name: np.empty(size if name in fields else 0, dtype=np.uint8 if name == "loss_mask" else np.int32)
        for name in _MARKS
    }
    mark(ends, firsts, length, **found)
    found["loss_mask"] = found["loss_mask"].view(np.bool_)
    return {name: found[name].reshape(-1, length) for name in _MARKS if name in fields}


def _begins(ends: NDArray[np.int32], firsts: NDArray[np.int64], length: int) -> NDArray[np.int64]:
    """The start of each piece, counted through all sequences: int64 [p]."""
    num_pieces = np.diff(firsts)
    begins = np.zeros(len(ends), dtype=np.int64)
    begins[1:] = ends[:-1]
    begins[firsts[:-1][num_pieces > 0]] = 0
    return begins + np.repeat(np.arange(len(num_pieces)) * length, num_pieces)


def _cu_seqlens(ends: NDArray[np.int32], firsts: NDArray[np.int64], length: int) -> Batch:
    """The bounds of a batch as one row; `firsts` are those of its sequences and the end of the last."""
    num_pieces = np.diff(firsts)
    begins = np.arange(len(num_pieces), dtype=np.int64) * length
    pieces = ends[firsts[0] : firsts[-1]] + np.repeat(begins, num_pieces)
    # The end of every sequence is a bound; without padding it is already the end of the last piece.
    bounds = np.unique(np.concatenate([begins, pieces, begins + length])).astype(np.int32)
    return {"cu_seqlens": bounds, "max_seqlen": np.diff(bounds).max(initial=0).astype(np.int32)}
