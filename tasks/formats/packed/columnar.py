"""The formats "parquet", "arrow" and "jsonl": one row per sequence, with tokens, boundaries and masks.

All hold the columns of `SEQUENCE_SCHEMA`. `.arrow` is an IPC stream, which Hugging Face's `datasets` maps
into memory; with `state.json` and `dataset_info.json` beside it, `datasets.load_from_disk` loads the whole
folder. A line of JSON is an object with the columns as keys, masks being 0 or 1; the file is compressed.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from numpy.typing import NDArray

from tokmill.tasks.core.faults import broken
from tokmill.tasks.formats.files.arrays import numbers
from tokmill.tasks.formats.files.indices import check_within, untrue
from tokmill.tasks.formats.files.manifests import readable
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.formats.packed.shard_format import (
    IGNORED_LABEL,
    Append,
    Lists,
    PackedShard,
    SequenceBlock,
    ShardShape,
    bounded_shard,
    check_rows,
    group_rows,
)


def _columns(**columns: pa.DataType) -> list[pa.Field]:
    return [
        pa.field(name, pa.list_(pa.field("element", element, nullable=False)), nullable=False)
        for name, element in columns.items()
    ]


_BOUNDARIES = ["seq_lengths", "document_starts"]
_TOKENS = ["input_ids", "position_ids", "segment_ids"]
SEQUENCE_SCHEMA = pa.schema(
    _columns(
        **dict.fromkeys(_TOKENS, pa.int32()),
        loss_mask=pa.bool_(),
        seq_lengths=pa.int32(),
        document_starts=pa.int64(),
    )
)
_WITH_LABELS = pa.schema([*SEQUENCE_SCHEMA, *_columns(labels=pa.int32(), attention_mask=pa.bool_())])
# Positions and boundaries increase, so differences compress best; tokens gain nothing from a dictionary.
_INCREASING = ("position_ids", "segment_ids", *_BOUNDARIES)
_HELD_GROUPS = 4


@contextmanager
def write_parquet(paths: Sequence[Path], shape: ShardShape) -> Iterator[Append]:
    """Write a Parquet file; its row groups hold `group_rows` sequences each."""
    how = {
        "compression": "zstd",
        "use_dictionary": False,
        "column_encoding": {f"{name}.list.element": "DELTA_BINARY_PACKED" for name in _INCREASING},
    }
    with pq.ParquetWriter(paths[0], _WITH_LABELS if shape.labels else SEQUENCE_SCHEMA, **how) as writer:

        def append(block: SequenceBlock) -> None:
            for batch in _record_batches(block, shape.labels):
                rows = group_rows(shape.sequence_length)
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


@contextmanager
def write_jsonl(paths: Sequence[Path], shape: ShardShape) -> Iterator[Append]:
    """Write one line per sequence."""
    with paths[0].open("wb") as raw, zstandard.ZstdCompressor(level=3).stream_writer(raw) as out:

        def append(block: SequenceBlock) -> None:
            columns = [
                (field.name, offsets.tolist(), flat.astype(np.uint8 if flat.dtype == np.bool_ else np.int64))
                for field, (offsets, flat) in _lists_of(block, shape.labels)
            ]
            for row in range(len(block)):
                line = {name: flat[offsets[row] : offsets[row + 1]] for name, offsets, flat in columns}
                out.write(orjson.dumps(line, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE))

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
        lists = _lists_of(block.part(start, min(start + rows, len(block))), labels)
        columns = {
            field: pa.ListArray.from_arrays(
                pa.array(offsets.astype(np.int32)),
                pa.array(flat.astype(str(field.type.value_type))),
                type=field.type,
            )
            for field, (offsets, flat) in lists
        }
        yield pa.RecordBatch.from_arrays([*columns.values()], schema=pa.schema([*columns]))


def _lists_of(block: SequenceBlock, labels: bool) -> Iterator[tuple[pa.Field, Lists]]:
    """Yield each column's field, and its lists."""
    positions, segments, loss = block.per_token()
    even, tokens = np.arange(len(block) + 1) * block.rows.shape[1], block.rows.reshape(-1)
    lists = [(even, tokens), (even, positions), (even, segments), (even, loss)]
    lists += [block.with_padding, (block.firsts, block.document_starts)]
    if labels:
        lists += [(even, np.where(loss, tokens.astype(np.int64), IGNORED_LABEL)), (even, segments > 0)]
    return zip(_WITH_LABELS, lists, strict=False)


def open_parquet(paths: Sequence[Path], manifest: PackedManifest, index: int) -> PackedShard:
    """Read the boundaries; tokens are read by row groups, of which a few are held."""
    with readable(paths[0], "Parquet file"), pq.ParquetFile(paths[0]) as parquet:
        _check_columns(paths[0], parquet.schema_arrow)
        sizes = [parquet.metadata.row_group(group).num_rows for group in range(parquet.num_row_groups)]
        check_rows(paths[0], sum(sizes), manifest.shard(index).num_sequences)
        table = parquet.read(_BOUNDARIES)

    def read(group: int) -> pa.ChunkedArray:
        with readable(paths[0], "Parquet file"), pq.ParquetFile(paths[0]) as parquet:
            return parquet.read_row_group(group, columns=["input_ids"]).column(0)

    return _opened(paths[0], manifest, table, sizes, read)


def open_arrow(paths: Sequence[Path], manifest: PackedManifest, index: int) -> PackedShard:
    """Map a shard into memory."""
    with readable(paths[0], "Arrow stream"):
        table = pa.ipc.open_stream(pa.memory_map(os.fspath(paths[0]))).read_all()
    _check_columns(paths[0], table.schema)
    check_rows(paths[0], table.num_rows, manifest.shard(index).num_sequences)
    chunks = table.column("input_ids").chunks
    sizes = [len(chunk) for chunk in chunks]
    return _opened(paths[0], manifest, table, sizes, lambda group: pa.chunked_array([chunks[group]]))


def _opened(
    file: Path,
    manifest: PackedManifest,
    table: pa.Table,
    sizes: Sequence[int],
    read: Callable[[int], pa.ChunkedArray],
) -> PackedShard:
    """A shard of these boundaries; `read` gives the tokens of a group, of which there are `sizes` rows."""
    first_rows, length = np.cumsum([0, *sizes]), manifest.sequence_length

    @lru_cache(maxsize=_HELD_GROUPS)
    def group_tokens(group: int) -> NDArray[Any]:
        firsts, flat = _lists(file, read(group))
        check_within(file, "tokens of sequence", np.diff(firsts), least=length, below=length + 1)
        return flat.reshape(-1, length)

    def tokens(row: int) -> NDArray[Any]:
        group = int(np.searchsorted(first_rows, row, side="right")) - 1
        return np.asarray(group_tokens(group)[row - int(first_rows[group])].astype(manifest.dtype))

    lengths, starts = (_lists(file, table.column(name)) for name in _BOUNDARIES)
    return bounded_shard(file, manifest, tokens, lengths, starts)


def _check_columns(file: Path, schema: pa.Schema) -> None:
    """Reject a file whose columns are missing, duplicate or of other types."""
    for name in ("input_ids", *_BOUNDARIES):
        # by index: a name may be invalid UTF-8
        types = [schema.field(place).type for place in schema.get_all_field_indices(name)]
        wanted = SEQUENCE_SCHEMA.field(name).type
        if len(types) != 1 or not pa.types.is_list(types[0]) or types[0].value_type != wanted.value_type:
            said = ", ".join(map(str, types)) or "missing"
            raise untrue(file, f"column {name} is {said}, and must be {wanted}")


def _lists(file: Path, column: pa.ChunkedArray) -> Lists:
    """The lists of a column, after checking them."""
    with readable(file, "table of sequences"):
        for chunk in column.chunks:
            chunk.validate(full=True)
    if any(chunk.null_count or chunk.flatten().null_count for chunk in column.chunks):
        raise untrue(file, "a list is null, or has a null in it")
    counts = [np.diff(numbers(chunk.offsets)) for chunk in column.chunks]
    values = [numbers(chunk.flatten()) for chunk in column.chunks]
    flat = values[0] if len(values) == 1 else np.concatenate([np.empty(0, dtype=np.int64), *values])
    return np.cumsum([0, *np.concatenate(counts)], dtype=np.int64), flat


def open_jsonl(paths: Sequence[Path], manifest: PackedManifest, index: int) -> PackedShard:
    """Read a shard as a whole."""
    try:
        with paths[0].open("rb") as raw, zstandard.ZstdDecompressor().stream_reader(raw) as stream:
            lines: list[dict[str, Any]] = [orjson.loads(line) for line in stream.read().splitlines() if line]
    except (OSError, ValueError, zstandard.ZstdError) as error:
        raise broken(paths[0], "not readable as JSON lines", error) from error
    check_rows(paths[0], len(lines), manifest.shard(index).num_sequences)
    try:
        tokens, lengths, starts = (
            [np.array(line[name], dtype=dtype).reshape(shape) for line in lines]
            for name, dtype, shape in (
                ("input_ids", manifest.dtype, manifest.sequence_length),
                *((name, "int64", -1) for name in _BOUNDARIES),
            )
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise untrue(paths[0], f"a line is not a packed sequence ({error!r})") from error
    joined = [
        (np.cumsum([0, *map(len, one)], dtype=np.int64), np.concatenate(one)) for one in (lengths, starts)
    ]
    return bounded_shard(paths[0], manifest, tokens.__getitem__, *joined)
