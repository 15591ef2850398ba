"""The digest of what a Parquet file holds: its columns and their values, whatever the bytes are like.

Each version of pyarrow and DuckDB encodes, compresses and signs the same table in its own way, so the bytes
of a Parquet file say which library wrote it. What is made from the file does not depend on that. So the
content digest of an artifact covers this digest in place of those of the file's bytes, and equal tables give
equal artifacts with every version that is allowed (docs/adr/0029).

    column     name, type, and per leaf: where nulls are, lengths of texts and lists, values
    left out   row groups, encodings, compression, statistics, the library's name and version

Of a file that is compressed with zstd (`.zst`) it is over the content, for the same reason.

Law: equal if and only if the files have the same columns with the same values in the same order; a float is
its bits. The digests of leaves run over all rows, so that the division into row groups has no effect.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.tasks.store import disk
from tokmill.tasks.store.digest import canonical_json, digest_bytes, new_hash
from tokmill.tokenizer.core.stopping import raise_if_stopped

if TYPE_CHECKING:
    import hashlib

    import pyarrow as pa

SUFFIX, COMPRESSED = ".parquet", ".zst"
_BLOCK_BYTES = 1 << 20
_BATCH_ROWS = 1 << 16
_FORM = 1


def values_digest(path: Path) -> str | None:
    """Return the digest of what a Parquet or a compressed file holds; None if it is no readable one."""
    if path.suffix == COMPRESSED:
        return _unpacked_digest(path)
    return _table_digest(path)


def _unpacked_digest(path: Path) -> str | None:
    """Return the digest of a compressed file's content: how it is compressed depends on zstd's version."""
    import zstandard

    found = new_hash()
    try:
        with disk.opened(path) as file, zstandard.ZstdDecompressor().stream_reader(file) as content:
            while block := content.read(_BLOCK_BYTES):
                raise_if_stopped()
                found.update(block)
    except zstandard.ZstdError:
        return None
    return found.hexdigest()


def _table_digest(path: Path) -> str | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.suffix != SUFFIX:
        return None
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            columns = [_Column(field) for field in schema]
            for batch in file.iter_batches(_BATCH_ROWS):
                raise_if_stopped()
                for column, values in zip(columns, batch.columns, strict=True):
                    column.add(values)
            num_rows = file.metadata.num_rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    said = [column.digest() for column in columns]
    return digest_bytes(canonical_json([_FORM, num_rows, said, _metadata(schema.metadata)]))


def _metadata(found: Mapping[bytes, bytes] | None) -> dict[str, str]:
    return {key.decode("utf-8", "replace"): digest_bytes(value) for key, value in (found or {}).items()}


class _Column:
    """The digests of one column's leaves."""

    def __init__(self, field: "pa.Field") -> None:
        self._name = field.name
        self._type = type_name(field.type)
        self._hashes: dict[str, hashlib.blake2b] = {}
        self._rows: dict[str, int] = {}

    def add(self, values: "pa.Array") -> None:
        """Take in the next rows."""
        self._feed("", values)

    def digest(self) -> list[Any]:
        """Return the column's name and type, and the digest of each leaf."""
        return [self._name, self._type, {leaf: found.hexdigest() for leaf, found in self._hashes.items()}]

    def _update(self, leaf: str, data: "bytes | memoryview") -> None:
        self._hashes.setdefault(leaf, new_hash()).update(data)

    def _feed(self, leaf: str, values: "pa.Array") -> None:
        """Add the positions of nulls, and then the rest by its type."""
        import pyarrow as pa

        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        before = self._rows.get(leaf, 0)
        self._rows[leaf] = before + len(values)
        if values.null_count:
            nulls = values.is_null().to_numpy(zero_copy_only=False).nonzero()[0] + before
            self._update(f"{leaf}?", nulls.astype("<i8").tobytes())
            values = values.drop_null()
        for part, data in _parts(values):
            if isinstance(data, pa.Array):
                self._feed(f"{leaf}.{part}", data)
            else:
                self._update(f"{leaf}:{part}", data)


def _parts(values: "pa.Array") -> "Iterator[tuple[str, bytes | memoryview | pa.Array]]":
    """Yield what an array without nulls consists of: bytes, and arrays below it."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = values.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        yield "lengths", _bytes(pc.list_value_length(values).cast(pa.int64()))
        yield "items", values.flatten()
    elif pa.types.is_struct(kind):
        yield from ((kind.field(k).name, part) for k, part in enumerate(values.flatten()))
    elif type_name(kind) in {"string", "binary"}:
        plain = values.cast(pa.large_binary())
        yield "lengths", _bytes(pc.binary_length(plain).cast(pa.int64()))
        yield "text", _text(plain)
    elif pa.types.is_boolean(kind):
        yield "values", _bytes(values.cast(pa.uint8()))
    else:
        yield "values", _bytes(values)


def _bytes(values: "pa.Array") -> memoryview:
    """Return the values of a type of fixed width, little-endian, without what surrounds a slice."""
    buffer, width = values.buffers()[1], values.type.bit_width // 8
    if buffer is None:
        return memoryview(b"")
    return memoryview(buffer)[values.offset * width : (values.offset + len(values)) * width]


def _text(values: "pa.Array") -> memoryview:
    """Return the bytes of all texts of a `large_binary` array, one after the other."""
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return memoryview(b"")
    bounds = memoryview(offsets).cast("q")
    return memoryview(data)[bounds[values.offset] : bounds[values.offset + len(values)]]


def type_name(kind: "pa.DataType") -> str:
    """Return a type's name, which is the same in each version of pyarrow; large types are as the others."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return type_name(kind.value_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return f"list<{type_name(kind.value_type)}>"
    if pa.types.is_struct(kind):
        inside = ", ".join(
            f"{kind.field(k).name}: {type_name(kind.field(k).type)}" for k in range(kind.num_fields)
        )
        return f"struct<{inside}>"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "string"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "binary"
    if pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_fixed_size_binary(kind):
        return str(kind)
    raise pa.ArrowNotImplementedError(f"no digest is defined for values of type {kind}")
