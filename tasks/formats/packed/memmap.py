"""The formats "memmap" and "npy": tokens row by row, with boundaries in separate files.

`.bin` has only tokens, without a header, as nanoGPT's and OLMo's readers expect. `.npy` is the same with
numpy's header, of shape (num_sequences, sequence_length).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.indices import check_ascending, check_bounds, check_within, untrue
from tokmill.tasks.formats.files.npy import NpyAppender, open_array, open_vector
from tokmill.tasks.formats.packed.layout import PackedManifest, ShardFiles
from tokmill.tasks.formats.packed.shard_format import Append, SequenceBlock, ShardFormat, ShardShape


@contextmanager
def write_memmap(files: ShardFiles, shape: ShardShape) -> Iterator[Append]:
    """Write tokens without a header."""
    with files.tokens.open("wb") as out:
        yield lambda block: block.rows.tofile(out)


@contextmanager
def write_npy(files: ShardFiles, shape: ShardShape) -> Iterator[Append]:
    """Write tokens after numpy's header."""
    header = {
        "descr": npy_format.dtype_to_descr(shape.dtype),
        "fortran_order": False,
        "shape": (shape.num_sequences, shape.sequence_length),
    }
    with files.rows.open("wb") as out:
        npy_format.write_array_header_1_0(out, header)
        out.flush()
        yield lambda block: block.rows.tofile(out)


@contextmanager
def write_boundaries(files: ShardFiles, shape: ShardShape) -> Iterator[Append]:
    """Write the bounds of pieces, for formats that hold only tokens."""
    with (
        NpyAppender(files.cu_seqlens, np.int32) as flat,
        NpyAppender(files.cu_offsets, np.int64) as offsets,
        NpyAppender(files.document_starts, np.int64) as starts,
    ):
        offsets.append(np.zeros(1, dtype=np.int64))

        def append(block: SequenceBlock) -> None:
            num_pieces = np.diff(block.firsts)
            offsets.append(flat.length + np.cumsum(num_pieces + 1))
            flat.append(_cu_seqlens(block))
            starts.append(block.document_starts)

        yield append


@contextmanager
def write_label_mask(files: ShardFiles, shape: ShardShape) -> Iterator[Append]:
    """Write one byte per token, 1 if its prediction counts, for OLMo's `label_mask_paths`."""
    with files.label_mask.open("wb") as out:
        yield lambda block: block.per_token()[2].tofile(out)


def _cu_seqlens(block: SequenceBlock) -> NDArray[np.int32]:
    """The boundaries of each sequence, a 0 followed by the ends of its pieces: int32 [p + n]."""
    num_pieces = np.diff(block.firsts)
    flat = np.zeros(len(block.lengths) + len(block), dtype=np.int32)
    flat[np.arange(len(block.lengths)) + np.repeat(np.arange(1, len(block) + 1), num_pieces)] = block.ends
    return flat


@dataclass(frozen=True)
class MemmapShard:
    """Either format: tokens uint16 | uint32 [n, sequence_length], memory-mapped; views, no copies."""

    rows: NDArray[Any]
    flat: NDArray[np.int32]
    offsets: NDArray[np.int64]
    starts: NDArray[np.int64]

    @classmethod
    def open(cls, files: ShardFiles, manifest: PackedManifest) -> "MemmapShard":
        """Map the files of the memmap format.

        Raises:
            StoreError: a file is missing, its size differs from the manifest, or boundaries are invalid.
        """
        shape = (manifest.num_sequences_of(files.index), manifest.sequence_length)
        dtype = np.dtype(manifest.dtype).newbyteorder("<")
        expected = shape[0] * shape[1] * dtype.itemsize
        found = files.tokens.stat().st_size if files.tokens.is_file() else None
        if found != expected:
            raise StoreError(f"{files.tokens}: {found} bytes must be {expected}; verify the artifact")
        return cls._with_boundaries(np.memmap(files.tokens, dtype=dtype, mode="r", shape=shape), files)

    @classmethod
    def open_npy(cls, files: ShardFiles, manifest: PackedManifest) -> "MemmapShard":
        """Map the files of the npy format.

        Raises:
            StoreError: a file is missing or broken, has another shape than the manifest says, or boundaries
                are none.
        """
        shape = (manifest.num_sequences_of(files.index), manifest.sequence_length)
        dtype = np.dtype(manifest.dtype).newbyteorder("<")
        rows = open_array(files.rows, 2)
        if rows.shape != shape or rows.dtype != dtype:
            raise StoreError(
                f"{files.rows}: shape {rows.shape} of {rows.dtype} must be {shape} of {dtype}; verify the "
                "artifact"
            )
        return cls._with_boundaries(rows, files)

    @classmethod
    def _with_boundaries(cls, rows: NDArray[Any], files: ShardFiles) -> "MemmapShard":
        flat, offsets = open_vector(files.cu_seqlens, np.int32), open_vector(files.cu_offsets, np.int64)
        if len(offsets) != len(rows) + 1:
            raise untrue(
                files.cu_offsets, f"{len(offsets)} offsets must be {len(rows) + 1}, one more than sequences"
            )
        check_ascending(files.cu_offsets, "offsets of boundaries", offsets, first=0, last=len(flat), step=1)
        check_bounds(files.cu_seqlens, flat, offsets, rows.shape[1])
        starts = open_vector(files.document_starts, np.int64)
        if len(starts) != len(flat) - len(rows):
            raise untrue(
                files.document_starts,
                f"{len(starts)} starts must be {len(flat) - len(rows)}, one for a piece",
            )
        check_within(files.document_starts, "start of piece", starts, least=0, below=1 << 32)
        return cls(rows, flat, offsets, starts)

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


_LABELS = ((write_label_mask, lambda files: files.label_mask),)

FORMATS = {
    "memmap": ShardFormat(
        write_memmap,
        MemmapShard.open,
        lambda files: [files.tokens, *files.boundaries],
        pattern="shard-*.bin",
        reading_order=0,
        hub_order=4,
        beside=(write_boundaries,),
        beside_labels=_LABELS,
    ),
    "npy": ShardFormat(
        write_npy,
        MemmapShard.open_npy,
        lambda files: [files.rows, *files.boundaries],
        pattern="tokens-*.npy",
        reading_order=1,
        hub_order=5,
        beside=(write_boundaries,),
        beside_labels=_LABELS,
    ),
}
