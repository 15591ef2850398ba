"""Checks that published artifacts still match their records.

Sizes are compared before every reuse, digests when a file of token shards or plans is opened. Files that no
record lists are reported, but are not damage.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, Literal, TypeAlias

from tokmill.tasks.core.errors import MachineError, StoreError, TaskError
from tokmill.tasks.core.faults import unreadable
from tokmill.tasks.store import disk
from tokmill.tasks.store.digest import FileEntry, digest_file
from tokmill.tasks.store.layout import PREFIX_CHARS, RECORD_FILE
from tokmill.tasks.store.record import Record, contradictions, read_record
from tokmill.tasks.store.remote import PulledPath
from tokmill.tasks.store.shared import remote_of

Verify: TypeAlias = Literal["sizes", "full"]

_LINK: Final = "is a link or special file, or is reached through a link"


@dataclass(frozen=True)
class Problem:
    """A problem of an artifact: the artifact (`kind/name@v1` or its directory), the file, and a message."""

    artifact: str
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.artifact}: {self.path}: {self.message}"


def examine(directory: Path, verify: Verify) -> Record | Problem:
    """Return the record of the artifact in `directory`, or the first problem that makes it unfit for use."""
    try:
        record = read_record(directory)
    except StoreError as error:
        return _unreadable(directory, error)
    return next(_damages(directory, record, full=verify == "full"), record)


def problems(directory: Path, *, full: bool) -> list[Problem]:
    """Return all problems of the artifact in `directory`, including those that do not prevent its use."""
    try:
        record = read_record(directory)
    except (StoreError, MachineError) as error:
        return [_unreadable(directory, error)]
    try:
        return [*_damages(directory, record, full=full), *_oddities(directory, record)]
    except MachineError as error:
        return [Problem(record.reference, ".", str(error))]


def _unreadable(directory: Path, error: TaskError) -> Problem:
    return Problem(f"{directory.parent.name}/{directory.name}", RECORD_FILE, str(error))


def _damages(directory: Path, record: Record, *, full: bool) -> Iterator[Problem]:
    if not record.fingerprint.startswith(directory.name) or record.kind != directory.parent.name:
        found = f"{record.kind}/{record.fingerprint[:PREFIX_CHARS]}"
        yield Problem(record.reference, RECORD_FILE, f"lies in {directory}, where {found} does not belong")
    for path, message in file_damages(directory, record, full=full):
        yield Problem(record.reference, path, message)


def file_damages(
    directory: Path, record: Record, *, full: bool, names: Sequence[str] | None = None
) -> Iterator[tuple[str, str]]:
    """Yield the path of each file (of these names) that differs from the record, and how.

    `directory` may be anywhere.
    """
    directory = Path(str(directory))  # what is here, without pulling anything
    files = [entry for entry in record.files if names is None or entry.path in names]
    real, folders = os.path.realpath(directory), {entry.path.rpartition("/")[0] for entry in files} - {""}
    linked = {folder for folder in folders if os.path.realpath(directory / folder) != f"{real}/{folder}"}
    may_be_absent = remote_of(directory) is not None  # pulled when it is opened, and compared then
    for entry in files:
        if may_be_absent and not os.path.lexists(directory / entry.path):
            continue
        if entry.path.rpartition("/")[0] in linked:
            yield entry.path, _LINK
        elif message := _file_damage(directory / entry.path, entry, full=full):
            yield entry.path, message


def check_regular(directory: Path, record: Record, names: Sequence[str] | None = None) -> None:
    """Raise StoreError if a file of an artifact (of these names) is a link, or is reached through one."""
    for path, message in file_damages(directory, record, full=False, names=names):
        if message == _LINK:
            raise StoreError(f"{record.reference}: {path} {message}: remove it, and get it again")


_sound: set[tuple[Path, int, int, int]] = set()


def _state(file: Path, found: os.stat_result) -> tuple[Path, int, int, int]:
    return file, found.st_size, found.st_ctime_ns, found.st_ino


def check_files(directory: Path, files: Iterable[Path]) -> None:
    """Compare files of an artifact with its record, before they are read: each state of one once per process.

    Nothing is compared in a directory without a record, or one whose files are compared when they are pulled.
    It costs about a second of CPU time per 1.3 GB.
    """
    record = directory / RECORD_FILE
    if isinstance(directory, PulledPath) or not record.is_file():
        return
    entries = _entries(directory, record.stat().st_mtime_ns)
    for file in files:
        entry = entries.get(file.relative_to(directory).as_posix())
        state = (file, -1, -1, -1)
        with suppress(OSError):  # its damage is reported
            state = _state(file, file.stat())
        if entry is None or state in _sound:
            continue
        if damage := _file_damage(file, entry, full=True):
            raise StoreError(
                f"{file}: the file {damage}; it was changed or damaged: `tokmill store verify` lists such "
                "files, and a run with execution.verify='full' makes them again"
            )
        _sound.add(state)


def note_published(directory: Path, files: Iterable[FileEntry]) -> None:
    """Take the files of an artifact that this process has just digested and published for compared."""
    for entry in files:
        found = (directory / entry.path).stat()
        if found.st_nlink == 1:  # else the digest may be that of a record
            _sound.add(_state(directory / entry.path, found))


@lru_cache(maxsize=64)
def _entries(directory: Path, _changed: int) -> Mapping[str, FileEntry]:
    return {entry.path: entry for entry in read_record(directory).files}


def _file_damage(path: Path, entry: FileEntry, *, full: bool) -> str | None:
    try:
        state = disk.state(path)
        if state.kind != "file":
            return _LINK
        if state.num_bytes != entry.size_bytes:
            return f"has {state.num_bytes} bytes and was published with {entry.size_bytes}"
        digest = digest_file(path) if full else entry.digest
    except (FileNotFoundError, NotADirectoryError):
        return "is missing"
    except OSError as error:
        fault = unreadable(path, error)
        if isinstance(fault, MachineError):  # this proves nothing about the file
            raise fault from error
        return f"cannot be read ({error.strerror})"
    return None if digest == entry.digest else f"has digest {digest} and was published with {entry.digest}"


def _oddities(directory: Path, record: Record) -> Iterator[Problem]:
    for message in contradictions(record):
        yield Problem(record.reference, RECORD_FILE, message)
    for account in record.accounts:
        if not account.balanced:
            message = f"the account of source {account.source!r} in {account.unit} does not add up"
            yield Problem(record.reference, RECORD_FILE, message)
    listed = {entry.path for entry in record.files} | {RECORD_FILE}
    for path in sorted(directory.rglob("*")):
        relative = path.relative_to(directory).as_posix()
        if not path.is_dir() and relative not in listed:
            yield Problem(record.reference, relative, "is not in the record")
