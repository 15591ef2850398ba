"""The formats "memmap" and "npy": tokens row after row, and their boundaries beside them.

`.bin` is tokens alone, without a header: what nanoGPT's and OLMo's readers take. `.npy` is the same with
numpy's header, of shape (num_sequences, sequence_length).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib import format as npy_format
from numpy.typing import NDArray

from tasks.errors import StoreError
from tasks.faults import broken
from tasks.formats.npy import NpyAppender, open_vector
from tasks.formats.packed_block import Append, SequenceBlock, ShardShape
from tasks.formats.packed_files import PackedManifest, ShardFiles


@contextmanager
def write_memmap(files: ShardFiles, shape: ShardShape) -> Iterator[Append]:
    """Write tokens without a header."""
    with files.tokens.open("wb") as out:
        yield lambda block: block.rows.tofile(out)


@contextmanager
def write_npy(files: ShardFiles, shape: ShardShape) -> Iterator[Append]:
    """Write tokens below numpy's header."""
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
    """Write where pieces begin and end, for formats that hold tokens alone."""
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


def _cu_seqlens(block: SequenceBlock) -> NDArray[np.int32]:
    """Each sequence's boundaries, a 0 and then the ends of its pieces: int32 [p + n]."""
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
    starts: NDArray[np.int64] | None

    @classmethod
    def open(cls, files: ShardFiles, manifest: PackedManifest) -> "MemmapShard":
        """Map the files of the memmap format.

        Raises:
            StoreError: a file is missing, or its size is not what the manifest says.
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
            StoreError: a file is missing or broken, or has another shape than the manifest says.
        """
        shape = (manifest.num_sequences_of(files.index), manifest.sequence_length)
        try:
            rows: NDArray[Any] = np.load(files.rows, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise broken(files.rows, "not a readable .npy file", error) from error
        if rows.shape != shape:
            raise StoreError(f"{files.rows}: shape {rows.shape} must be {shape}; verify the artifact")
        return cls._with_boundaries(rows, files)

    @classmethod
    def _with_boundaries(cls, rows: NDArray[Any], files: ShardFiles) -> "MemmapShard":
        starts = open_vector(files.document_starts) if files.document_starts.is_file() else None
        return cls(rows, open_vector(files.cu_seqlens), open_vector(files.cu_offsets), starts)

    def tokens(self, row: int) -> NDArray[Any]:
        """See `ShardReader`."""
        return np.asarray(self.rows[row])

    def cu_seqlens(self, row: int) -> NDArray[np.int32]:
        """See `ShardReader`."""
        return np.asarray(self.flat[self.offsets[row] : self.offsets[row + 1]])

    def document_starts(self, row: int) -> NDArray[np.int64] | None:
        """See `ShardReader`; artifacts of the first version do not have it."""
        if self.starts is None:
            return None
        # Before row i there are i boundaries that begin a sequence and no piece.
        return np.asarray(self.starts[self.offsets[row] - row : self.offsets[row + 1] - row - 1])
