"""The format "jsonl": one JSON object per line and sequence, compressed with Zstandard.

An object has the columns of the Parquet format as keys; `loss_mask` and `attention_mask` are 0 or 1.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import zstandard
from numpy.typing import NDArray

from tokmill.tasks.core.faults import broken
from tokmill.tasks.formats.files.indices import untrue
from tokmill.tasks.formats.packed.columnar import columns_of
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.formats.packed.shard_format import (
    Append,
    BoundedShard,
    SequenceBlock,
    ShardShape,
    check_rows,
)


@contextmanager
def write_jsonl(paths: Sequence[Path], shape: ShardShape) -> Iterator[Append]:
    """Write one line per sequence."""
    with paths[0].open("wb") as raw, zstandard.ZstdCompressor(level=3).stream_writer(raw) as out:

        def append(block: SequenceBlock) -> None:
            for line in _lines(block, shape.labels):
                out.write(line)

        yield append


def _lines(block: SequenceBlock, labels: bool) -> Iterator[bytes]:
    columns = [
        (field.name, offsets.tolist(), flat.astype(np.uint8 if flat.dtype == np.bool_ else np.int64))
        for field, _, (offsets, flat) in columns_of(block, labels)
    ]
    for row in range(len(block)):
        line = {name: flat[offsets[row] : offsets[row + 1]] for name, offsets, flat in columns}
        yield orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)


def open_jsonl(paths: Sequence[Path], manifest: PackedManifest, index: int) -> BoundedShard:
    """Read a shard as a whole."""
    try:
        with paths[0].open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
            lines: list[dict[str, Any]] = [orjson.loads(line) for line in stream.read().splitlines() if line]
    except (OSError, ValueError, zstandard.ZstdError) as error:
        raise broken(paths[0], "not readable as JSON lines", error) from error
    check_rows(paths[0], len(lines), manifest.shard(index).num_sequences)
    try:
        rows = [_parsed(number, line, manifest) for number, line in enumerate(lines)]
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise untrue(paths[0], f"a line is not a packed sequence ({error!r})") from error
    tokens, lengths, starts = zip(*rows, strict=True)
    return BoundedShard(paths[0], manifest, tokens.__getitem__, *_joined(lengths), starts=_joined(starts))


def _parsed(number: int, line: dict[str, Any], manifest: PackedManifest) -> list[NDArray[Any]]:
    """The tokens, the lengths and the starts of a line's sequence."""
    types = {"input_ids": manifest.dtype, "seq_lengths": "int64", "document_starts": "int64"}
    found: list[NDArray[Any]] = [np.array(line[name], dtype=np.dtype(dtype)) for name, dtype in types.items()]
    if found[0].shape != (manifest.sequence_length,) or any(values.ndim != 1 for values in found):
        raise ValueError(f"line {number} has lists of other lengths")
    return found


def _joined(lists: Sequence[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.cumsum([0, *map(len, lists)], dtype=np.int64), np.concatenate(lists)
