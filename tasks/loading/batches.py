"""The fields of a batch, and the making of batches: several at a time, so that small batches cost no more.

For B rows of L tokens (`tasks.formats.packed.reader` defines the terms); a sequence is one row or several:

    sequence       int64 [B]             the sequences' numbers, for `tokmill trace`; always present
    input_ids      [B, L]                uint16 | uint32 as stored, or int32 | int64
    position_ids   int32 [B, L]          from 0 in every piece; 0 on padding
    segment_ids    int32 [B, L]          from 1 in every sequence; 0 on padding
    loss_mask      bool [B, L]           false on padding, and on the first token of every piece
    labels         int64 [B, L]          the tokens where loss_mask is true, else -100; not shifted
    cu_seqlens     int32 [m + 1]         the batch as one row of B × L tokens, for attention over varying
                                         lengths: 0, the end of every piece and of every sequence's padding,
                                         up to B × L; tokens between two bounds attend only to one another
    max_seqlen     int32 []              the longest of these; comes with cu_seqlens
    bounds         B × int32 [pieces+1]  a list: the bounds of each row's pieces, from 0, as
                                         `tasks.formats.packed.masks.block_ranges` takes them
"""

import weakref
from collections import defaultdict, deque
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tokmill.tasks.core.errors import LoadingError
from tokmill.tasks.formats.packed.shard_format import IGNORED_LABEL
from tokmill.tasks.kernels.documents import mark
from tokmill.tasks.loading.rows import PackedRows

Field: TypeAlias = Literal[
    "input_ids", "position_ids", "segment_ids", "loss_mask", "labels", "cu_seqlens", "bounds"
]
Dtype: TypeAlias = Literal["stored", "int32", "int64"]
Batch: TypeAlias = dict[str, Any]

_MOST_BOUND = (1 << 31) - 1
_ZERO = np.zeros(1, dtype=np.int32)
_MARKS = {"segment_ids": np.int32, "position_ids": np.int32, "loss_mask": np.bool_, "labels": np.int64}


@dataclass(frozen=True)
class Wanted:
    """The fields of batches, and the dtype of their tokens."""

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

    def token_bytes(self, stored: np.dtype[Any]) -> int:
        """Bytes that a token takes in all fields together."""
        types = {"input_ids": self.token_type(stored)} | _MARKS
        return sum(np.dtype(types[name]).itemsize for name in {*self.fields} & types.keys()) or 1


def check_bounds(wanted: Wanted, batch_size: int, sequence_length: int) -> None:
    """Reject batches whose `cu_seqlens` are wanted and do not fit in int32."""
    if "cu_seqlens" in wanted.fields and batch_size * sequence_length > _MOST_BOUND:
        raise LoadingError(
            f"loading: batch_size={batch_size} sequences of {sequence_length} tokens end at "
            f"{batch_size * sequence_length}, but cu_seqlens is int32; use a batch_size of at most "
            f"{_MOST_BOUND // sequence_length}"
        )


@dataclass(frozen=True)
class Block:
    """Consecutive batches that are made together."""

    sequences: NDArray[np.int64]  # [n], the sequences of all batches
    sizes: tuple[int, ...]  # sequences of each batch
    parts: int = 1  # number of rows that each sequence is read as


class Memory:
    """Gives arrays the memory of arrays that are gone: new pages cost more than what is written there."""

    def __init__(self, most: int) -> None:
        self._free: dict[int, deque[bytearray]] = defaultdict(lambda: deque(maxlen=most))  # by their bytes

    def array(self, shape: tuple[int, int], dtype: DTypeLike) -> NDArray[Any]:
        """An array of any content."""
        size = shape[0] * shape[1] * np.dtype(dtype).itemsize
        free = self._free[size]
        memory = free.pop() if free else bytearray(size)
        whole = np.frombuffer(memory, dtype)  # the base of all its views, as it does not own its memory
        weakref.finalize(whole, free.append, memory).atexit = False
        return whole.reshape(shape)


def made(block: Block, rows: PackedRows, wanted: Wanted, memory: Memory) -> list[Batch]:
    """Make a block's batches, whose arrays are views of arrays of the whole block."""
    fields, length = set(wanted.fields), rows.sequence_length // block.parts
    columns: Batch = {"sequence": np.repeat(block.sequences, block.parts)}
    shape = len(columns["sequence"]), length
    if {"input_ids", "labels"} & fields:
        tokens = memory.array(shape, wanted.token_type(rows.dtype))
        rows.read_tokens(block.sequences, tokens.reshape(-1, rows.sequence_length))
        columns |= {"input_ids": tokens} if "input_ids" in fields else {}
    ends, firsts = _ZERO, _ZERO.astype(np.int64)  # unused without boundaries
    if fields != {"input_ids"}:
        ends, firsts = _pieces(block, rows, length)
        marks = {n: memory.array(shape if n in fields else (0, 0), dtype) for n, dtype in _MARKS.items()}
        if "labels" in fields:
            marks["labels"][:] = tokens
        flat = {name: values.reshape(-1) for name, values in marks.items()}
        flat["loss_mask"] = flat["loss_mask"].view(np.uint8)
        mark(ends, firsts, length, **flat, ignored=IGNORED_LABEL)
        columns |= {name: values for name, values in marks.items() if name in fields}
    batches = []
    for first, stop in pairwise((np.cumsum([0, *block.sizes]) * block.parts).tolist()):
        batch = {name: values[first:stop] for name, values in columns.items()}
        if "cu_seqlens" in fields:
            batch |= _cu_seqlens(ends, firsts[first : stop + 1], length)
        if "bounds" in fields:
            batch["bounds"] = [
                np.concatenate([_ZERO, ends[begin:end]]) for begin, end in pairwise(firsts[first : stop + 1])
            ]
        batches.append(batch)
    return batches


def _pieces(block: Block, rows: PackedRows, length: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The end of each piece in its row, and the index of each row's first piece; ends of rows cut pieces."""
    ends, firsts = rows.ends(block.sequences)
    if block.parts == 1:
        return ends, firsts
    own, num_pieces = rows.sequence_length, np.diff(firsts)
    bases = np.repeat(np.arange(len(num_pieces)) * own, num_pieces)
    begins = np.zeros(len(ends), dtype=np.int64)
    begins[1:] = ends[:-1]
    begins[firsts[:-1][num_pieces > 0]] = 0
    num_tokens = len(num_pieces) * own
    bounds = np.arange(0, num_tokens, length, dtype=np.int64)
    piece = np.searchsorted(ends + bases, bounds, side="right")
    cuts = bounds[np.append(begins + bases, num_tokens)[piece] < bounds]
    every = np.sort(np.concatenate([ends + bases, cuts]))
    row = (every - 1) // length
    return (every - row * length).astype(np.int32), np.searchsorted(row, np.arange(len(bounds) + 1))


def _cu_seqlens(ends: NDArray[np.int32], firsts: NDArray[np.int64], length: int) -> Batch:
    """The bounds of a batch as one row; `firsts` are those of its rows and the end of the last."""
    num_pieces = np.diff(firsts)
    begins = np.arange(len(num_pieces), dtype=np.int64) * length
    pieces = ends[firsts[0] : firsts[-1]] + np.repeat(begins, num_pieces)
    # The end of every row is a bound; without padding it is already the end of the last piece.
    bounds = np.unique(np.concatenate([begins, pieces, begins + length])).astype(np.int32)
    return {"cu_seqlens": bounds, "max_seqlen": np.diff(bounds).max(initial=0).astype(np.int32)}
