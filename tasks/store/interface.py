"""The file operations that a store is made of, as one interface on absolute paths.

Whoever implements it keeps these promises:

- `create` fails if the name is taken, also when two processes try at once; version labels depend on it.
- `replace` and `create` return when the data is durable, and a reader sees the old bytes or the new ones.
- `publish` makes a whole artifact appear at once, or not at all.
- `lock` gives a lock that ends with the process that holds it.
- `opened` follows no link and opens regular files only.
"""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from io import BufferedReader
from pathlib import Path
from typing import Literal, NamedTuple, Protocol, TypeAlias

FileKind: TypeAlias = Literal["file", "folder", "other"]
"""A regular file, a folder, or anything else: a link, a FIFO, a device."""


class FileState(NamedTuple):
    """The kind, size and time of a name; links are not followed.

    Attributes:
        identity: equal for the names that hard links gave one file; None where no name shares a file.
    """

    kind: FileKind
    num_bytes: int
    mtime_ns: int
    identity: tuple[int, int] | None = None


class DamagedError(OSError):
    """A file of an artifact is missing in the store, or is not what was published."""


class Entry(Protocol):
    """A name in a folder."""

    @property
    def name(self) -> str:
        """The last part of the path."""
        ...

    @property
    def path(self) -> str:
        """The whole path."""
        ...

    def is_dir(self) -> bool:
        """Whether it is a folder, or a link to one."""
        ...

    def is_symlink(self) -> bool:
        """Whether it is a link."""
        ...


class Lock(Protocol):
    """An exclusive lock between processes; it ends with the process that holds it."""

    def try_acquire(self) -> bool:
        """Take the lock if it is free; return whether it was."""
        ...

    def acquire(self) -> None:
        """Wait for the lock, however long that takes."""
        ...

    def release(self) -> None:
        """Let the lock go."""
        ...

    def owner(self) -> str:
        """Return who holds the lock, in words."""
        ...


class Storage(Protocol):
    """File operations of a store on absolute paths; each raises OSError if the system refuses it."""

    def state(self, path: Path | str) -> FileState:
        """Return the state of a name; raises FileNotFoundError if there is none."""
        ...

    def is_taken(self, path: Path) -> bool:
        """Whether anything has this name, even a link that leads nowhere."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether there is a file or folder of this name."""
        ...

    def is_file(self, path: Path) -> bool:
        """Whether there is a file of this name."""
        ...

    def is_folder(self, path: Path) -> bool:
        """Whether there is a folder of this name."""
        ...

    def entries(self, folder: Path | str) -> list[Entry]:
        """Return what is in a folder, in no particular order; nothing if it is missing or may not be read."""
        ...

    def tree(self, folder: Path) -> Iterator[Path]:
        """Yield all files and folders below a folder, in no particular order, without following links."""
        ...

    def resolved(self, path: Path) -> str:
        """Return the path with every link followed."""
        ...

    def opened(self, path: Path) -> AbstractContextManager[BufferedReader]:
        """Open a regular file to read it; raises OSError for a link, a folder or a special file."""
        ...

    def read(self, path: Path, most_bytes: int) -> bytes:
        """Return the bytes of a regular file; raises as `opened`, and if it has more than `most_bytes`."""
        ...

    def digest(self, path: Path) -> str:
        """Return the BLAKE2b-256 digest of a regular file; raises as `opened`."""
        ...

    def create(self, path: Path, data: bytes) -> None:
        """Write a file durably, and its folder if need be; raises FileExistsError if the name is taken."""
        ...

    def replace(self, path: Path, data: bytes) -> None:
        """Write a file durably; a reader, or a crash, finds either the old bytes or the new ones."""
        ...

    def leave(self, path: Path, data: bytes) -> None:
        """Write a file that need not survive a crash; a reader finds either the old bytes or the new ones."""
        ...

    def stamps(self, folder: Path) -> dict[str, Hashable]:
        """Return the names in a folder, each with what is another one once it was written anew."""
        ...

    def touch(self, path: Path) -> None:
        """Set the modification time of a file to now."""
        ...

    def make_folder(self, path: Path) -> None:
        """Make a folder and its parents if they do not exist."""
        ...

    def sync(self, path: Path) -> None:
        """Flush a file's bytes, or a folder's entries, to the disk."""
        ...

    def publish(self, folder: Path, place: Path) -> bool:
        """Move an artifact's folder to its place in one durable step: all of it appears there, or nothing.

        Returns:
            Whether it is the one that is published; False if another machine published its own first.
        """
        ...

    def move(self, source: Path, target: Path) -> None:
        """Move a file or folder within the store, in one step."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file if it exists."""
        ...

    def remove_tree(self, folder: Path) -> None:
        """Remove a folder with all that is in it, as far as possible; never raises."""
        ...

    def lock(self, path: Path) -> Lock:
        """Return a lock of this name, not yet taken."""
        ...

    def free_bytes(self, path: Path) -> int:
        """Return the free bytes on the file system of a path."""
        ...

    def fetch(self, place: Path, names: Sequence[str] | None = None) -> None:
        """Make the files of a published artifact local, and keep them so until `let_go`.

        Args:
            place: the artifact's folder.
            names: the files that must be local; by default all.

        Raises:
            DamagedError: a file is missing or differs from the record.
        """
        ...

    def arriving(self, place: Path) -> Path:
        """Return an artifact's folder as a path whose files are made local when they are opened."""
        ...

    def fetch_file(self, path: Path) -> None:
        """Make one file of a published artifact local, as `fetch` does with all."""
        ...

    def let_go(self, place: Path) -> None:
        """Say that this process no longer uses an artifact that it fetched."""
        ...

    def prefetch(self, paths: Sequence[Path]) -> None:
        """Fetch records, labels and runs that are about to be read, many at a time; only a hint."""
        ...

    def refresh(self, root: Path) -> None:
        """See what other machines have written to the store by now."""
        ...

    def pull(self, path: Path) -> None:
        """Take over a copy that `push` left in the store, if there is no such file; never raises."""
        ...

    def push(self, path: Path) -> None:
        """Leave a copy of a local file (the catalog's snapshot) in the store, for other machines."""
        ...
