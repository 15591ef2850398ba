"""The format "jsonl": one JSON object per line and sequence, compressed with Zstandard.

An object has the columns of the Parquet format as keys; `loss_mask` is 0 or 1. The reader keeps
a shard in memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import zstandard
from numpy.typing import NDArray

from tokmill.tasks.core.faults import broken
from tokmill.tasks.formats.files.indices import check_lengths, check_starts, untrue
from tokmill.tasks.formats.packed.columnar import check_rows, sequence_schema
from tokmill.tasks.formats.packed.layout import IGNORED_LABEL, PackedManifest, ShardFiles
from tokmill.tasks.formats.packed.shard_format import Append, SequenceBlock, ShardFormat, ShardShape


@contextmanager
def write_jsonl(files: ShardFiles, shape: ShardShape) -> Iterator[Append]:
    """Write one line per sequence."""
    with _file(files).open("wb") as raw, zstandard.ZstdCompressor(level=3).stream_writer(raw) as out:

        def append(block: SequenceBlock) -> None:
            for line in _lines(block, shape.labels):
                out.write(line)

        yield append


def _lines(block: SequenceBlock, labels: bool) -> Iterator[bytes]:
    positions, segments, loss = (values.reshape(block.rows.shape) for values in block.per_token())
    firsts, lengths = block.with_padding
    names = sequence_schema(labels).names
    for row in range(len(block)):
        pieces = slice(int(block.firsts[row]), int(block.firsts[row + 1]))
        values: tuple[NDArray[Any], ...] = (
            block.rows[row].astype(np.uint32),
            positions[row],
            segments[row],
            loss[row].astype(np.uint8),
            lengths[int(firsts[row]) : int(firsts[row + 1])],
            block.document_starts[pieces],
        )
        if labels:
            label = np.where(loss[row], block.rows[row].astype(np.int64), IGNORED_LABEL)
            values += (label, (segments[row] > 0).astype(np.uint8))
        line = dict(zip(names, values, strict=True))
        yield orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)


class JsonlShard:
    """The JSON lines format, read as a whole."""

    def __init__(self, files: ShardFiles, manifest: PackedManifest) -> None:
        """Read the file."""
        self._dtype = np.dtype(manifest.dtype)
        try:
            with _file(files).open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
                self._rows: list[dict[str, Any]] = [
                    orjson.loads(line) for line in stream.read().splitlines() if line
                ]
        except (OSError, ValueError, zstandard.ZstdError) as error:
            raise broken(_file(files), "not readable as JSON lines", error) from error
        check_rows(_file(files), len(self._rows), manifest.num_sequences_of(files.index))
        try:
            self._check(_file(files), manifest.sequence_length)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise untrue(_file(files), f"a line is not a packed sequence ({error!r})") from error

    def _check(self, file: Path, sequence_length: int) -> None:
        """Check every line."""
        lengths, counts = [], []
        for row, line in enumerate(self._rows):
            starts = np.array(line["document_starts"], dtype=np.int64)
            lengths.append(np.array(line["seq_lengths"], dtype=np.int64))
            counts.append(len(starts))
            if (self.tokens(row).shape, lengths[-1].ndim, starts.ndim) != ((sequence_length,), 1, 1):
                raise ValueError(f"line {row} has lists of other lengths")
        firsts = np.cumsum([0, *map(len, lengths)], dtype=np.int64)
        flat = np.concatenate([np.empty(0, np.int64), *lengths])
        check_lengths(file, flat, firsts, sequence_length)
        check_starts(file, flat, firsts, np.array(counts, dtype=np.int64), sequence_length)

    def tokens(self, row: int) -> NDArray[Any]:
        """The row's tokens with its padding."""
        return np.array(self._rows[row]["input_ids"], dtype=self._dtype)

    def cu_seqlens(self, row: int) -> NDArray[np.int32]:
        """The boundaries of the row's pieces."""
        line = self._rows[row]
        return np.cumsum([0, *line["seq_lengths"][: len(line["document_starts"])]], dtype=np.int32)

    def document_starts(self, row: int) -> NDArray[np.int64] | None:
        """The start of each of the row's pieces in its document."""
        return np.array(self._rows[row]["document_starts"], dtype=np.int64)


def _file(files: ShardFiles) -> Path:
    return files.named(".jsonl.zst")


FORMATS = {
    "jsonl": ShardFormat(
        write_jsonl,
        JsonlShard,
        lambda files: [_file(files)],
        pattern="shard-*.jsonl.zst",
        reading_order=6,
        hub_order=2,
    )
}
