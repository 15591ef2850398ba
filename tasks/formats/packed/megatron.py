r"""The format "megatron": the `.bin` and `.idx` of Megatron-LM's `IndexedDataset`.

Megatron's "sequence" is one of our pieces, and its "document" is one of our sequences: the document index
groups the pieces. Megatron's GPT readers treat every "sequence" as a document, which is right for pieces.
Padding is not stored, since Megatron has none.

`.idx`, little-endian: `MMIDIDX\0\0`, version uint64 = 1, code of the dtype uint8, number of pieces uint64,
number of document bounds uint64; then for each piece its tokens as int32 and its place in `.bin` in bytes as
int64; then the document bounds as int64, from 0 to the number of pieces.

Source: megatron-core, `megatron/core/datasets/indexed_dataset.py`.
"""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.faults import broken
from tokmill.tasks.formats.files.indices import check_lengths, untrue
from tokmill.tasks.formats.packed.columnar import check_rows
from tokmill.tasks.formats.packed.layout import PackedManifest, ShardFiles
from tokmill.tasks.formats.packed.shard_format import Append, SequenceBlock, ShardFormat, ShardShape

_MAGIC = b"MMIDIDX\x00\x00"
_HEADER = struct.Struct("<9sQBQQ")
_CODES = {"uint16": 8, "int32": 4, "int64": 5}
_DTYPES = {code: np.dtype(name).newbyteorder("<") for name, code in _CODES.items()}


@contextmanager
def write_megatron(files: ShardFiles, shape: ShardShape) -> Iterator[Append]:
    """Write both files; Megatron has no uint32, so wide tokens are stored as int32."""
    dtype = np.dtype("<u2") if shape.dtype.itemsize == 2 else np.dtype("<i4")
    lengths: list[NDArray[np.int64]] = []
    bounds = [np.zeros(1, dtype=np.int64)]
    with _tokens_file(files).open("wb") as out:

        def append(block: SequenceBlock) -> None:
            used = np.zeros(len(block), dtype=np.int64)
            row = np.repeat(np.arange(len(block)), np.diff(block.firsts))
            np.add.at(used, row, block.lengths)
            is_token = np.arange(shape.sequence_length) < used[:, None]
            block.rows[is_token].astype(dtype).tofile(out)
            lengths.append(block.lengths)
            bounds.append(bounds[-1][-1] + block.firsts[1:])

        yield append
    _write_index(files, dtype, np.concatenate([*lengths, []]).astype(np.int64), np.concatenate(bounds))


def _write_index(
    files: ShardFiles, dtype: np.dtype[Any], lengths: NDArray[np.int64], bounds: NDArray[np.int64]
) -> None:
    pointers = (np.cumsum(lengths) - lengths) * dtype.itemsize
    code = _CODES[dtype.name]
    with _index_file(files).open("wb") as index:
        index.write(_HEADER.pack(_MAGIC, 1, code, len(lengths), len(bounds)))
        lengths.astype("<i4").tofile(index)
        pointers.astype("<i8").tofile(index)
        bounds.astype("<i8").tofile(index)


class MegatronShard:
    """The Megatron format, memory-mapped; the reader restores the padding."""

    def __init__(self, files: ShardFiles, manifest: PackedManifest) -> None:
        """Map both files."""
        self._length, self._pad_id = manifest.sequence_length, manifest.pad_id
        self._dtype = np.dtype(manifest.dtype)
        try:
            data = _index_file(files).read_bytes()
            dtype, num_pieces, num_bounds = _parsed_header(data)
            lengths = np.frombuffer(data, "<i4", num_pieces, _HEADER.size)
            self._bounds = np.frombuffer(data, "<i8", num_bounds, _HEADER.size + 12 * num_pieces)
            pointers = np.frombuffer(data, "<i8", num_pieces, _HEADER.size + 4 * num_pieces)
            self._tokens = _mapped(_tokens_file(files), dtype)
        except (OSError, ValueError, struct.error) as error:
            raise broken(_index_file(files), "not readable as Megatron's index", error) from error
        if dtype.itemsize != self._dtype.itemsize:
            raise untrue(_index_file(files), f"its tokens are {dtype}, and must be {self._dtype}")
        self._sums = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        wrong = np.flatnonzero(pointers != self._sums[:-1] * dtype.itemsize)
        if len(wrong):
            place = int(wrong[0])
            raise untrue(
                _index_file(files),
                f"pointer {place} is {int(pointers[place])}, and must be "
                f"{int(self._sums[place]) * dtype.itemsize}, after the pieces before it",
            )
        check_rows(_index_file(files), len(self._bounds) - 1, manifest.num_sequences_of(files.index))
        if self._sums[-1] != len(self._tokens):
            raise StoreError(
                f"{_tokens_file(files)}: {len(self._tokens)} tokens must be {self._sums[-1]}, as its index "
                "says; verify the artifact"
            )
        check_lengths(_index_file(files), lengths, self._bounds, self._length)

    def tokens(self, row: int) -> NDArray[Any]:
        """The row's tokens with its padding."""
        ends = self._ends(row)
        tokens = np.full(self._length, self._pad_id, dtype=self._dtype)
        tokens[: ends[-1] - ends[0]] = self._tokens[ends[0] : ends[-1]]
        return tokens

    def cu_seqlens(self, row: int) -> NDArray[np.int32]:
        """The boundaries of the row's pieces."""
        ends = self._ends(row)
        bounds: NDArray[np.int32] = (ends - ends[0]).astype(np.int32)
        return bounds

    def document_starts(self, row: int) -> NDArray[np.int64] | None:
        """None: the format cannot hold it."""
        return None

    def _ends(self, row: int) -> NDArray[np.int64]:
        ends: NDArray[np.int64] = self._sums[self._bounds[row] : self._bounds[row + 1] + 1]
        return ends


def _mapped(file: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    """The tokens, memory-mapped; an empty array if the file is empty."""
    return np.memmap(file, dtype=dtype, mode="r") if file.stat().st_size else np.empty(0, dtype=dtype)


def _parsed_header(data: bytes) -> tuple[np.dtype[Any], int, int]:
    """The dtype, and the numbers of pieces and of document bounds."""
    magic, version, code, num_pieces, num_bounds = _HEADER.unpack_from(data)
    if (magic, version) != (_MAGIC, 1) or code not in _DTYPES:
        raise ValueError(f"version {version} and dtype code {code} are not known")
    expected = _HEADER.size + 12 * num_pieces + 8 * num_bounds
    if len(data) != expected:
        raise ValueError(
            f"{len(data)} bytes must be {expected}, for {num_pieces} pieces, {num_bounds} bounds"
        )
    return _DTYPES[code], num_pieces, num_bounds


def _tokens_file(files: ShardFiles) -> Path:
    """Megatron's tokens; the memmap format's pattern does not match it."""
    return files.named(".bin", "megatron")


def _index_file(files: ShardFiles) -> Path:
    return files.named(".idx", "megatron")


FORMATS = {
    "megatron": ShardFormat(
        write_megatron,
        MegatronShard,
        lambda files: [_tokens_file(files), _index_file(files)],
        pattern="megatron-*.bin",
        reading_order=4,
        hub_order=6,
    )
}
