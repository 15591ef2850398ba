"""Who may attend to whom, in every form: tables by hand, and each form against the table."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.tasks.core.errors import PackingError
from tokmill.tasks.formats.packed.masks import block_ranges, mask_function, varlen
from tokmill.tasks.formats.packed.reader import Sequence


def table_of(size, bounds):
    return Sequence(np.zeros(size, dtype=np.uint16), bounds).document_mask()


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(0, 4))
def test_the_document_mask_is_causal_within_pieces(lengths, padding):
    ends = np.cumsum([0, *lengths], dtype=np.int32)
    size = int(ends[-1]) + padding
    mask = table_of(size, ends)
    for query, key in np.ndindex(size, size):
        together = np.searchsorted(ends, query, "right") == np.searchsorted(ends, key, "right")
        assert mask[query, key] == (query == key or (query >= key and together and query < ends[-1]))


@st.composite
def batches(draw):
    """A length, and the boundaries of some sequences of that length."""
    size = draw(st.integers(1, 24))
    rows = []
    for _ in range(draw(st.integers(1, 3))):
        inner = draw(st.lists(st.integers(1, size), min_size=1, max_size=6, unique=True))
        rows.append(np.array([0, *sorted(inner)], dtype=np.int32))
    return size, rows


@given(batches())
def test_the_function_equals_the_table(batch):
    size, rows = batch
    segments = np.stack([Sequence(np.zeros(size, dtype=np.uint16), row).segment_ids for row in rows])
    sees = mask_function(segments)
    query, key = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    for number, row in enumerate(rows):
        assert (sees(number, 0, query, key) == table_of(size, row)).all()


@given(batches(), st.integers(1, 6))
def test_block_ranges_equal_the_table(batch, block_size):
    size, rows = batch
    length = -(-size // block_size) * block_size
    ranges = block_ranges(rows, length, block_size)
    num_blocks = length // block_size
    for number, row in enumerate(rows):
        blocks = table_of(length, row).reshape(num_blocks, block_size, num_blocks, block_size)
        for query in range(num_blocks):
            seen = blocks[query].transpose(1, 0, 2).reshape(num_blocks, -1)
            full = ranges.full_kv_indices[number, 0, query, : ranges.full_kv_num_blocks[number, 0, query]]
            part = ranges.kv_indices[number, 0, query, : ranges.kv_num_blocks[number, 0, query]]
            assert full.tolist() == np.flatnonzero(seen.all(axis=1)).tolist()
            assert part.tolist() == np.flatnonzero(seen.any(axis=1) & ~seen.all(axis=1)).tolist()


@given(batches())
def test_a_batch_laid_end_to_end_attends_as_the_table_says(batch):
    size, rows = batch
    bounds = varlen(rows, size).cu_seqlens
    for number, row in enumerate(rows):
        mine = bounds[(bounds >= number * size) & (bounds <= (number + 1) * size)] - number * size
        causal = table_of(size, mine)
        tokens = int(row[-1])
        assert (causal[:tokens] == table_of(size, row)[:tokens]).all()


def test_sizes_that_do_not_fit_are_refused():
    longest = (1 << 31) - 1
    assert varlen([np.array([0, longest])], longest).cu_seqlens.tolist() == [0, longest]
    with pytest.raises(PackingError, match="end at 2147483648, but cu_seqlens is int32; use at most 1"):
        varlen([np.array([0, 1 << 30])] * 2, 1 << 30)
    with pytest.raises(ValueError, match="block_size=3 must divide sequence_length=8"):
        block_ranges([np.array([0, 4])], 8, 3)
