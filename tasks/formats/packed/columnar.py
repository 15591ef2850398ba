"""The formats "parquet" and "arrow": one row per sequence, with columns for tokens, boundaries and masks.

Both hold the columns of `SEQUENCE_SCHEMA`. `.arrow` is an IPC stream, which Hugging Face's `datasets` maps
into memory. With `state.json` and `dataset_info.json` next to the shards, `datasets.load_from_disk` loads the
whole folder.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokmill.tasks.formats.files.indices import check_within, untrue
from tokmill.tasks.formats.files.manifests import readable
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.formats.packed.shard_format import (
    IGNORED_LABEL,
    Append,
    BoundedShard,
    SequenceBlock,
    ShardShape,
    check_rows,
    group_rows,
)


def _column(name: str, element: pa.DataType) -> pa.Field:
    return pa.field(name, pa.list_(pa.field("element", element, nullable=False)), nullable=False)


SEQUENCE_SCHEMA = pa.schema(
    [
        _column("input_ids", pa.int32()),
        _column("position_ids", pa.int32()),
        _column("segment_ids", pa.int32()),
        _column("loss_mask", pa.bool_()),
        _column("seq_lengths", pa.int32()),
        _column("document_starts", pa.int64()),
    ]
)
_WITH_LABELS = pa.schema(
    [*SEQUENCE_SCHEMA, _column("labels", pa.int32()), _column("attention_mask", pa.bool_())]
)
_BOUNDARIES = ["seq_lengths", "document_starts"]
# Positions and boundaries increase, so differences compress best; tokens gain nothing from a dictionary.
_INCREASING = ("position_ids", "segment_ids", *_BOUNDARIES)


@contextmanager
def write_parquet(paths: Sequence[Path], shape: ShardShape) -> Iterator[Append]:
    """Write a Parquet file; its row groups hold `group_rows` sequences each."""
    rows = group_rows(shape.sequence_length)
    with pq.ParquetWriter(
        paths[0],
        _WITH_LABELS if shape.labels else SEQUENCE_SCHEMA,
        compression="zstd",
        use_dictionary=False,
        column_encoding={f"{name}.list.element": "DELTA_BINARY_PACKED" for name in _INCREASING},
    ) as writer:

        def append(block: SequenceBlock) -> None:
            for batch in _record_batches(block, shape.labels):
                writer.write_table(pa.Table.from_batches([batch]), row_group_size=rows)

        yield append


@contextmanager
def write_arrow(paths: Sequence[Path], shape: ShardShape) -> Iterator[Append]:
    """Write an Arrow IPC stream; its batches hold `group_rows` sequences each."""
    with pa.ipc.new_stream(str(paths[0]), _WITH_LABELS if shape.labels else SEQUENCE_SCHEMA) as writer:

        def append(block: SequenceBlock) -> None:
            for batch in _record_batches(block, shape.labels):
                writer.write_batch(batch)

        yield append


def write_arrow_folder(out: Path, manifest: PackedManifest) -> None:
    """Write the two files by which `datasets.load_from_disk` finds the shards."""
    state: dict[str, Any] = {
        "_data_files": [{"filename": f"shard-{entry.index:05d}.arrow"} for entry in manifest.shards],
        "_fingerprint": manifest.tokenizer[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    for name, content in (("state.json", state), ("dataset_info.json", {})):
        (out / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _record_batches(block: SequenceBlock, labels: bool) -> Iterator[pa.RecordBatch]:
    """The sequences of a block as rows, `group_rows` at a time."""
    rows = group_rows(block.rows.shape[1])
    for start in range(0, len(block), rows):
        part = block.part(start, min(start + rows, len(block)))
        columns = [
            pa.ListArray.from_arrays(
                pa.array(offsets.astype(np.int32)), pa.array(flat.astype(element)), type=field.type
            )
            for field, element, (offsets, flat) in columns_of(part, labels)
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=_WITH_LABELS if labels else SEQUENCE_SCHEMA)


def columns_of(
    block: SequenceBlock, labels: bool
) -> Iterator[tuple[pa.Field, Any, tuple[NDArray[np.int64], NDArray[Any]]]]:
    """Yield each column's field, its dtype, and its lists: int64 [n + 1] offsets, and all values."""
    positions, segments, loss = block.per_token()
    even, tokens = np.arange(len(block) + 1) * block.rows.shape[1], block.rows.reshape(-1)
    lists = [
        (even, tokens),
        (even, positions),
        (even, segments),
        (even, loss),
        block.with_padding,
        (block.firsts, block.document_starts),
    ]
    if labels:
        lists += [(even, np.where(loss, tokens.astype(np.int64), IGNORED_LABEL)), (even, segments > 0)]
    for field, values in zip(_WITH_LABELS, lists, strict=False):
        yield field, np.dtype(str(field.type.value_type)), values


def open_parquet(paths: Sequence[Path], manifest: PackedManifest, index: int) -> BoundedShard:
    """Open a shard of the Parquet format."""
    with readable(paths[0], "Parquet file"), pq.ParquetFile(paths[0]) as parquet:
        metadata = parquet.metadata
        _check_columns(paths[0], parquet.schema_arrow)
        check_rows(paths[0], metadata.num_rows, manifest.shard(index).num_sequences)
        table = parquet.read(_BOUNDARIES)
    groups = _RowGroups(paths[0], metadata, manifest)
    firsts, lengths = _lists(paths[0], table.column("seq_lengths"))
    starts = _lists(paths[0], table.column("document_starts"))
    return BoundedShard(paths[0], manifest, groups.tokens, firsts, lengths, starts)


class _RowGroups:
    """The tokens of a Parquet file; holds those of the last row group."""

    def __init__(self, file: Path, metadata: pq.FileMetaData, manifest: PackedManifest) -> None:
        sizes = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        self._file, self._manifest = file, manifest
        self._firsts = np.cumsum([0, *sizes])
        self._held: tuple[int, NDArray[Any]] = (-1, np.empty(0))

    def tokens(self, row: int) -> NDArray[Any]:
        """The row's tokens with its padding, in the memmap format's width."""
        group = int(np.searchsorted(self._firsts, row, side="right")) - 1
        held = self._held  # another thread may replace it
        if held[0] != group:
            with readable(self._file, "Parquet file"), pq.ParquetFile(self._file) as parquet:
                column = parquet.read_row_group(group, columns=["input_ids"]).column(0)
            self._held = held = (group, _rows(self._file, column, self._manifest.sequence_length))
        return np.asarray(held[1][row - int(self._firsts[group])].astype(self._manifest.dtype))


def open_arrow(paths: Sequence[Path], manifest: PackedManifest, index: int) -> BoundedShard:
    """Map a shard of the Arrow format into memory."""
    with readable(paths[0], "Arrow stream"):
        table = pa.ipc.open_stream(pa.memory_map(os.fspath(paths[0]))).read_all()
    _check_columns(paths[0], table.schema)
    check_rows(paths[0], table.num_rows, manifest.shard(index).num_sequences)
    batches = [
        _rows(paths[0], pa.chunked_array([chunk]), manifest.sequence_length)
        for chunk in table.column("input_ids").chunks
    ]
    ends = np.cumsum([len(rows) for rows in batches])

    def tokens(row: int) -> NDArray[Any]:
        batch = int(np.searchsorted(ends, row, side="right"))
        return np.asarray(batches[batch][row - int(ends[batch])].astype(manifest.dtype))

    firsts, lengths = _lists(paths[0], table.column("seq_lengths"))
    starts = _lists(paths[0], table.column("document_starts"))
    return BoundedShard(paths[0], manifest, tokens, firsts, lengths, starts)


def _check_columns(file: Path, schema: pa.Schema) -> None:
    """Reject a file whose columns are missing, duplicate or of other types."""
    for name in ("input_ids", *_BOUNDARIES):
        # by index: a name may be invalid UTF-8
        types = [schema.field(place).type for place in schema.get_all_field_indices(name)]
        wanted = SEQUENCE_SCHEMA.field(name).type
        if len(types) != 1 or not pa.types.is_list(types[0]) or types[0].value_type != wanted.value_type:
            said = ", ".join(map(str, types)) or "missing"
            raise untrue(file, f"column {name} is {said}, and must be {wanted}")


def _lists(file: Path, column: pa.ChunkedArray) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """The offsets of each row's values, and all values, after checking the lists."""
    with readable(file, "table of sequences"):
        for chunk in column.chunks:
            chunk.validate(full=True)
    if any(chunk.null_count or chunk.flatten().null_count for chunk in column.chunks):
        raise untrue(file, "a list is null, or has a null in it")
    counts = [np.diff(chunk.offsets.to_numpy()) for chunk in column.chunks]
    values = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    flat = values[0] if len(values) == 1 else np.concatenate([np.empty(0, dtype=np.int64), *values])
    return np.cumsum([0, *np.concatenate(counts)], dtype=np.int64), flat


def _rows(file: Path, column: pa.ChunkedArray, sequence_length: int) -> NDArray[Any]:
    """The tokens of sequences: int32 [n, sequence_length]."""
    firsts, flat = _lists(file, column)
    lengths = np.diff(firsts)
    check_within(file, "tokens of sequence", lengths, least=sequence_length, below=sequence_length + 1)
    return flat.reshape(-1, sequence_length)
