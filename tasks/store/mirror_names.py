"""The names in a store on object storage, seen from its mirror: what is there, and how large and new it is.

Names of the index are answered from one listing, those of artifacts' files from one per kind. For leases, the
service is asked each time: whoever removes artifacts and whoever needs them must see each other at once
(`tasks.store.leases`). So it is for what a run and its tasks on other machines tell each other.
"""

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tokmill.tasks import remote
from tokmill.tasks.remote import Info
from tokmill.tasks.store import keys, transfers
from tokmill.tasks.store.interface import Entry, FileState
from tokmill.tasks.store.keys import FILES, INDEX, RECORD, Place
from tokmill.tasks.store.listing import Listing, Names, Unlisted, answering, stamp_of
from tokmill.tasks.store.local import LocalStorage
from tokmill.tasks.store.transfers import Held

MOST_BYTES = 256 << 20
_LEASES = "leases/"


@dataclass(frozen=True)
class _Name:
    """An entry of a folder."""

    name: str
    path: str
    folder: bool

    def is_dir(self) -> bool:
        return self.folder

    def is_symlink(self) -> bool:
        return False


class MirrorNames:
    """The part of `tasks.store.mirrored.MirroredStorage` that asks and changes nothing.

    Args:
        root: the mirror.
        url: of the store.
    """

    def __init__(self, root: Path, url: str) -> None:
        self._root = root
        self._url = url
        self._local = LocalStorage()
        self._listed = Listing(f"{url}/{INDEX}")
        self._asked = Unlisted(f"{url}/{INDEX}")
        self._told = Unlisted(url)
        self._files: dict[str, Listing] = {}
        self._held: dict[str, tuple[int, Held]] = {}

    def _relative(self, path: Path | str) -> str:
        return Path(path).relative_to(self._root).as_posix()

    def _place(self, path: Path | str) -> Place:
        return keys.place_of(self._relative(path))

    def _index_url(self, name: str) -> str:
        return keys.index_url(self._url, name)

    def _index(self, name: str) -> Names:
        """What knows a name of the index."""
        if keys.is_told(name):
            return self._told
        return self._asked if f"{name}/".startswith(_LEASES) else self._listed

    def _listing_of(self, folder: str) -> Listing:
        """The listing of files of artifacts of one kind."""
        kind = folder.partition("/")[0]
        return self._files.setdefault(kind, Listing(f"{self._url}/{FILES}/{kind}"))

    def _file_name(self, place: Place) -> str:
        """The name of an artifact's file in the listing of its kind."""
        content = self._record_of(place.folder).content
        within = "/".join([*place.folder.split("/")[1:], content])
        return f"{within}/{place.rest}" if place.rest else within

    def _files_url(self, folder: str, content: str) -> str:
        return f"{self._url}/{FILES}/{folder}/{content}"

    def _record_of(self, folder: str) -> Held:
        return self._held_in(folder, self._current(f"{folder}/{RECORD}"))

    def _held_in(self, folder: str, path: Path) -> Held:
        """Read a local record, unless it was read before."""
        stamp = path.stat().st_mtime_ns
        known = self._held.get(folder)
        if known is None or known[0] != stamp:
            known = self._held[folder] = (stamp, Held.of(path.read_bytes()))
        return known[1]

    def _current(self, name: str) -> Path:
        """Return the local file of a name in the index, after fetching it if the service has another one."""
        path = self._root / name
        # Who reads a name was told of it, perhaps by a process that wrote it since the listing was made.
        info = self._index(name).find(name) or self._index(name).ask(name)
        if info is None:
            path.unlink(missing_ok=True)
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        with suppress(OSError):
            state = path.lstat()
            if state.st_size == info.num_bytes:
                if state.st_mtime_ns == stamp_of(info):
                    return path
                if transfers.is_same(path, info.etag):
                    os.utime(path, ns=(stamp_of(info), stamp_of(info)))
                    return path
        if info.num_bytes > MOST_BYTES:
            raise OSError(errno.EINVAL, f"has more than {MOST_BYTES} bytes", str(path))
        with answering(self._url):
            data = remote.read(self._index_url(name), MOST_BYTES)
        self._keep(path, data, stamp_of(info))
        return path

    def _keep(self, path: Path, data: bytes, stamp: int | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{uuid.uuid4().hex}.part")
        try:
            temporary.write_bytes(data)
            if stamp is not None:
                os.utime(temporary, ns=(stamp, stamp))
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)

    def refresh(self, root: Path) -> None:
        """See `Storage`."""
        self._listed.refresh()
        for listing in self._files.values():
            listing.refresh()

    def state(self, path: Path | str) -> FileState:
        """See `Storage`."""
        place = self._place(path)
        if place.part == "local":
            return self._local.state(path)
        if self._names(place):
            return FileState("folder", 0, 0)
        info = self._info(place)
        if info is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return FileState("file", info.num_bytes, stamp_of(info))

    def _info(self, place: Place) -> Info | None:
        if place.part == "index":
            return self._index(place.rest).find(place.rest) if place.rest else None
        with suppress(FileNotFoundError):
            return self._listing_of(place.folder).find(self._file_name(place))
        return None

    def _names(self, place: Place) -> dict[str, bool]:
        """The names below a folder; none if it is a file, or nothing."""
        if place.part == "index":
            found = self._index(place.rest).names(place.rest)
            if not keys.is_artifact(place.rest) or not found:
                return found
            with suppress(OSError):
                found |= self._names(Place("files", place.rest, ""))
            return found
        with suppress(FileNotFoundError):
            return self._listing_of(place.folder).names(self._file_name(place))
        return {}

    def is_taken(self, path: Path) -> bool:
        """See `Storage`."""
        return self.exists(path)

    def exists(self, path: Path) -> bool:
        """See `Storage`."""
        place = self._place(path)
        if place.part == "local":
            return self._local.exists(path)
        return self.is_folder(path) or self._info(place) is not None

    def is_file(self, path: Path) -> bool:
        """See `Storage`."""
        place = self._place(path)
        if place.part == "local":
            return self._local.is_file(path)
        return not self._names(place) and self._info(place) is not None

    def is_folder(self, path: Path) -> bool:
        """See `Storage`."""
        place = self._place(path)
        if place.part == "local":
            return self._local.is_folder(path)
        if place.part == "index" and keys.is_artifact(place.rest):
            return self._listed.find(f"{place.rest}/{RECORD}") is not None
        return not place.rest or bool(self._names(place))

    def entries(self, folder: Path | str) -> list[Entry]:
        """See `Storage`."""
        place = self._place(folder)
        if place.part == "local":
            return self._local.entries(folder)
        return [_Name(name, f"{folder}/{name}", deep) for name, deep in self._names(place).items()]

    def tree(self, folder: Path) -> Iterator[Path]:
        """See `Storage`; folders are left out where they are only beginnings of names."""
        place = self._place(folder)
        if place.part == "local":
            yield from self._local.tree(folder)
            return
        if place.part == "index":
            yield from (self._root / name for name in self._index(place.rest).below(place.rest))
        for artifact in self._artifacts_below(place):
            name = self._file_name(artifact)
            start = len(self._file_name(Place("files", artifact.folder, ""))) + 1
            below = self._listing_of(artifact.folder).below(name)
            yield from (self._root / artifact.folder / found[start:] for found in below)

    def _artifacts_below(self, place: Place) -> list[Place]:
        if place.part == "files":
            return [place]
        return [Place("files", place.rest, "")] if keys.is_artifact(place.rest) else []

    def resolved(self, path: Path) -> str:
        """See `Storage`; there are no links but local ones."""
        return self._local.resolved(path)
