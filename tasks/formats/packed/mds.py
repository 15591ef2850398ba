"""The format "mds": MosaicML's shards, with the `index.json` that `streaming` reads.

A sample is a sequence, with `tokens` (uint16 | uint32 of shape (sequence_length,)), `seq_lengths` (uint32 of
any length) and `document_starts` (uint32 likewise). A shard is, little-endian: the number of samples as
uint32; the positions in the file at which samples begin and the last one ends, as uint32; the columns as
JSON; then the samples. A sample is the sizes of its columns of variable size as uint32, then the columns. An
array of any shape begins with a byte for the encoding of the shape, and one for the number of axes.

Source: mosaicml-streaming, `streaming/base/format/mds/`.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import PackingError, StoreError
from tokmill.tasks.core.faults import broken
from tokmill.tasks.formats.files.indices import check_ascending, check_lengths, check_starts, untrue
from tokmill.tasks.formats.packed.columnar import check_rows
from tokmill.tasks.formats.packed.layout import PackedManifest, ShardFiles
from tokmill.tasks.formats.packed.shard_format import Append, SequenceBlock, ShardFormat, ShardShape

INDEX_FILE = "index.json"
_NAMES = ("document_starts", "seq_lengths", "tokens")
_MOST_BYTES = (1 << 32) - 1


@contextmanager
def write_mds(files: ShardFiles, shape: ShardShape) -> Iterator[Append]:
    """Write one shard; the positions of the samples are written before them at the end."""
    config = _config(shape.dtype.name, shape.sequence_length)
    text = json.dumps(config, sort_keys=True).encode()
    begin = 4 + 4 * (shape.num_sequences + 1) + len(text)
    sizes: list[int] = []
    with _file(files).open("wb") as out:
        out.seek(begin)

        def append(block: SequenceBlock) -> None:
            firsts, lengths = block.with_padding
            for row in range(len(block)):
                sample = _sample(block, row, lengths[int(firsts[row]) : int(firsts[row + 1])])
                sizes.append(len(sample))
                out.write(sample)

        yield append
        _check_size(files, begin + sum(sizes))
        out.seek(0)
        out.write(np.uint32(len(sizes)).tobytes())
        out.write((begin + np.cumsum([0, *sizes])).astype("<u4").tobytes())
        out.write(text)


def _check_size(files: ShardFiles, num_bytes: int) -> None:
    if num_bytes > _MOST_BYTES:
        raise PackingError(
            f"pack: {_file(files).name} would take {num_bytes} bytes, which must be at most {_MOST_BYTES} in "
            "MosaicML's format; lower sequences_per_shard"
        )


def _config(dtype: str, sequence_length: int) -> dict[str, Any]:
    """The description of the columns that MosaicML's writer puts in the shard and the index."""
    num_bytes = sequence_length * np.dtype(dtype).itemsize
    return {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": None,
        "column_names": list(_NAMES),
        "column_encodings": ["ndarray:uint32", "ndarray:uint32", f"ndarray:{dtype}:{sequence_length}"],
        "column_sizes": [None, None, num_bytes],
    }


def _sample(block: SequenceBlock, row: int, with_padding: NDArray[np.int64]) -> bytes:
    pieces = slice(int(block.firsts[row]), int(block.firsts[row + 1]))
    starts, lengths = _vector(block.document_starts[pieces]), _vector(with_padding)
    sizes = np.array([len(starts), len(lengths)], dtype="<u4").tobytes()
    return b"".join([sizes, starts, lengths, block.rows[row].tobytes()])


def _vector(values: NDArray[np.int64]) -> bytes:
    """A vector of at least one value: axes and width of the shape, the shape, the values."""
    width = 0 if len(values) < 1 << 8 else 1 if len(values) < 1 << 16 else 2
    return (
        bytes([1 << 2 | width]) + len(values).to_bytes(1 << width, "little") + values.astype("<u4").tobytes()
    )


def write_mds_index(out: Path, manifest: PackedManifest) -> None:
    """Write `index.json`, which lists the shards for MosaicML's reader."""
    shards = []
    for entry in manifest.shards:
        file = _file(ShardFiles(out, entry.index))
        raw = {"basename": file.name, "bytes": file.stat().st_size, "hashes": {}}
        config = _config(manifest.dtype, manifest.sequence_length)
        shards.append({**config, "samples": entry.num_sequences, "raw_data": raw, "zip_data": None})
    content = {"version": 2, "shards": shards}
    (out / INDEX_FILE).write_text(json.dumps(content, sort_keys=True) + "\n", encoding="utf-8")


class MdsShard:
    """The MDS format, memory-mapped."""

    def __init__(self, files: ShardFiles, manifest: PackedManifest) -> None:
        """Map the file."""
        self._dtype = np.dtype(manifest.dtype).newbyteorder("<")
        self._num_bytes = manifest.sequence_length * self._dtype.itemsize
        try:
            self._data: NDArray[np.uint8] = np.memmap(_file(files), dtype=np.uint8, mode="r")
            num_samples = int(self._data[:4].view("<u4")[0])
            self._bounds = self._data[4 : 4 * (num_samples + 2)].view("<u4").astype(np.int64)
        except (OSError, ValueError, IndexError) as error:
            raise broken(_file(files), "not readable as MDS", error) from error
        check_rows(_file(files), num_samples, manifest.num_sequences_of(files.index))
        if len(self._bounds) != num_samples + 1 or self._bounds[-1] != len(self._data):
            raise StoreError(
                f"{_file(files)}: {len(self._data)} bytes are not what its index says; verify the artifact"
            )
        text = len(json.dumps(_config(manifest.dtype, manifest.sequence_length), sort_keys=True))
        begin = 4 + 4 * len(self._bounds) + text
        check_ascending(_file(files), "samples", self._bounds, first=begin, last=len(self._data), step=8)
        self._sizes = self._checked_sizes(files)
        self._check_pieces(files, manifest.sequence_length)

    def _checked_sizes(self, files: ShardFiles) -> NDArray[np.int64]:
        """The sizes of both vectors of each sample, which with the tokens must fill it: int64 [n, 2]."""
        begins = self._bounds[:-1]
        sizes: NDArray[np.int64] = self._data[begins[:, None] + np.arange(8)].view("<u4").astype(np.int64)
        expected = 8 + sizes.sum(axis=1) + self._num_bytes
        wrong = np.flatnonzero(expected != np.diff(self._bounds))
        if len(wrong):
            row = int(wrong[0])
            raise untrue(
                _file(files),
                f"sample {row} has {int(np.diff(self._bounds)[row])} bytes, and must have {expected[row]}, "
                "for its columns",
            )
        return sizes

    def _check_pieces(self, files: ShardFiles, sequence_length: int) -> None:
        """Check the vectors of every sample."""
        lengths, counts = [], []
        for row, sizes in enumerate(self._sizes.tolist()):
            vectors = [self._data[int(start) : int(start) + size] for start, size in self._places(row, sizes)]
            if not all(_is_vector(vector) for vector in vectors):
                raise untrue(_file(files), f"sample {row} has no vectors of uint32")
            lengths.append(self._vector_of(row, 1))
            counts.append(len(self._vector_of(row, 0)))
        firsts = np.cumsum([0, *map(len, lengths)], dtype=np.int64)
        flat = np.concatenate([np.empty(0, "<u4"), *lengths]).astype(np.int64)
        check_lengths(_file(files), flat, firsts, sequence_length)
        check_starts(_file(files), flat, firsts, np.array(counts, dtype=np.int64), sequence_length)

    def _places(self, row: int, sizes: list[int]) -> list[tuple[int, int]]:
        """The positions and sizes in bytes of a sample's two vectors."""
        begin = int(self._bounds[row]) + 8
        return [(begin, sizes[0]), (begin + sizes[0], sizes[1])]

    def tokens(self, row: int) -> NDArray[Any]:
        """The row's tokens with its padding."""
        stop = self._bounds[row + 1]
        tokens: NDArray[Any] = np.asarray(self._data[stop - self._num_bytes : stop]).view(self._dtype)
        return tokens

    def cu_seqlens(self, row: int) -> NDArray[np.int32]:
        """The boundaries of the row's pieces."""
        lengths = self._vector_of(row, 1)[: len(self._vector_of(row, 0))]  # the rest is padding
        return np.cumsum([0, *lengths], dtype=np.int32)

    def document_starts(self, row: int) -> NDArray[np.int64] | None:
        """The start of each of the row's pieces in its document."""
        return self._vector_of(row, 0).astype(np.int64)

    def _vector_of(self, row: int, column: int) -> NDArray[np.uint32]:
        start, size = self._places(row, self._sizes[row].tolist())[column]
        datum = self._data[start : start + size].tobytes()
        return np.frombuffer(datum, "<u4", offset=1 + (1 << datum[0] % 4))


def _is_vector(datum: NDArray[np.uint8]) -> bool:
    """Whether the bytes are a vector of uint32, as `_vector` writes it."""
    if len(datum) < 2 or datum[0] not in {4, 5, 6}:
        return False
    width = 1 << int(datum[0]) % 4
    count = int.from_bytes(datum[1 : 1 + width].tobytes(), "little")
    return len(datum) == 1 + width + 4 * count


def _file(files: ShardFiles) -> Path:
    """The shard's path, with the name that MosaicML's writer gives."""
    return files.folder / f"shard.{files.index:05d}.mds"


FORMATS = {
    "mds": ShardFormat(
        write_mds,
        MdsShard,
        lambda files: [_file(files)],
        pattern="shard.*.mds",
        reading_order=2,
        hub_order=3,
        write_folder=write_mds_index,
    )
}
