"""Divide a mixture's documents into blocks of bounded size, independent of the batches that are read.

A block ends after `window` documents, or earlier if long documents make up a million pieces. So memory does
not grow with the corpus. The bounds of blocks depend on the mixture alone.
"""

from collections.abc import Iterable, Iterator
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.mixture import Plan

_MOST_PIECES = 1 << 20


def blocks(batches: Iterable[Plan], window: int, sequence_length: int) -> Iterator[Plan]:
    """Divide a plan into blocks.

    Args:
        batches: the plan in order, in parts of any size.
        window: the most documents in a block.
        sequence_length: a document of n tokens counts as ⌈n / sequence_length⌉ pieces.
    """
    held: Plan | None = None
    for batch in batches:
        held = batch if held is None else _joined(held, batch)
        start = 0
        while stop := _block_end(held.num_tokens, start, window, sequence_length):
            yield _rows(held, start, stop)
            start = stop
        held = _rows(held, start, len(held))
    if held is not None and len(held):
        yield held


def _block_end(num_tokens: NDArray[np.uint32], start: int, window: int, sequence_length: int) -> int:
    """The end of the block that begins at `start`; 0 if later documents may belong to it."""
    counts = -(-num_tokens[start : start + window].astype(np.int64) // sequence_length)
    size = int(np.searchsorted(np.cumsum(counts), _MOST_PIECES)) + 1
    whole = size <= len(counts) or len(counts) == window
    return start + min(size, len(counts)) if whole and len(counts) else 0


def _rows(plan: Plan, start: int, stop: int) -> Plan:
    return Plan(**{field.name: getattr(plan, field.name)[start:stop] for field in fields(plan)})


def _joined(first: Plan, second: Plan) -> Plan:
    return Plan(
        **{
            field.name: np.concatenate([getattr(first, field.name), getattr(second, field.name)])
            for field in fields(first)
        }
    )
