"""The formats "parquet" and "arrow": one row per sequence, with columns for tokens, boundaries and masks.

Both hold the columns of `SEQUENCE_SCHEMA`. `.arrow` is an IPC stream, which Hugging Face's `datasets` maps
into memory. With `state.json` and `dataset_info.json` next to the shards, `datasets.load_from_disk` loads the
whole folder.
"""

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.indices import check_lengths, check_starts, check_within, untrue
from tokmill.tasks.formats.files.manifests import readable
from tokmill.tasks.formats.packed.layout import (
    IGNORED_LABEL,
    LABEL_FIELDS,
    SEQUENCE_SCHEMA,
    PackedManifest,
    ShardFiles,
)
from tokmill.tasks.formats.packed.shard_format import (
    Append,
    SequenceBlock,
    ShardFormat,
    ShardShape,
    group_rows,
)

_READ = ("input_ids", "seq_lengths", "document_starts")
STATE_FILES = ("state.json", "dataset_info.json")


@contextmanager
def write_parquet(files: ShardFiles, shape: ShardShape) -> Iterator[Append]:
    """Write a Parquet file; its row groups hold `group_rows` sequences each."""
    # Positions and boundaries increase, so differences compress best; tokens gain nothing from a dictionary.
    names = ("position_ids", "segment_ids", "seq_lengths", "document_starts")
    rows = group_rows(shape.sequence_length)
    with pq.ParquetWriter(
        _parquet_file(files),
        sequence_schema(shape.labels),
        compression="zstd",
        use_dictionary=False,
        column_encoding=dict.fromkeys([f"{name}.list.element" for name in names], "DELTA_BINARY_PACKED"),
    ) as writer:

        def append(block: SequenceBlock) -> None:
            for batch in record_batches(block, shape.labels):
                writer.write_table(pa.Table.from_batches([batch]), row_group_size=rows)

        yield append


@contextmanager
def write_arrow(files: ShardFiles, shape: ShardShape) -> Iterator[Append]:
    """Write an Arrow IPC stream; its batches hold `group_rows` sequences each."""
    with pa.ipc.new_stream(str(_arrow_file(files)), sequence_schema(shape.labels)) as writer:

        def append(block: SequenceBlock) -> None:
            for batch in record_batches(block, shape.labels):
                writer.write_batch(batch)

        yield append


def sequence_schema(labels: bool) -> pa.Schema:
    """The columns of sequences, with the columns of labels if they are wanted."""
    return pa.schema([*SEQUENCE_SCHEMA, *LABEL_FIELDS]) if labels else SEQUENCE_SCHEMA


def record_batches(block: SequenceBlock, labels: bool = False) -> Iterator[pa.RecordBatch]:
    """The sequences of a block as rows of `sequence_schema`, `group_rows` at a time."""
    rows = group_rows(block.rows.shape[1])
    for start in range(0, len(block), rows):
        yield _record_batch(block.part(start, min(start + rows, len(block))), labels)


def _record_batch(block: SequenceBlock, labels: bool) -> pa.RecordBatch:
    positions, segments, loss = block.per_token()
    even = np.arange(len(block) + 1) * block.rows.shape[1]
    lengths_firsts, lengths = block.with_padding
    values = {
        "input_ids": (even, block.rows.reshape(-1).astype(np.int32)),
        "position_ids": (even, positions),
        "segment_ids": (even, segments),
        "loss_mask": (even, loss),
        "seq_lengths": (lengths_firsts, lengths.astype(np.int32)),
        "document_starts": (block.firsts, block.document_starts),
    }
    if labels:
        counted = np.where(loss, block.rows.reshape(-1).astype(np.int64), IGNORED_LABEL)
        values |= {"labels": (even, counted.astype(np.int32)), "attention_mask": (even, segments > 0)}
    schema = sequence_schema(labels)
    columns = [
        pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(flat), type=field.type)
        for field, (offsets, flat) in zip(schema, values.values(), strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def write_dataset_state(out: Path, manifest: PackedManifest) -> None:
    """Write the two files by which `datasets.load_from_disk` finds the shards."""
    shards = [{"filename": _arrow_file(ShardFiles(out, entry.index)).name} for entry in manifest.shards]
    state: dict[str, Any] = {
        "_data_files": shards,
        "_fingerprint": manifest.tokenizer[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    for name, content in zip(STATE_FILES, (state, {}), strict=True):
        (out / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


@dataclass
class _Rows:
    """Rows of some columns that were read together."""

    first: int
    columns: dict[str, pa.ListArray]

    def value(self, name: str, row: int) -> NDArray[Any]:
        """The value of column `name` in row `row` of the file."""
        values: NDArray[Any] = self.columns[name][row - self.first].values.to_numpy(zero_copy_only=False)
        return values


class _ColumnarShard(ABC):
    """The part that both formats' readers share: reading columns of rows."""

    def __init__(self, manifest: PackedManifest) -> None:
        self._dtype, self._length = np.dtype(manifest.dtype), manifest.sequence_length

    def tokens(self, row: int) -> NDArray[Any]:
        """The row's tokens with its padding, in the memmap format's width."""
        return self._rows(row).value("input_ids", row).astype(self._dtype)

    def cu_seqlens(self, row: int) -> NDArray[np.int32]:
        """The boundaries of the row's pieces."""
        lengths, starts = self._rows(row).value("seq_lengths", row), self.document_starts(row)
        return np.cumsum([0, *lengths[: len(starts)]], dtype=np.int32)  # padding has a length, but no start

    def document_starts(self, row: int) -> NDArray[np.int64]:
        """The start of each of the row's pieces in its document."""
        return self._rows(row).value("document_starts", row)

    def _checked(self, file: Path, rows: "_Rows") -> "_Rows":
        """Return the rows, after checking the lengths of all lists."""
        with readable(file, "table of sequences"):
            for column in rows.columns.values():
                column.validate(full=True)
        if any(column.null_count or column.flatten().null_count for column in rows.columns.values()):
            raise untrue(file, "a list is null, or has a null in it")
        lists = {name: _flat(column) for name, column in rows.columns.items()}
        offsets, _ = lists["input_ids"]
        check_within(file, "tokens of sequence", np.diff(offsets), least=self._length, below=self._length + 1)
        firsts, lengths = lists["seq_lengths"]
        check_lengths(file, lengths, firsts, self._length)
        check_starts(file, lengths, firsts, np.diff(lists["document_starts"][0]), self._length)
        return rows

    @abstractmethod
    def _rows(self, row: int) -> _Rows:
        """The rows that are read together with `row`."""


class ParquetShard(_ColumnarShard):
    """The Parquet format; caches the last row group."""

    def __init__(self, files: ShardFiles, manifest: PackedManifest) -> None:
        """Open the file."""
        self._path = _parquet_file(files)
        with readable(_parquet_file(files), "Parquet file"):
            metadata = pq.read_metadata(_parquet_file(files))
            schema = metadata.schema.to_arrow_schema()
        _check_columns(_parquet_file(files), schema)
        super().__init__(manifest)
        sizes = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
        self._firsts = np.cumsum([0, *sizes])
        check_rows(self._path, int(self._firsts[-1]), manifest.num_sequences_of(files.index))
        self._held = _Rows(-1, {})

    def _rows(self, row: int) -> _Rows:
        group = int(np.searchsorted(self._firsts, row, side="right")) - 1
        first, held = int(self._firsts[group]), self._held  # another thread may replace the cached group
        if held.first != first:
            with readable(self._path, "Parquet file"), pq.ParquetFile(self._path) as parquet:
                read = parquet.read_row_group(group, columns=list(_READ))
            columns = {name: _one_chunk(read.column(name)) for name in _READ}
            held = self._checked(self._path, _Rows(first, columns))
            self._held = held
        return held


class ArrowShard(_ColumnarShard):
    """The Arrow format, memory-mapped."""

    def __init__(self, files: ShardFiles, manifest: PackedManifest) -> None:
        """Map the file."""
        with readable(_arrow_file(files), "Arrow stream"):
            table = pa.ipc.open_stream(pa.memory_map(os.fspath(_arrow_file(files)))).read_all()
        _check_columns(_arrow_file(files), table.schema)
        batches = table.to_batches()
        super().__init__(manifest)
        self._firsts = np.cumsum([0, *(len(batch) for batch in batches)])
        check_rows(_arrow_file(files), int(self._firsts[-1]), manifest.num_sequences_of(files.index))
        self._batches = [
            self._checked(_arrow_file(files), _Rows(int(first), {name: batch.column(name) for name in _READ}))
            for first, batch in zip(self._firsts, batches, strict=False)
        ]

    def _rows(self, row: int) -> _Rows:
        return self._batches[int(np.searchsorted(self._firsts, row, side="right")) - 1]


def _check_columns(file: Path, schema: pa.Schema) -> None:
    """Reject a file whose columns are missing, duplicate or of other types."""
    for name in _READ:
        # by index: a name may be invalid UTF-8
        found = [schema.field(place).type for place in schema.get_all_field_indices(name)]
        wanted = SEQUENCE_SCHEMA.field(name).type
        if len(found) != 1 or not pa.types.is_list(found[0]) or found[0].value_type != wanted.value_type:
            said = ", ".join(map(str, found)) or "missing"
            raise untrue(file, f"column {name} is {said}, and must be {wanted}")


def _one_chunk(column: pa.ChunkedArray) -> pa.ListArray:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _flat(column: pa.ListArray) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The offsets of each row's values, from 0, and all values; there are no nulls."""
    offsets = column.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0], column.flatten().to_numpy(zero_copy_only=False)


def check_rows(file: Path, found: int, expected: int) -> None:
    """Reject a file with another number of sequences."""
    if found != expected:
        raise StoreError(f"{file}: {found} rows must be {expected}, as packed.json says; verify the artifact")


def _parquet_file(files: ShardFiles) -> Path:
    return files.named(".parquet")


def _arrow_file(files: ShardFiles) -> Path:
    return files.named(".arrow")


FORMATS = {
    "arrow": ShardFormat(
        write_arrow,
        ArrowShard,
        lambda files: [_arrow_file(files)],
        pattern="shard-*.arrow",
        reading_order=3,
        hub_order=1,
        write_folder=write_dataset_state,
    ),
    "parquet": ShardFormat(
        write_parquet,
        ParquetShard,
        lambda files: [_parquet_file(files)],
        pattern="shard-*.parquet",
        reading_order=5,
        hub_order=0,
    ),
}
