"""Attention masks of packed sequences, in the forms that attention kernels take.

The rule: a token attends to itself and the earlier tokens of its own piece. Padding attends to itself only,
so that no row of a softmax is empty; `loss_mask` keeps it out of the loss. The forms are equivalent:

    document_mask    a table, bool [L, L]
    mask_function    a function of (batch, head, query, key), for FlexAttention's `create_block_mask`
    block_ranges     blocks of keys that each block of queries sees, in part or in full, for FlexAttention's
                     `BlockMask.from_kv_blocks`; computed from the boundaries, without the L² pairs
    varlen           bounds of a whole batch as one row, for `flash_attn_varlen_func` with `causal=True`
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import PackingError

_MOST_BOUND = (1 << 31) - 1


def document_mask(segment_ids: NDArray[np.int32]) -> NDArray[np.bool_]:
    """The rule as a table: bool [L, L], row = query, column = key; `segment_ids` int32 [L]."""
    same = (segment_ids[:, None] == segment_ids[None, :]) & (segment_ids > 0)[:, None]
    mask: NDArray[np.bool_] = np.tril(same) | np.eye(len(segment_ids), dtype=bool)
    return mask


def mask_function(segment_ids: Any) -> Callable[[Any, Any, Any, Any], Any]:
    """The rule as a function of (b, h, q, k), each a number, array or tensor, as FlexAttention's `mask_mod`.

    Args:
        segment_ids: int32 [B, L], an array or a tensor; 0 on padding.
    """

    def sees(b: Any, h: Any, q: Any, k: Any) -> Any:
        mine = segment_ids[b, q]
        return (q == k) | ((q > k) & (mine == segment_ids[b, k]) & (mine > 0))

    return sees


@dataclass(frozen=True, eq=False)
class BlockRanges:
    """The blocks of keys that each of n blocks of queries sees; others are not seen."""

    kv_num_blocks: NDArray[np.int32]  # int32 [B, 1, n], number of blocks that are seen in part
    kv_indices: NDArray[np.int32]  # int32 [B, 1, n, n], which; `kv_num_blocks` of a row count, the rest is 0
    full_kv_num_blocks: NDArray[np.int32]  # int32 [B, 1, n], number of blocks in which every pair is seen
    full_kv_indices: NDArray[np.int32]  # int32 [B, 1, n, n], which
    block_size: int  # tokens per block


def block_ranges(
    cu_seqlens: Sequence[NDArray[np.int32]], sequence_length: int, block_size: int = 128
) -> BlockRanges:
    """The rule by blocks, computed from the boundaries.

    Args:
        cu_seqlens: for each of B sequences, int32 [pieces + 1]; tokens after the last bound are padding.
        sequence_length: L, a multiple of `block_size`.
        block_size: tokens per block, ≥ 1.

    Raises:
        ValueError: `sequence_length` is not a multiple of `block_size`.
    """
    if sequence_length % block_size:
        raise ValueError(
            f"block_size={block_size} must divide sequence_length={sequence_length}; use a divisor of it"
        )
    each = [_ranges_of(np.asarray(bounds), sequence_length, block_size) for bounds in cu_seqlens]
    partial, full = (np.stack([found[k] for found in each])[:, None] for k in range(2))
    return BlockRanges(*_indices(partial), *_indices(full), block_size)


def _ranges_of(
    bounds: NDArray[np.int32], sequence_length: int, block_size: int
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Whether each block of queries sees each block of keys in part, and in full: bool [n, n] each."""
    blocks = np.arange(sequence_length // block_size)
    first, last = blocks * block_size, blocks * block_size + block_size - 1
    # The earliest key that a query sees is the start of its piece, or itself on padding.
    begin_of_first, begin_of_last = (
        np.where(query < bounds[-1], bounds[np.searchsorted(bounds, query, side="right") - 1], query)
        for query in (first, last)
    )
    before, itself = blocks[None, :] < blocks[:, None], np.eye(len(blocks), dtype=bool)
    some = (blocks[None, :] >= (begin_of_first // block_size)[:, None]) & (before | itself)
    # An earlier block is seen in full if the piece of the last query began before it: then all queries of the
    # block belong to that piece. The last query of padding sees nothing before itself.
    full = before & (first[None, :] >= begin_of_last[:, None])
    if block_size == 1:
        full |= itself
    return some & ~full, full


def _indices(chosen: NDArray[np.bool_]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """For each row the number of chosen columns, and these in order, then zeros."""
    counts = chosen.sum(axis=-1, dtype=np.int32)
    order = np.argsort(~chosen, axis=-1, kind="stable")
    counted = np.arange(chosen.shape[-1]) < counts[..., None]
    return counts, np.where(counted, order, 0).astype(np.int32)


@dataclass(frozen=True, eq=False)
class Varlen:
    """A batch as one row, for variable-length attention; runs of padding attend only to themselves."""

    cu_seqlens: NDArray[np.int32]  # int32 [s + 1], from 0 to B × L
    max_seqlen: int  # the longest run


def varlen(cu_seqlens: Sequence[NDArray[np.int32]], sequence_length: int) -> Varlen:
    """Bounds of a whole batch, flattened to one row of B × L tokens.

    Args:
        cu_seqlens: for each of B sequences, int32 [pieces + 1].
        sequence_length: L.

    Within a run of padding attention is causal, which differs from the rule only in rows outside of the loss.

    Raises:
        PackingError: an int32 cannot hold the length of the row.
    """
    if len(cu_seqlens) * sequence_length > _MOST_BOUND:
        raise PackingError(
            f"varlen: {len(cu_seqlens)} sequences of {sequence_length} tokens end at "
            f"{len(cu_seqlens) * sequence_length}, but cu_seqlens is int32; use at most "
            f"{_MOST_BOUND // sequence_length} sequences"
        )
    bounds = [np.zeros(1, dtype=np.int64)]
    for row, mine in enumerate(map(np.asarray, cu_seqlens)):
        ends = mine[1:] if mine[-1] == sequence_length else np.append(mine[1:], sequence_length)
        bounds.append(ends.astype(np.int64) + row * sequence_length)
    flat = np.concatenate(bounds).astype(np.int32)
    return Varlen(flat, int(np.diff(flat).max(initial=0)))
