"""An artifact's files on their way between a mirror and object storage.

send     every file, unless a large one is there; then the record, which the service takes only if there
         is none: that is the publication
bring    missing files under a temporary name, compared with the record, then renamed
"""

import errno
import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ValidationError

from tokmill.tasks import remote
from tokmill.tasks.remote import ChangedError
from tokmill.tasks.store.digest import FileEntry, digest_file, new_hash, stored_digest
from tokmill.tasks.store.interface import DamagedError
from tokmill.tasks.store.keys import CONTENT_CHARS

FILES_AT_ONCE = 8
LARGE_BYTES = 4 << 20
"""From this size on, asking whether a file is there costs little beside sending it."""
_DIGEST_BYTES = 8 << 20


class _Files(BaseModel):
    """The part of a record that says where its files are."""

    files: list[FileEntry]


@dataclass(frozen=True)
class Held:
    """What a record says about files: the digest of their bytes, by which objects are named, and each."""

    content: str
    files: Sequence[FileEntry]

    @classmethod
    def of(cls, record: bytes) -> Self:
        """Read a record's bytes; raises DamagedError if they are none."""
        try:
            files = _Files.model_validate_json(record).files
        except ValidationError as error:
            raise DamagedError(errno.EINVAL, "the record is damaged") from error
        return cls(stored_digest(files)[:CONTENT_CHARS], files)

    @cached_property
    def by_path(self) -> Mapping[str, FileEntry]:
        """The files by their paths."""
        return {entry.path: entry for entry in self.files}

    def entry(self, path: str) -> FileEntry:
        """Return what is recorded of one file; raises FileNotFoundError if nothing is."""
        if (entry := self.by_path.get(path)) is not None:
            return entry
        raise FileNotFoundError(errno.ENOENT, "is not a file of the artifact", path)


def send(folder: Path, names: Iterable[str], url: str) -> None:
    """Upload the files of a folder to a URL that is of their content, several at a time.

    Large files that are there already, from an attempt that was cut, are not sent again: an object appears
    when all of it has arrived, so that one of the same size under the name of the content is the file.
    """
    with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
        list(threads.map(lambda name: _send_one(folder / name, remote.joined(url, name)), names))


def _send_one(file: Path, url: str) -> None:
    num_bytes = file.stat().st_size
    if num_bytes >= LARGE_BYTES:
        with suppress(FileNotFoundError):
            if remote.stat(url).num_bytes == num_bytes:
                return
    remote.upload(file, url)


def missing(folder: Path, entries: Iterable[FileEntry]) -> list[FileEntry]:
    """Return the files that are not local; what is local was compared with the record when it came."""
    return [entry for entry in entries if not _is_there(folder / entry.path, entry.size_bytes)]


def bring(folder: Path, entries: Iterable[FileEntry], url: str) -> None:
    """Download files of an artifact, several at a time.

    Raises:
        DamagedError: a file is missing at the URL, or is not what was published.
    """
    with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
        list(threads.map(lambda entry: _bring_one(folder, entry, remote.joined(url, entry.path)), entries))


def digest_at(url: str) -> str:
    """Return the BLAKE2b-256 digest of an object, which is read range by range."""
    info, sum_of = remote.stat(url), new_hash()
    for start in range(0, info.num_bytes, _DIGEST_BYTES):
        end = min(start + _DIGEST_BYTES, info.num_bytes)
        sum_of.update(remote.read_range(url, start, end, info.etag))
    return sum_of.hexdigest()


def is_same(path: Path, etag: str) -> bool:
    """Whether a small local file is the object with this ETag, as far as an ETag tells: S3's is its MD5."""
    with suppress(OSError):
        return hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest() == etag
    return False


def _is_there(path: Path, num_bytes: int) -> bool:
    try:
        return path.lstat().st_size == num_bytes
    except OSError:
        return False


def _bring_one(folder: Path, entry: FileEntry, url: str) -> None:
    path = folder / entry.path
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{uuid.uuid4().hex}.part")
    try:
        remote.download(url, temporary, entry.size_bytes)
        found = digest_file(temporary)
        if found != entry.digest:
            said = f"has digest {found} and was published with {entry.digest}"
            raise DamagedError(errno.EINVAL, said, entry.path)
        temporary.replace(path)
    except FileNotFoundError as error:
        raise DamagedError(errno.EINVAL, "is missing in the store", entry.path) from error
    except ChangedError as error:
        raise DamagedError(errno.EINVAL, "was replaced in the store, or is too short", entry.path) from error
    finally:
        temporary.unlink(missing_ok=True)
