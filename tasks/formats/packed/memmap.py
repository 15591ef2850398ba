"""The formats "memmap" and "npy": tokens row by row, with boundaries in separate files.

`.bin` has only tokens, without a header, as nanoGPT's and OLMo's readers expect. `.npy` is the same with
numpy's header, of shape (num_sequences, sequence_length).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.arrays import NpyAppender, open_array, open_vector
from tokmill.tasks.formats.files.indices import check_ascending, check_bounds, check_within, untrue
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.formats.packed.shard_format import (
    Append,
    PackedShard,
    SequenceBlock,
    ShardShape,
    bounds_of,
)


@contextmanager
def write_memmap(paths: Sequence[Path], shape: ShardShape) -> Iterator[Append]:
    """Write tokens without a header."""
    with paths[0].open("wb") as out:
        yield lambda block: block.rows.tofile(out)


@contextmanager
def write_npy(paths: Sequence[Path], shape: ShardShape) -> Iterator[Append]:
    """Write tokens after numpy's header."""
    size = (shape.num_sequences, shape.sequence_length)
    header = {"descr": npy_format.dtype_to_descr(shape.dtype), "fortran_order": False, "shape": size}
    with paths[0].open("wb") as out:
        npy_format.write_array_header_1_0(out, header)
        out.flush()
        yield lambda block: block.rows.tofile(out)


@contextmanager
def write_boundaries(paths: Sequence[Path], shape: ShardShape) -> Iterator[Append]:
    """Write the bounds of pieces, their offsets by sequence, and the starts of pieces in their documents."""
    with (
        NpyAppender(paths[0], np.int32) as flat,
        NpyAppender(paths[1], np.int64) as offsets,
        NpyAppender(paths[2], np.int64) as starts,
    ):
        offsets.append(np.zeros(1, dtype=np.int64))

        def append(block: SequenceBlock) -> None:
            firsts, bounds = bounds_of(block.firsts, block.lengths)
            offsets.append(flat.length + firsts[1:])
            flat.append(bounds)
            starts.append(block.document_starts)

        yield append


@contextmanager
def write_label_mask(paths: Sequence[Path], shape: ShardShape) -> Iterator[Append]:
    """Write one byte per token, 1 if its prediction counts, for OLMo's `label_mask_paths`."""
    with paths[0].open("wb") as out:
        yield lambda block: block.per_token()[2].tofile(out)


def open_memmap(paths: Sequence[Path], manifest: PackedManifest, index: int) -> PackedShard:
    """Map the files of the memmap format."""
    shape = (manifest.shard(index).num_sequences, manifest.sequence_length)
    expected = shape[0] * shape[1] * manifest.token_dtype.itemsize
    found = paths[0].stat().st_size if paths[0].is_file() else None
    if found != expected:
        raise StoreError(f"{paths[0]}: {found} bytes must be {expected}; verify the artifact")
    return _opened(np.memmap(paths[0], dtype=manifest.token_dtype, mode="r", shape=shape), *paths[1:])


def open_npy(paths: Sequence[Path], manifest: PackedManifest, index: int) -> PackedShard:
    """Map the files of the npy format."""
    shape, dtype = (manifest.shard(index).num_sequences, manifest.sequence_length), manifest.token_dtype
    rows = open_array(paths[0], 2)
    if rows.shape != shape or rows.dtype != dtype:
        raise untrue(paths[0], f"shape {rows.shape} of {rows.dtype} must be {shape} of {dtype}")
    return _opened(rows, *paths[1:])


def _opened(rows: NDArray[Any], bounds_file: Path, offsets_file: Path, starts_file: Path) -> PackedShard:
    """The shard of these tokens, whose boundaries are in the files; arrays are views, not copies."""
    bounds, offsets = open_vector(bounds_file, np.int32), open_vector(offsets_file, np.int64)
    if len(offsets) != len(rows) + 1:
        raise untrue(offsets_file, f"{len(offsets)} offsets must be {len(rows) + 1}, one more than sequences")
    check_ascending(offsets_file, "offsets of boundaries", offsets, first=0, last=len(bounds), step=1)
    check_bounds(bounds_file, bounds, offsets, rows.shape[1])
    starts = open_vector(starts_file, np.int64)
    if len(starts) != len(bounds) - len(rows):
        raise untrue(starts_file, f"{len(starts)} starts must be {len(bounds) - len(rows)}, one for a piece")
    check_within(starts_file, "start of piece", starts, least=0, below=1 << 32)
    return PackedShard(lambda row: np.asarray(rows[row]), offsets, bounds, starts, rows)
