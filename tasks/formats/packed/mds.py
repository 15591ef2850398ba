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

from tokmill.tasks.core.errors import PackingError, StoreError
from tokmill.tasks.core.faults import broken
from tokmill.tasks.formats.files.indices import check_ascending, untrue
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.formats.packed.shard_format import (
    Append,
    BoundedShard,
    SequenceBlock,
    ShardShape,
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
                pieces = slice(int(block.firsts[row]), int(block.firsts[row + 1]))
                vectors = (
                    _vector(block.document_starts[pieces]),
                    _vector(lengths[int(firsts[row]) : int(firsts[row + 1])]),
                )
                head = np.array([len(vector) for vector in vectors], dtype="<u4").tobytes()
                sizes.append(out.write(b"".join([head, *vectors, block.rows[row].tobytes()])))

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
    num_bytes = sequence_length * np.dtype(dtype).itemsize
    return {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": None,
        "column_names": ["document_starts", "seq_lengths", "tokens"],
        "column_encodings": ["ndarray:uint32", "ndarray:uint32", f"ndarray:{dtype}:{sequence_length}"],
        "column_sizes": [None, None, num_bytes],
    }


def _vector(values: NDArray[np.int64]) -> bytes:
    """A vector of at least one value: axes and width of the shape, the shape, the values."""
    width = 0 if len(values) < 1 << 8 else 1 if len(values) < 1 << 16 else 2
    return (
        bytes([1 << 2 | width]) + len(values).to_bytes(1 << width, "little") + values.astype("<u4").tobytes()
    )


def open_mds(paths: Sequence[Path], manifest: PackedManifest, index: int) -> BoundedShard:
    """Map a shard into memory."""
    file, length = paths[0], manifest.sequence_length
    try:
        data: NDArray[np.uint8] = np.memmap(file, dtype=np.uint8, mode="r")
        num_samples = int(data[:4].view("<u4")[0])
        bounds = data[4 : 4 * (num_samples + 2)].view("<u4").astype(np.int64)
    except (OSError, ValueError, IndexError) as error:
        raise broken(file, "not readable as MDS", error) from error
    check_rows(file, num_samples, manifest.shard(index).num_sequences)
    if len(bounds) != num_samples + 1 or bounds[-1] != len(data):
        raise StoreError(f"{file}: {len(data)} bytes are not what its index says; verify the artifact")
    begin = 4 + 4 * len(bounds) + len(json.dumps(_config(manifest.dtype, length), sort_keys=True))
    check_ascending(file, "samples", bounds, first=begin, last=len(data), step=8)
    num_bytes = length * manifest.token_dtype.itemsize
    vectors = _vectors(file, data, bounds, num_bytes)

    def tokens(row: int) -> NDArray[Any]:
        stop = bounds[row + 1]
        return np.asarray(data[stop - num_bytes : stop]).view(manifest.token_dtype)

    starts, lengths = (
        (np.cumsum([0, *map(len, each)], dtype=np.int64), np.concatenate(each).astype(np.int64))
        for each in zip(*vectors, strict=True)
    )
    return BoundedShard(file, manifest, tokens, *lengths, starts=starts)


def _vectors(
    file: Path, data: NDArray[np.uint8], bounds: NDArray[np.int64], num_bytes: int
) -> list[tuple[NDArray[np.uint32], NDArray[np.uint32]]]:
    """Both vectors of each sample, whose sizes with that of the tokens must fill it."""
    sizes = data[bounds[:-1, None] + np.arange(8)].view("<u4").astype(np.int64)
    expected = 8 + sizes.sum(axis=1) + num_bytes
    wrong = np.flatnonzero(expected != np.diff(bounds))
    if len(wrong):
        row = int(wrong[0])
        raise untrue(
            file,
            f"sample {row} has {int(np.diff(bounds)[row])} bytes, and must have {expected[row]}, for its "
            "columns",
        )
    vectors = []
    for row, (begin, first, second) in enumerate(np.column_stack([bounds[:-1] + 8, sizes]).tolist()):
        raw = data[begin : begin + first + second].tobytes()
        starts, lengths = _parsed(raw[:first]), _parsed(raw[first:])
        if starts is None or lengths is None:
            raise untrue(file, f"sample {row} has no vectors of uint32")
        vectors.append((starts, lengths))
    return vectors


def _parsed(datum: bytes) -> NDArray[np.uint32] | None:
    """The vector of uint32 that `_vector` wrote; None if the bytes are not one."""
    if len(datum) < 2 or datum[0] not in {4, 5, 6}:
        return None
    width = 1 << datum[0] % 4
    is_whole = len(datum) == 1 + width + 4 * int.from_bytes(datum[1 : 1 + width], "little")
    return np.frombuffer(datum, "<u4", offset=1 + width) if is_whole else None
