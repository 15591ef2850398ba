"""Digests of files and of artifacts: BLAKE2b-256, in hexadecimal.

An artifact's covers path, size and digest of each file; of a Parquet file, path and the digest of its values:
equal if and only if the columns (name, type) and their values are, in order; a float is its bits (ADR 29).
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
    "CREATE TABLE IF NOT EXISTS digests "
    "(place PRIMARY KEY, size INTEGER, stamp TEXT, digest TEXT) WITHOUT ROWID"
)
_FIND = "SELECT digest FROM digests WHERE place=? AND size=? AND stamp=?"
_KEEP = "INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?)"
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
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # not Parquet; or of a type that has no digest
        return None
    digests = [column.digest() for column in columns]
    metadata = {
        key.decode("utf-8", "replace"): digest_bytes(value) for key, value in (schema.metadata or {}).items()
    }
    return digest_bytes(canonical_json([_FORM, num_rows, digests, metadata]))


class _Column:
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
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return memoryview(b"")
    bounds = memoryview(offsets).cast("q")
    return memoryview(data)[bounds[values.offset] : bounds[values.offset + len(values)]]


def type_name(kind: "pa.DataType") -> str:
    """Return a type's name, which is the same in each version of pyarrow; large types are as the others."""
    from pyarrow import ArrowNotImplementedError, types

    def is_a(*names: str) -> bool:
        return any(getattr(types, f"is_{name}")(kind) for name in names)

    if is_a("dictionary"):
        return type_name(kind.value_type)
    if is_a("list", "large_list", "fixed_size_list"):
        return f"list<{type_name(kind.value_type)}>"
    if is_a("struct"):
        fields = (kind.field(k) for k in range(kind.num_fields))
        return f"struct<{', '.join(f'{field.name}: {type_name(field.type)}' for field in fields)}>"
    if is_a("string", "large_string"):
        return "string"
    if is_a("binary", "large_binary"):
        return "binary"
    if is_a("primitive", "decimal", "fixed_size_binary"):
        return str(kind)
    raise ArrowNotImplementedError(f"no digest is defined for values of type {kind}")


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
            return self._of_file(file.absolute())
        try:
            return self._of_object(file if isinstance(file, Info) else stat(file.url))
        except OSError as error:
            raise unreadable(file.url, error) from error

    def _of_file(self, path: Path) -> str:
        try:
            before = path.stat()
            refuse_irregular(path, before)
            key = (os.fsencode(path), before.st_size, str(before.st_mtime_ns))
            if (known := self._known(key)) is not None:
                return known
            digest = digest_file(path)
            after = path.stat()
        except OSError as error:
            raise unreadable(path, error) from error
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise SourceError(f"{path} changed while it was read; run again when nothing writes to it")
        if time.time_ns() - after.st_mtime_ns > _TICK_NS:
            self._execute(_KEEP, (*key, digest))
        return digest

    def _of_object(self, state: Info) -> str:
        key = (state.url, state.num_bytes, state.tag)
        if state.tag and (known := self._known(key)) is not None:
            return known
        digest = digest_object(state)
        if state.tag:
            self._execute(_KEEP, (*key, digest))
        return digest

    def _known(self, key: tuple[Any, ...]) -> str | None:
        rows = [] if self._rehash else self._execute(_FIND, key)
        return rows[0][0] if rows else None

    def _execute(self, statement: str, values: tuple[Any, ...]) -> list[tuple[str]]:
        with self._lock:
            while self._usable:
                try:
                    return self._connected().execute(statement, values).fetchall()
                except (sqlite3.OperationalError, OSError) as error:
                    self._usable = False  # locked for long, not writable, or no space
                    advice = "every source file is read for its digest; make room, or get the right to write"
                    _LOG.warning("%s cannot be used (%s): %s", self._path, error, advice)
                except sqlite3.DatabaseError as error:
                    _LOG.warning("%s, a cache, is damaged (%s); a new one is begun", self._path, error)
                    if self._memory is not None:
                        self._close()
                        self._memory = None
                    for path in self._path.parent.glob(f"{self._path.name}*"):
                        path.unlink(missing_ok=True)
        return []

    def _connected(self) -> sqlite3.Connection:
        if self._memory is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            memory = sqlite3.connect(
                self._path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False
            )
            try:
                memory.execute("PRAGMA journal_mode=WAL")
                memory.execute("PRAGMA synchronous=OFF")  # losing a cache in a power cut is no loss
                memory.execute(_SCHEMA)
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
