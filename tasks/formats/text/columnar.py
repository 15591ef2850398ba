"""Parquet and Arrow (IPC file, Feather, IPC stream): one document per row, without a copy if possible.

Rows are numbered from 0 through all row groups or record batches. Checksums of Parquet's pages are verified
where a file has them; an IPC stream must have its end marker, and nothing after it. The text column may hold
strings or bytes of any Arrow type, including dictionaries. Ids are converted to text. A missing column or a
wrong type stops the run even if `on_error` is "quarantine"; a null text makes its row a bad document.
"""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.faults import is_of_machine, refuse_irregular, unreadable
from tokmill.tasks.formats.text.content import DETECTED, Span, blocks, codec_of
from tokmill.tasks.formats.text.documents import BATCH_BYTES, ArrowArray, FileBatch
from tokmill.tasks.formats.text.quarantine import BadDocument, BrokenFileError
from tokmill.tasks.formats.text.sources import ReadOptions, check_column
from tokmill.tasks.remote.location import Location, RemoteFile

_SPOOL_BYTES = 64 << 20
_MAX_ROWS = 1 << 16
# Arrow's files are read message by message, with a short read before each.
_ARROW_BYTES = 1 << 20
# Of a row group, for a sample of its rows.
_MOST_BATCHES = 8
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
# Validating an array as bytes skips the check for UTF-8, which is made later per document.
_AS_BYTES = {"string": pa.binary(), "large_string": pa.large_binary(), "string_view": pa.binary_view()}
_TEXTS = ("null", "binary", "large_binary", "binary_view", *_AS_BYTES)


def read_parquet(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the documents of the span's rows."""
    with _source(path, span.codec) as source:
        file = pq.ParquetFile(source, page_checksum_verification=True)
        sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        if sum(sizes) != file.metadata.num_rows:  # a footer has no checksum; Arrow reads as many as it says
            raise _broken(f"its row groups have {sum(sizes):,} rows, and the file {file.metadata.num_rows:,}")
        _check(path.name, file.schema_arrow, options)
        row = 0
        for group, num_rows in enumerate(sizes):
            if row + num_rows > span.first_row and not span.is_past(row):
                yield from _file_batches(_row_group(file, group, options), row, span, options)
            row += num_rows


def read_arrow(path: Location, span: Span, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the documents of the span's rows, of an IPC file (Feather) or an IPC stream."""
    with _source(path, span.codec, _ARROW_BYTES) as source:
        schema, batches = _ipc(source)
        _check(path.name, schema, options)
        yield from _file_batches(batches, 0, span, options)


def sampled(path: Location, kind: str, num_rows: int) -> tuple[list[str], list[dict[str, object]]]:
    """Return the columns of a file of the format `parquet` or `arrow`, and some of its rows.

    They are from the first, middle and last row group, or from the first record batches. Texts are str, or
    bytes if they are not UTF-8; lists and objects are Python's; other values are None.
    """
    with _source(path, at_least=_ARROW_BYTES) as source:
        if kind == "parquet":
            file = pq.ParquetFile(source, buffer_size=_ARROW_BYTES, pre_buffer=False)
            names, number = file.schema_arrow.names, file.num_row_groups
            groups = sorted({0, number // 2, number - 1}) if number else []
            parts = [islice(_row_group(file, group), _MOST_BATCHES) for group in groups]
        else:
            schema, batches = _ipc(source)
            names, parts = schema.names, [islice(batches, _MOST_BATCHES)]
        each = max(1, num_rows // max(1, len(parts)))
        rows: list[dict[str, object]] = []
        for part in parts:
            rows += islice((row for batch in part for row in _python_rows(batch.slice(0, each))), each)
        return names, rows


def _python_rows(batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
    columns = [_python_values(column) for column in batch.columns]
    return (dict(zip(batch.schema.names, row, strict=True)) for row in zip(*columns, strict=True))


def _python_values(column: ArrowArray) -> list[object]:
    values: list[object] = [None] * len(column)
    if _is_text(column.type):
        values = _as_large_binary(_sound(column)).to_pylist()
    elif pa.types.is_nested(column.type):
        with suppress(ValueError, pa.ArrowException):  # times beyond Python's, text that is not UTF-8
            values = column.to_pylist()
    for place, value in enumerate(values):
        with suppress(UnicodeDecodeError):
            values[place] = value.decode("utf-8") if isinstance(value, bytes) else value
    return values


def read_columns(path: Location, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of a small Parquet file, with those of the columns that it has."""
    with _source(path) as source:
        rows: list[dict[str, Any]] = pq.ParquetFile(source).read(list(columns), use_threads=False).to_pylist()
        return rows


def largest_row_group(path: Location) -> int:
    """Return the decompressed size of the largest row group of a Parquet file without outer compression."""
    with _source(path, None) as source:
        metadata = pq.ParquetFile(source).metadata
        groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
        return max((group.total_byte_size for group in groups), default=0)


def _broken(detail: str) -> BrokenFileError:
    return BrokenFileError("broken_file", detail)


@contextmanager
def _source(path: Location, codec: str | None = DETECTED, at_least: int = 0) -> Iterator[pa.NativeFile]:
    """Open a file for seeking (a compressed one as a temporary file), and classify its errors."""
    try:
        codec = codec_of(path) if codec == DETECTED else codec
        with _native(path, codec, at_least) as file:
            if not file.size():
                raise _broken("the file is empty")
            yield file
    except pa.ArrowCancelled:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:  # Parquet raises any for a damaged file
        first_line = str(error).split("\n", 1)[0]
        if not is_of_machine(error):
            raise _broken(first_line) from error
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable(path, error) from error
        raise MemoryError(first_line) from error


@contextmanager
def _native(path: Location, codec: str | None, at_least: int) -> Iterator[pa.NativeFile]:
    """Open a file; a failure to fetch a part of an object stays what it is, whatever Arrow makes of it."""
    if codec is not None:
        with tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES) as spool:
            spool.writelines(blocks(path, Span(codec=codec)))
            spool.seek(0)
            with pa.PythonFile(spool, mode="r") as file:
                yield file
    elif isinstance(path, RemoteFile):
        from tokmill.tasks.remote.objects import RandomReader

        reader = RandomReader(path.url, at_least)
        try:
            with pa.PythonFile(reader, mode="r") as file:
                yield file
        except (pa.ArrowException, OSError) as error:
            if reader.failure is not None:
                raise reader.failure from error
            raise
    else:
        refuse_irregular(path)
        with pa.OSFile(str(path)) as file:
            yield file


def _ipc(source: pa.NativeFile) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    # Buffers one after the other: of several threads that decompress, Arrow does not wait for the others once
    # one lacks memory, and they crash (26.0.1).
    options = pa.ipc.IpcReadOptions(use_threads=False)
    try:
        reader = pa.ipc.open_file(source, options=options)
    except pa.ArrowInvalid:
        source.seek(0)
        stream = pa.ipc.open_stream(source, options=options)
        return stream.schema, _to_the_end(stream, source)
    return reader.schema, (reader.get_batch(index) for index in range(reader.num_record_batches))


def _to_the_end(stream: Iterator[pa.RecordBatch], source: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    """Yield a stream's batches. Arrow itself does not miss an end marker, and ignores what follows one."""
    yield from stream
    end = source.tell()
    source.seek(max(0, end - len(_END_OF_STREAM)))
    if source.read(len(_END_OF_STREAM)) != _END_OF_STREAM:
        raise _broken("the stream has no end marker, so it may have been cut off")
    if end < source.size():
        raise _broken(f"{source.size() - end:,} bytes follow the stream's end marker")


def _row_group(
    file: pq.ParquetFile, group: int, options: ReadOptions | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield a row group in batches, with the columns that the options name; without options, all."""
    metadata = file.metadata.row_group(group)
    average = max(1, metadata.total_byte_size // max(1, metadata.num_rows))
    rows = min(_MAX_ROWS, max(1, BATCH_BYTES // average))
    columns = None if options is None else [name for name in (options.text_column, options.id_column) if name]
    num_rows = 0
    for batch in file.iter_batches(batch_size=rows, row_groups=[group], columns=columns, use_threads=False):
        num_rows += batch.num_rows
        yield batch
    if num_rows != metadata.num_rows:
        raise _broken(f"row group {group} has {num_rows:,} rows instead of {metadata.num_rows:,}")


def _check(name: str, schema: pa.Schema, options: ReadOptions) -> None:
    for option, column in (("text_column", options.text_column), ("id_column", options.id_column)):
        check_column(name, column, schema.names, option)
    kind = schema.field(options.text_column).type
    if not _is_text(kind):
        texts = ", ".join(field.name for field in schema if _is_text(field.type)) or "there is none"
        raise SourceError(
            f"{name}: column {options.text_column!r} holds {kind}, not text; set text_column to one that "
            f"holds strings ({texts})"
        )


def _is_text(kind: pa.DataType) -> bool:
    return str(kind.value_type if pa.types.is_dictionary(kind) else kind) in _TEXTS


def _file_batches(
    batches: Iterable[pa.RecordBatch], row: int, span: Span, options: ReadOptions
) -> Iterator[FileBatch]:
    """Yield the documents of batches, of which the first begins with `row`, as far as the span reaches."""
    for batch in batches:
        if row + batch.num_rows > span.first_row:
            ids = None if options.id_column is None else _as_ids(_column(batch, options.id_column))
            yield _file_batch(_sound(_column(batch, options.text_column)), ids, row)
        row += batch.num_rows
        if span.is_past(row):
            return


def _column(batch: pa.RecordBatch, name: str) -> ArrowArray:
    """Return a column; a name with a dot may match a nested field as well, which is an error."""
    index = batch.schema.get_field_index(name)
    if index < 0:
        raise SourceError(f"{name!r} names several columns or parts of them; rename the column in the file")
    return batch.column(index)


def _sound(column: ArrowArray) -> ArrowArray:
    """Return a column of text as bytes, after checking its offsets and indices, but not yet UTF-8."""
    column.validate()
    if pa.types.is_dictionary(column.type):
        values = _sound(column.dictionary)
        column = pa.DictionaryArray.from_arrays(column.indices, values, safe=True)
    elif str(column.type) in _AS_BYTES:
        column = column.cast(_AS_BYTES[str(column.type)])
    column.validate(full=True)
    return column


def _file_batch(column: ArrowArray, ids: ArrowArray | None, row: int) -> FileBatch:
    present = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)
    missing = (np.flatnonzero(~present) + row).tolist()
    texts = _as_large_binary(column).drop_null()
    _, offset_buffer, data_buffer = texts.buffers()
    stop = texts.offset + len(texts) + 1
    offsets = np.frombuffer(offset_buffer or b"\0" * 8, dtype=np.int64)[texts.offset : stop]
    return FileBatch(
        data=np.frombuffer(data_buffer or b"", dtype=np.uint8)[offsets[0] : offsets[-1]],
        offsets=offsets - offsets[0],
        rows=np.flatnonzero(present) + row,
        ids=None if ids is None else ids.filter(pa.array(present)),
        bad=tuple(BadDocument(number, "null_text", "", "the text is null") for number in missing),
    )


def _as_large_binary(texts: ArrowArray) -> ArrowArray:
    plain = texts.dictionary_decode() if pa.types.is_dictionary(texts.type) else texts
    return plain.cast(pa.large_binary())


def _as_ids(column: ArrowArray) -> ArrowArray:
    """Return ids as text: formatted by Arrow, or by Python for lists, structs and bytes that are not text.

    As in JSON lines, an id may be of any type.
    """
    column = _sound(column)
    try:
        return column.cast(pa.large_string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # the type has no cast; bytes are not UTF-8
        written = [None if value is None else str(value) for value in column.to_pylist()]
        return pa.array(written, pa.large_string())
