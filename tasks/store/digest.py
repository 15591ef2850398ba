"""Digests: BLAKE2b-256, in hexadecimal (64 characters), of bytes, of files and of whole artifacts.

The content digest of an artifact is a two-level Merkle digest: the digest of the canonical JSON of the list
of [relative posix path, size in bytes, file digest], sorted by path. `record.json`, which holds time and
place, is left out, so the digest depends only on the names and contents of the files. Of a Parquet file it
covers [path, digest of the values] (`tasks.store.values`), since other versions of the library that wrote it
give other bytes. The stored digest is the same over the files' bytes alone.
"""

import hashlib
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.remote.services import Info
from tokmill.tasks.store.canonical import canonical_json
from tokmill.tasks.store.names import Digest, InsidePath

DIGEST_BYTES = 32
_BLOCK_BYTES = 1 << 20

ByteCount: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
"""A size that a file can have."""


class FileEntry(BaseModel):
    """One file of an artifact.

    Attributes:
        path: its posix path below the artifact's directory.
        size_bytes: its size.
        digest: of its bytes.
        values_digest: of the values that a Parquet file holds; None for any other file.
    """

    model_config = ConfigDict(frozen=True)

    path: InsidePath
    size_bytes: ByteCount
    digest: Digest
    values_digest: Digest | None = None

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


def is_utf8(path: Path) -> bool:
    """Whether a path can be written in UTF-8."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def digest_bytes(data: bytes) -> str:
    """Return the BLAKE2b-256 digest of `data` in hexadecimal."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def digest_file(path: Path) -> str:
    """Return the BLAKE2b-256 digest of a file's bytes in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, new_hash).hexdigest()


def digest_object(state: Info) -> str:
    """Return the BLAKE2b-256 digest of an object's bytes in hexadecimal."""
    from tokmill.tasks.remote.streaming import stream_of

    digest = new_hash()
    with stream_of(state) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def digest_folder(folder: Path, digest: Callable[[Path], str] = digest_file) -> str:
    """Return the content digest of all files below `folder`, each digested by `digest`."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    for file in files:
        if not is_utf8(file):
            raise SourceError(f"the name of {os.fsencode(file)!r} is not UTF-8; rename the file")
    return content_digest(
        FileEntry(
            path=file.relative_to(folder).as_posix(), size_bytes=file.stat().st_size, digest=digest(file)
        )
        for file in files
    )


def content_digest(files: Iterable[FileEntry]) -> str:
    """Return the Merkle digest over what an artifact's files hold, given in any order."""
    rows = [entry.content for entry in sorted(files, key=lambda entry: entry.path)]
    return digest_bytes(canonical_json(rows))


def stored_digest(files: Iterable[FileEntry]) -> str:
    """Return the Merkle digest over the bytes of an artifact's files, given in any order.

    Artifacts of equal content have the same one, except if Parquet files of theirs were written by libraries
    of different versions.
    """
    rows = sorted((entry.path, entry.size_bytes, entry.digest) for entry in files)
    return digest_bytes(canonical_json(rows))


def new_hash() -> "hashlib.blake2b":
    """Return an empty BLAKE2b-256 hash."""
    return hashlib.blake2b(digest_size=DIGEST_BYTES)
