"""Digests of files and of artifacts: BLAKE2b-256, in hexadecimal.

The content digest of an artifact is that of the canonical JSON of [path, size in bytes, file digest] of each
file, sorted by path; of a Parquet file [path, digest of the values], since each version of pyarrow and DuckDB
writes other bytes (docs/adr/0029). Law: two digests of values are equal if and only if the files have the
same columns (name, type) with the same values in the same order; a float is its bits.
"""

import hashlib
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.faults import refuse_irregular, unreadable
from tokmill.tasks.remote.location import Info, Location
from tokmill.tasks.remote.objects import stat, streamed
from tokmill.tasks.store import disk
from tokmill.tasks.store.fingerprint import canonical_json, digest_bytes, new_hash
from tokmill.tasks.store.names import Digest, InsidePath, is_utf8
from tokmill.tokenizer.core.stopping import raise_if_stopped

if TYPE_CHECKING:
    import pyarrow as pa

PARQUET, COMPRESSED = ".parquet", ".zst"
_BLOCK_BYTES = 1 << 20
_BATCH_ROWS = 1 << 16
_FORM = 1
_TICK_NS = 2_000_000_000  # the coarsest clock of the file systems in use (FAT: 2 s)
_LOG = logging.getLogger(__name__)
_WAIT_SECONDS = 30.0
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS files "
    "(path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER, digest TEXT) WITHOUT ROWID;"
    "CREATE TABLE IF NOT EXISTS objects "
    "(url TEXT PRIMARY KEY, size INTEGER, tag TEXT, digest TEXT) WITHOUT ROWID;"
)
ByteCount: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
"""A size that a file can have."""


class FileEntry(BaseModel):
    """One file of an artifact."""

    model_config = ConfigDict(frozen=True)

    path: InsidePath  # its posix path below the artifact's directory
    size_bytes: ByteCount  # its size
    digest: Digest  # of its bytes
    values_digest: Digest | None = None  # of the values that a Parquet file holds; None for any other file

    @property
    def content(self) -> tuple[str | int, ...]:
        """What the content digest of an artifact covers of the file."""
        if self.values_digest is not None:
            return (self.path, self.values_digest)
        return (self.path, self.size_bytes, self.digest)

    @model_serializer(mode="wrap")
    def _without_absent_values(self, standard: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write `values_digest` only where there is one: an artifact may have a hundred thousand files."""
        written: dict[str, Any] = standard(self)
        if self.values_digest is None:
            del written["values_digest"]
        return written


def digest_file(path: Path) -> str:
    """Return the BLAKE2b-256 digest of a file's bytes in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, new_hash).hexdigest()


def digest_folder(folder: Path, digest: Callable[[Path], str] = digest_file) -> str:
    """Return the content digest of all files below `folder`, each digested by `digest`."""
    entries = []
    for file in sorted(file for file in folder.rglob("*") if file.is_file()):
        path = file.relative_to(folder).as_posix()
        if not is_utf8(path):
            raise SourceError(f"the name of {os.fsencode(file)!r} is not UTF-8; rename the file")
        entries.append(FileEntry(path=path, size_bytes=file.stat().st_size, digest=digest(file)))
    return content_digest(entries)


def content_digest(files: Iterable[FileEntry]) -> str:
    """Return the Merkle digest over what an artifact's files hold, given in any order."""
    rows = [entry.content for entry in sorted(files, key=lambda entry: entry.path)]
    return digest_bytes(canonical_json(rows))


def stored_digest(files: Iterable[FileEntry]) -> str:
    """Return the Merkle digest over the bytes of an artifact's files, given in any order."""
    rows = sorted((entry.path, entry.size_bytes, entry.digest) for entry in files)
    return digest_bytes(canonical_json(rows))


def values_digest(path: Path) -> str | None:
    """Return the digest of what a Parquet or a compressed file holds; None if it is not a readable one."""
    if path.suffix == COMPRESSED:
        return _unpacked_digest(path)
    return _table_digest(path) if path.suffix == PARQUET else None


def _unpacked_digest(path: Path) -> str | None:
    """Return the digest of a compressed file's content: how it is compressed depends on zstd's version."""
    import zstandard

    content_hash = new_hash()
    try:
        with disk.opened(path) as file, zstandard.ZstdDecompressor().stream_reader(file) as content:
            while block := content.read(_BLOCK_BYTES):
                raise_if_stopped()
                content_hash.update(block)
    except zstandard.ZstdError:
        return None
    return content_hash.hexdigest()


def _table_digest(path: Path) -> str | None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            columns = [_Column(field) for field in schema]
            for batch in file.iter_batches(_BATCH_ROWS):
                raise_if_stopped()
                for column, values in zip(columns, batch.columns, strict=True):
                    column.add("", values)
            num_rows = file.metadata.num_rows
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None
    digests = [column.digest() for column in columns]
    metadata = {
        key.decode("utf-8", "replace"): digest_bytes(value) for key, value in (schema.metadata or {}).items()
    }
    return digest_bytes(canonical_json([_FORM, num_rows, digests, metadata]))


class _Column:
    """The digests of one column's leaves."""

    def __init__(self, field: "pa.Field") -> None:
        self._name = field.name
        self._type = type_name(field.type)
        self._hashes: dict[str, hashlib.blake2b] = {}
        self._rows: dict[str, int] = {}

    def digest(self) -> list[Any]:
        """Return the column's name and type, and the digest of each leaf."""
        return [self._name, self._type, {leaf: found.hexdigest() for leaf, found in self._hashes.items()}]

    def add(self, leaf: str, values: "pa.Array") -> None:
        """Take in the next rows: the positions of nulls, and then the rest by its type."""
        import pyarrow as pa

        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        before = self._rows.get(leaf, 0)
        self._rows[leaf] = before + len(values)
        if values.null_count:
            nulls = values.is_null().to_numpy(zero_copy_only=False).nonzero()[0] + before
            self._hashes.setdefault(f"{leaf}?", new_hash()).update(nulls.astype("<i8").tobytes())
            values = values.drop_null()
        for part, data in _parts(values):
            if isinstance(data, pa.Array):
                self.add(f"{leaf}.{part}", data)
            else:
                self._hashes.setdefault(f"{leaf}:{part}", new_hash()).update(data)


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


class FileDigests:
    """Digests of files outside of the store, so that a rerun does not read terabytes again.

    They are cached by (path, size, time), on the assumption that every change of a file changes its size or
    time; a file that could change again within the same clock tick is not cached. An object is known by its
    URL, size and tag, and without a tag it is never cached. The cache, `<store>/.cache/digests.sqlite`, may
    be deleted; one that cannot be used is skipped with a warning.

    Args:
        store_root: the store's folder, which holds the cache.
        rehash: read every file again, and cache the result.
    """

    def __init__(self, store_root: Path, rehash: bool = False) -> None:
        self._path = Path(store_root) / ".cache" / "digests.sqlite"
        self._rehash = rehash
        self._lock = threading.Lock()
        self._memory: sqlite3.Connection | None = None
        self._usable = True

    def digest(self, file: Location | Info) -> str:
        """Return the BLAKE2b-256 digest of a file's or an object's bytes in hexadecimal.

        Raises:
            SourceError: it cannot be read, or changes while it is read.
        """
        if isinstance(file, Path):
            return self._of_file(file)
        try:
            return self._of_object(file if isinstance(file, Info) else stat(file.url))
        except OSError as error:
            raise unreadable(file.url, error) from error

    def _of_file(self, path: Path) -> str:
        absolute = Path(path).absolute()
        try:
            before = absolute.stat()
            refuse_irregular(absolute, before)
            key = (os.fsencode(absolute), before.st_size, before.st_mtime_ns)
            known = self._execute("SELECT digest FROM files WHERE path=? AND size=? AND mtime_ns=?", key)
            if known and not self._rehash:
                return known[0][0]
            digest = digest_file(absolute)
            after = absolute.stat()
        except OSError as error:
            raise unreadable(absolute, error) from error
        if key[1:] != (after.st_size, after.st_mtime_ns):
            raise SourceError(f"{absolute} changed while it was read; run again when nothing writes to it")
        if time.time_ns() - after.st_mtime_ns > _TICK_NS:
            self._execute("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", (*key, digest))
        return digest

    def _of_object(self, state: Info) -> str:
        tag = state.tag
        key = (state.url, state.num_bytes, tag)
        if tag and not self._rehash:
            known = self._execute("SELECT digest FROM objects WHERE url=? AND size=? AND tag=?", key)
            if known:
                return known[0][0]
        digest = digest_object(state)
        if tag:
            self._execute("INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?)", (*key, digest))
        return digest

    def _execute(self, statement: str, values: tuple[Any, ...]) -> list[tuple[str]]:
        with self._lock:
            try:
                return self._answer(statement, values) if self._usable else []
            except (sqlite3.OperationalError, OSError) as error:  # locked for long, not writable, no space
                self._usable = False
                advice = "every source file is read for its digest; make room, or get the right to write"
                _LOG.warning("%s cannot be used (%s): %s", self._path, error, advice)
                return []

    def _answer(self, statement: str, values: tuple[Any, ...]) -> list[tuple[str]]:
        try:
            return self._connected().execute(statement, values).fetchall()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            _LOG.warning("%s is damaged (%s); it is only a cache, and a new one is begun", self._path, error)
            if self._memory is not None:
                self._close()
                self._memory = None
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            return self._connected().execute(statement, values).fetchall()

    def _connected(self) -> sqlite3.Connection:
        if self._memory is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            memory = sqlite3.connect(
                self._path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                memory.execute("PRAGMA journal_mode=WAL")
                memory.execute("PRAGMA synchronous=OFF")  # losing a cache in a power cut is no loss
                memory.executescript(_SCHEMA)
            except BaseException:
                memory.close()
                raise
            self._memory = memory
            self._close = weakref.finalize(self, memory.close)
        return self._memory


def digest_object(state: Info) -> str:
    """Return the BLAKE2b-256 digest of an object's bytes in hexadecimal."""
    digest = new_hash()
    with streamed(state) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()
