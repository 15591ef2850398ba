"""The formats "memmap" and "npy": tokens row by row, with boundaries in separate files.

`.bin` has only tokens, without a header, as nanoGPT's and OLMo's readers expect. `.npy` is the same with
numpy's header, of shape (num_sequences, sequence_length).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.indices import check_ascending, check_bounds, check_within, untrue
from tokmill.tasks.formats.files.npy import NpyAppender, open_array, open_vector
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.formats.packed.shard_format import Append, SequenceBlock, ShardShape


@contextmanager
def write_memmap(paths: Sequence[Path], shape: ShardShape) -> Iterator[Append]:
    """Write tokens without a header."""
    with paths[0].open("wb") as out:
        yield lambda block: block.rows.tofile(out)


@contextmanager
def write_npy(paths: Sequence[Path], shape: ShardShape) -> Iterator[Append]:
    """Write tokens after numpy's header."""
    header = {
        "descr": npy_format.dtype_to_descr(shape.dtype),
        "fortran_order": False,
        "shape": (shape.num_sequences, shape.sequence_length),
    }
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
            num_pieces = np.diff(block.firsts)
            offsets.append(flat.length + np.cumsum(num_pieces + 1))
            bounds = np.zeros(len(block.lengths) + len(block), dtype=np.int32)  # a 0 for each sequence
            row = np.repeat(np.arange(1, len(block) + 1), num_pieces)
            bounds[np.arange(len(block.lengths)) + row] = block.ends
            flat.append(bounds)
            starts.append(block.document_starts)

        yield append


@contextmanager
def write_label_mask(paths: Sequence[Path], shape: ShardShape) -> Iterator[Append]:
    """Write one byte per token, 1 if its prediction counts, for OLMo's `label_mask_paths`."""
    with paths[0].open("wb") as out:
        yield lambda block: block.per_token()[2].tofile(out)


def open_memmap(paths: Sequence[Path], manifest: PackedManifest, index: int) -> "MemmapShard":
    """Map the files of the memmap format.

    Raises:
        StoreError: a file is missing, its size differs from the manifest, or boundaries are invalid.
    """
    shape = (manifest.shard(index).num_sequences, manifest.sequence_length)
    expected = shape[0] * shape[1] * manifest.token_dtype.itemsize
    found = paths[0].stat().st_size if paths[0].is_file() else None
    if found != expected:
        raise StoreError(f"{paths[0]}: {found} bytes must be {expected}; verify the artifact")
    rows = np.memmap(paths[0], dtype=manifest.token_dtype, mode="r", shape=shape)
    return with_boundaries(rows, paths[1:])


def open_npy(paths: Sequence[Path], manifest: PackedManifest, index: int) -> "MemmapShard":
    """Map the files of the npy format.

    Raises:
        StoreError: a file is missing or broken, has another shape than the manifest says, or boundaries
            are none.
    """
    shape = (manifest.shard(index).num_sequences, manifest.sequence_length)
    rows = open_array(paths[0], 2)
    if rows.shape != shape or rows.dtype != manifest.token_dtype:
        raise StoreError(
            f"{paths[0]}: shape {rows.shape} of {rows.dtype} must be {shape} of {manifest.token_dtype}; "
            "verify the artifact"
        )
    return with_boundaries(rows, paths[1:])


@dataclass(frozen=True)
class MemmapShard:
    """Either format: tokens uint16 | uint32 [n, sequence_length], memory-mapped; views, no copies."""

    rows: NDArray[Any]
    flat: NDArray[np.int32]
    offsets: NDArray[np.int64]
    starts: NDArray[np.int64]

    def tokens(self, row: int) -> NDArray[Any]:
        """The row's tokens with its padding."""
        return np.asarray(self.rows[row])

    def cu_seqlens(self, row: int) -> NDArray[np.int32]:
        """The boundaries of the row's pieces."""
        return np.asarray(self.flat[self.offsets[row] : self.offsets[row + 1]])

    def document_starts(self, row: int) -> NDArray[np.int64]:
        """The start of each of the row's pieces in its document."""
        # The rows before row i have i boundaries that begin a sequence instead of a piece.
        return np.asarray(self.starts[self.offsets[row] - row : self.offsets[row + 1] - row - 1])


def with_boundaries(rows: NDArray[Any], paths: Sequence[Path]) -> MemmapShard:
    """Return the shard of these tokens, whose boundaries are in the files `paths`."""
    bounds_file, offsets_file, starts_file = paths
    flat, offsets = open_vector(bounds_file, np.int32), open_vector(offsets_file, np.int64)
    if len(offsets) != len(rows) + 1:
        raise untrue(offsets_file, f"{len(offsets)} offsets must be {len(rows) + 1}, one more than sequences")
    check_ascending(offsets_file, "offsets of boundaries", offsets, first=0, last=len(flat), step=1)
    check_bounds(bounds_file, flat, offsets, rows.shape[1])
    starts = open_vector(starts_file, np.int64)
    if len(starts) != len(flat) - len(rows):
        raise untrue(starts_file, f"{len(starts)} starts must be {len(flat) - len(rows)}, one for a piece")
    check_within(starts_file, "start of piece", starts, least=0, below=1 << 32)
    return MemmapShard(rows, flat, offsets, starts)
