"""The format "mds": MosaicML's shards, with the `index.json` that `streaming` reads.

A sample is a sequence, with `tokens` (uint16 | uint32 of shape (sequence_length,)), `seq_lengths` (uint32 of
any length) and `document_starts` (uint32 likewise). A shard is, little-endian: the number of samples as
uint32; the positions in the file at which samples begin and the last one ends, as uint32; the columns as
JSON; then the samples. A sample is the sizes of its columns of variable size as uint32, then the columns. An
array of any shape begins with a byte for the encoding of the shape, and one for the number of axes.

Source: mosaicml-streaming, `streaming/base/format/mds/`.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import PackingError
from tokmill.tasks.core.faults import broken
from tokmill.tasks.formats.files.indices import check_ascending, untrue
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.formats.packed.shard_format import (
    Append,
    PackedShard,
    SequenceBlock,
    ShardShape,
    bounded_shard,
    check_rows,
)

_MOST_BYTES = (1 << 32) - 1


@contextmanager
def write_mds(paths: Sequence[Path], shape: ShardShape) -> Iterator[Append]:
    """Write one shard; the positions of the samples are written before them at the end."""
    text = json.dumps(_config(shape.dtype.name, shape.sequence_length), sort_keys=True).encode()
    begin = 4 + 4 * (shape.num_sequences + 1) + len(text)
    sizes: list[int] = []
    with paths[0].open("wb") as out:
        out.seek(begin)

        def append(block: SequenceBlock) -> None:
            firsts, lengths = block.with_padding
            for row in range(len(block)):
                starts = _vector(block.document_starts[block.firsts[row] : block.firsts[row + 1]])
                vector = _vector(lengths[firsts[row] : firsts[row + 1]])
                head = np.array([len(starts), len(vector)], dtype="<u4").tobytes()
                sizes.append(out.write(b"".join([head, starts, vector, block.rows[row].tobytes()])))

        yield append
        num_bytes = begin + sum(sizes)
        if num_bytes > _MOST_BYTES:
            raise PackingError(
                f"pack: {paths[0].name} would take {num_bytes} bytes, which must be at most {_MOST_BYTES} in "
                "MosaicML's format; lower sequences_per_shard"
            )
        out.seek(0)
        out.write(np.uint32(len(sizes)).tobytes())
        out.write((begin + np.cumsum([0, *sizes])).astype("<u4").tobytes())
        out.write(text)


def write_mds_folder(out: Path, manifest: PackedManifest) -> None:
    """Write `index.json`, which lists the shards for MosaicML's reader."""
    shards = []
    for entry in manifest.shards:
        name = f"shard.{entry.index:05d}.mds"
        raw = {"basename": name, "bytes": (out / name).stat().st_size, "hashes": {}}
        config = _config(manifest.dtype, manifest.sequence_length)
        shards.append({**config, "samples": entry.num_sequences, "raw_data": raw, "zip_data": None})
    content = {"version": 2, "shards": shards}
    (out / "index.json").write_text(json.dumps(content, sort_keys=True) + "\n", encoding="utf-8")


def _config(dtype: str, sequence_length: int) -> dict[str, Any]:
    """The description of the columns that MosaicML's writer puts in the shard and the index."""
    return {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": None,
        "column_names": ["document_starts", "seq_lengths", "tokens"],
        "column_encodings": ["ndarray:uint32", "ndarray:uint32", f"ndarray:{dtype}:{sequence_length}"],
        "column_sizes": [None, None, sequence_length * np.dtype(dtype).itemsize],
    }


def _vector(values: NDArray[np.int64]) -> bytes:
    """A vector: axes and width of the shape, the shape, the values."""
    width = 0 if len(values) < 1 << 8 else 1 if len(values) < 1 << 16 else 2
    shape = bytes([1 << 2 | width]) + len(values).to_bytes(1 << width, "little")
    return shape + values.astype("<u4").tobytes()


def open_mds(paths: Sequence[Path], manifest: PackedManifest, index: int) -> PackedShard:
    """Map a shard into memory."""
    file, length = paths[0], manifest.sequence_length
    try:
        data: NDArray[np.uint8] = np.memmap(file, dtype=np.uint8, mode="r")
        num_samples = int(data[:4].view("<u4")[0])
        bounds = data[4 : 4 * (num_samples + 2)].view("<u4").astype(np.int64)
    except (OSError, ValueError, IndexError) as error:
        raise broken(file, "not readable as MDS", error) from error
    check_rows(file, num_samples, manifest.shard(index).num_sequences)
    check_rows(file, len(bounds) - 1, num_samples)
    begin = 4 + 4 * len(bounds) + len(json.dumps(_config(manifest.dtype, length), sort_keys=True))
    check_ascending(file, "samples", bounds, first=begin, last=len(data), step=8)
    num_bytes = length * manifest.token_dtype.itemsize

    def tokens(row: int) -> NDArray[Any]:
        stop = bounds[row + 1]
        return np.asarray(data[stop - num_bytes : stop]).view(manifest.token_dtype)

    starts, lengths = (
        (np.cumsum([0, *map(len, each)], dtype=np.int64), np.concatenate(each).astype(np.int64))
        for each in zip(*_vectors(file, data, bounds, num_bytes), strict=True)
    )
    return bounded_shard(file, manifest, tokens, lengths, starts)


def _vectors(
    file: Path, data: NDArray[np.uint8], bounds: NDArray[np.int64], num_bytes: int
) -> Iterator[list[NDArray[np.uint32]]]:
    """Yield both vectors of each sample, whose sizes with that of the tokens must fill it."""
    sizes = data[bounds[:-1, None] + np.arange(8)].view("<u4").astype(np.int64)
    for row, (begin, stop, first, second) in enumerate(
        np.column_stack([bounds[:-1] + 8, bounds[1:], sizes]).tolist()
    ):
        if begin + first + second + num_bytes != stop:
            raise untrue(
                file, f"sample {row} must have {8 + first + second + num_bytes} bytes, for its columns"
            )
        raw = data[begin : begin + first + second].tobytes()
        yield [_parsed(file, row, datum) for datum in (raw[:first], raw[first:])]


def _parsed(file: Path, row: int, datum: bytes) -> NDArray[np.uint32]:
    """The vector of uint32 that `_vector` wrote."""
    width = 1 << datum[0] % 4 if datum[:1] in (b"\4", b"\5", b"\6") else 0
    if not width or len(datum) != 1 + width + 4 * int.from_bytes(datum[1 : 1 + width], "little"):
        raise untrue(file, f"sample {row} has no vectors of uint32")
    return np.frombuffer(datum, "<u4", offset=1 + width)
