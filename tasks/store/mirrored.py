"""Storage on objects behind a URL, with a local folder in front of it: the mirror (`tasks.store.mirrors`).

    written     to the service, and then locally; a call returns when the service has it
    listed      from the service, many names at a time (`tasks.store.listing`)
    read        records, labels, runs: fetched when they are read, kept until the service's differ;
                an artifact's files: fetched when `fetch` or `opened` asks for them, or a path of
                `tasks.store.arriving`, and kept as long as the cache has room (`tasks.store.uses`)
    published   every file, and then the record, which the service takes only if there is none yet
    removed     the record first, and then the files

A file in the mirror is always whole: it appears there by a rename. `tasks.store.keys` says what lies where.
"""

import functools
import os
import shutil
import uuid
from collections.abc import Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from io import BufferedReader
from pathlib import Path

from tokmill.tasks import remote
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.store import keys, transfers
from tokmill.tasks.store.arriving import ArrivingPath
from tokmill.tasks.store.digest import FileEntry
from tokmill.tasks.store.interface import DamagedError, Lock
from tokmill.tasks.store.keys import FILES, LOCKS, RECORD
from tokmill.tasks.store.locks import ProcessLock
from tokmill.tasks.store.mirror_names import MOST_BYTES, MirrorNames
from tokmill.tasks.store.mirrors import root_in, url_of
from tokmill.tasks.store.remote_lock import RemoteLock
from tokmill.tasks.store.transfers import Held
from tokmill.tasks.store.uses import uses_in

_READS_AT_ONCE = 16
_CATALOG_LOCK = ".locks/catalog.lock"


def mirrored_at(path: str) -> "MirroredStorage | None":
    """Return the storage of the mirror that a path leads into, if it leads into one."""
    root = root_in(path)
    return _mirrored(root, os.getpid()) if root and url_of(path) else None


@functools.lru_cache(maxsize=64)
def _mirrored(root: str, process: int) -> "MirroredStorage":
    """One for each process, since a fork must not share locks."""
    return MirroredStorage(Path(root), url_of(root) or "")


class MirroredStorage(MirrorNames):
    """See `tasks.store.interface.Storage`, and the module.

    Args:
        root: the mirror.
        url: of the store.
    """

    def __init__(self, root: Path, url: str) -> None:
        super().__init__(root, url)
        self._uses = uses_in(root.parent)

    def _here(self, path: Path) -> Path:
        """Make a file local."""
        place = self._place(path)
        if place.part == "index":
            return self._current(place.rest)
        if place.part == "files":
            self.fetch_file(path)
        return path

    def opened(self, path: Path) -> AbstractContextManager[BufferedReader]:
        """See `Storage`."""
        return self._local.opened(self._here(path))

    def read(self, path: Path, most_bytes: int) -> bytes:
        """See `Storage`."""
        place = self._place(path)
        if keys.is_told(place.rest):
            return remote.read(self._index_url(place.rest), most_bytes)
        return self._local.read(self._here(path), most_bytes)

    def digest(self, path: Path) -> str:
        """See `Storage`; of an artifact's file, what is in the store, and not what is in the cache."""
        place = self._place(path)
        if place.part != "files":
            return self._local.digest(self._here(path))
        name = self._file_name(place)
        return transfers.digest_at(f"{self._url}/{FILES}/{place.folder.partition('/')[0]}/{name}")

    def create(self, path: Path, data: bytes) -> None:
        """See `Storage`."""
        place = self._place(path)
        if place.part != "index":
            self._local.create(path, data)
            return
        try:
            remote.create(self._index_url(place.rest), data)
        finally:  # if it is taken, it is there as well
            self._index(place.rest).changed(place.rest, there=True)
        self._keep(path, data)

    def replace(self, path: Path, data: bytes) -> None:
        """See `Storage`."""
        place = self._place(path)
        if place.part != "index":
            self._local.replace(path, data)
            return
        remote.write(self._index_url(place.rest), data)
        self._index(place.rest).changed(place.rest, there=True)
        self._keep(path, data)

    def leave(self, path: Path, data: bytes) -> None:
        """See `Storage`."""
        place = self._place(path)
        if keys.is_told(place.rest):
            remote.write(self._index_url(place.rest), data)
        else:
            self._local.leave(path, data)

    def stamps(self, folder: Path) -> dict[str, Hashable]:
        """See `Storage`."""
        place = self._place(folder)
        if not keys.is_told(place.rest):
            return self._local.stamps(folder)
        found = remote.listed(self._index_url(place.rest), recursive=False)
        return {
            info.url.rpartition("/")[2]: (info.etag, info.modified_ns, info.num_bytes)
            for info in found
            if not info.is_folder
        }

    def touch(self, path: Path) -> None:
        """See `Storage`; the object is written again, since services have no other way."""
        place = self._place(path)
        if place.part == "local":
            self._local.touch(path)
        elif not keys.is_artifact(place.rest):  # what was just moved has a new time by that
            self.replace(path, path.read_bytes())

    def make_folder(self, path: Path) -> None:
        """See `Storage`; in the store, folders are only beginnings of names."""
        self._local.make_folder(path)

    def sync(self, path: Path) -> None:
        """See `Storage`; what the service has taken is durable."""
        if self._place(path).part == "local":
            self._local.sync(path)

    def publish(self, folder: Path, place: Path) -> bool:
        """See `Storage`."""
        relative, data = self._relative(place), (folder / RECORD).read_bytes()
        held = Held.of(data)
        names = [entry.path for entry in held.files]
        transfers.send(folder, names, self._files_url(relative, held.content))
        won = True
        try:
            remote.create(self._index_url(f"{relative}/{RECORD}"), data)
        except FileExistsError:
            won = False
            data = remote.read(self._index_url(f"{relative}/{RECORD}"), MOST_BYTES)
        self._listed.changed(f"{relative}/{RECORD}", there=True)
        if not won and Held.of(data).content != held.content:
            remote.remove(f"{self._files_url(relative, held.content)}/{name}" for name in names)
            return False
        self._settle(folder, place, data, held)
        return won

    def _settle(self, folder: Path, place: Path, record: bytes, held: Held) -> None:
        """Move what was published to its place in the mirror."""
        relative = self._relative(place)
        listing = self._listing_of(relative)
        for entry in held.files:
            name = self._file_name_in(relative, held.content, entry.path)
            listing.changed(name, there=True)
        self._uses.make_room(sum(entry.size_bytes for entry in held.files))
        self._discard(place)
        self._keep(folder / RECORD, record)
        place.parent.mkdir(parents=True, exist_ok=True)
        folder.rename(place)

    def _file_name_in(self, relative: str, content: str, path: str) -> str:
        return "/".join([*relative.split("/")[1:], content, path])

    def _discard(self, place: Path) -> None:
        """Remove the local files of what is no longer so in the store; whoever has them open keeps them."""
        if place.exists():
            aside = self._root / ".cache" / f"old-{uuid.uuid4().hex}"
            aside.parent.mkdir(parents=True, exist_ok=True)
            with suppress(OSError):
                place.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)

    def move(self, source: Path, target: Path) -> None:
        """See `Storage`; an artifact may be set aside within the store, or taken out of it."""
        wanted = self._place(target)
        if self._place(source).part == "local":
            self._local.move(source, target)
            return
        relative = self._relative(source)
        if wanted.part == "index":
            self._copy(relative, self._relative(target))
        self._remove_artifact(relative)
        if wanted.part == "local" and source.exists():
            source.rename(target)
        else:
            self._discard(source)

    def _copy(self, source: str, target: str) -> None:
        for name in self._objects(source):
            remote.copy(f"{self._url}/{FILES}/{source}/{name}", f"{self._url}/{FILES}/{target}/{name}")
            self._listing_of(target).changed("/".join([*target.split("/")[1:], name]), there=True)
        record = self._index_url(f"{source}/{RECORD}")
        with suppress(FileNotFoundError):
            remote.copy(record, self._index_url(f"{target}/{RECORD}"))
            self._listed.changed(f"{target}/{RECORD}", there=True)

    def _objects(self, relative: str) -> list[str]:
        """The names of all files of an artifact, of whatever content, below its folder of files."""
        url = f"{self._url}/{FILES}/{relative}"
        return [info.url[len(url) + 1 :] for info in remote.listed(url)]

    def _remove_artifact(self, relative: str) -> None:
        names = self._objects(relative)
        remote.remove([self._index_url(f"{relative}/{RECORD}")])
        self._listed.changed(f"{relative}/{RECORD}", there=False)
        self._held.pop(relative, None)
        remote.remove(f"{self._url}/{FILES}/{relative}/{name}" for name in names)
        for name in names:
            within = "/".join([*relative.split("/")[1:], name])
            self._listing_of(relative).changed(within, there=False)

    def remove(self, path: Path) -> None:
        """See `Storage`."""
        place = self._place(path)
        if place.part == "index":
            remote.remove([self._index_url(place.rest)])
            self._index(place.rest).changed(place.rest, there=False)
        elif place.part == "files":
            name = self._file_name(place)
            remote.remove([f"{self._url}/{FILES}/{place.folder.partition('/')[0]}/{name}"])
            self._listing_of(place.folder).changed(name, there=False)
        self._local.remove(path)

    def remove_tree(self, folder: Path) -> None:
        """See `Storage`."""
        place = self._place(folder)
        if place.part == "index" and keys.is_artifact(place.rest):
            with suppress(OSError, TaskError):
                self._remove_artifact(place.rest)
        elif place.part != "local":
            with suppress(OSError, TaskError):
                for path in list(self.tree(folder)):
                    self.remove(path)
        self._local.remove_tree(folder)

    def lock(self, path: Path) -> Lock:
        """See `Storage`; what several machines may want is locked for all of them."""
        relative = self._relative(path)
        local = ProcessLock(path)
        if not relative.startswith(".locks/") or relative == _CATALOG_LOCK:
            return local
        return RemoteLock(f"{self._url}/{LOCKS}/{path.stem}", local, self._distrust)

    def _distrust(self) -> None:
        """What others have published before a lock was taken must be seen after it."""
        self._listed.distrust()
        for listing in list(self._files.values()):
            listing.distrust()

    def free_bytes(self, path: Path) -> int:
        """See `Storage`; of the mirror, where artifacts are made."""
        return self._local.free_bytes(path)

    def fetch(self, place: Path, names: Sequence[str] | None = None) -> None:
        """See `Storage`."""
        self._uses.begin(place)
        try:
            relative = self._relative(place)
            held = self._record_of(relative)
            wanted = held.files if names is None else [held.entry(name) for name in names]
            self._bring(place, held, transfers.missing(place, wanted))
        except BaseException:
            self._uses.end(place)
            raise

    def arriving(self, place: Path) -> Path:
        """See `Storage`."""
        return ArrivingPath(place)

    def arrive(self, name: str) -> None:
        """Make a file of a published artifact local, or all below a folder in it; nothing else has to arrive.

        Raises:
            DamagedError: a file is missing in the store or differs from the record, as it is known here.
        """
        folder, inside = self._artifact_of(name)
        held = self._known(folder) if folder else None
        if held is None:
            return
        entry = held.by_path.get(inside)
        below = f"{inside}/" if inside else ""
        wanted = [entry] if entry else [each for each in held.files if each.path.startswith(below)]
        if wanted:
            self._uses.keep_a_while(self._root / folder)
            self._arrive(self._root / folder, held, wanted)

    def _arrive(self, folder: Path, held: Held, wanted: Sequence[FileEntry]) -> None:
        try:
            self._bring(folder, held, transfers.missing(folder, wanted))
        except DamagedError as error:  # named by its whole path, which tells the artifact
            raise DamagedError(error.errno, error.strerror, f"{folder}/{error.filename}") from error

    def lists(self, name: str) -> bool:
        """Whether a path is that of a file of a published artifact."""
        folder, inside = self._artifact_of(name)
        held = self._known(folder) if inside else None
        return held is not None and inside in held.by_path

    def _artifact_of(self, name: str) -> tuple[str, str]:
        """The folder of the artifact that a path leads into, and the path below it; empty if it is none."""
        place = self._place(name)
        if place.part == "index" and keys.is_artifact(place.rest):
            return place.rest, ""
        return (place.folder, place.rest) if place.part == "files" else ("", "")

    def _known(self, folder: str) -> Held | None:
        """What the record says of an artifact's files, as it was when it was read last."""
        with suppress(FileNotFoundError):
            return self._held_in(folder, self._root / folder / RECORD)
        with suppress(FileNotFoundError):
            return self._record_of(folder)
        return None

    def fetch_file(self, path: Path) -> None:
        """See `Storage`."""
        place = self._place(path)
        if place.part == "files":
            folder = self._root / place.folder
            held = self._record_of(place.folder)
            self._uses.begin(folder)
            self._bring(folder, held, transfers.missing(folder, [held.entry(place.rest)]))

    def _bring(self, folder: Path, held: Held, entries: Sequence[FileEntry]) -> None:
        """Download files, unless another process of this machine just does."""
        if not entries:
            return
        relative = self._relative(folder)
        lock = ProcessLock(self._root / ".cache" / f"fetching-{relative.replace('/', '-')}.lock")
        lock.acquire()
        try:
            entries = transfers.missing(folder, entries)
            self._uses.make_room(sum(entry.size_bytes for entry in entries))
            transfers.bring(folder, entries, self._files_url(relative, held.content))
        finally:
            lock.release()

    def let_go(self, place: Path) -> None:
        """See `Storage`."""
        if isinstance(place, ArrivingPath):
            self._uses.end_a_while(Path(str(place)))
        else:
            self._uses.end(place)

    def prefetch(self, paths: Sequence[Path]) -> None:
        """See `Storage`."""
        names = [place.rest for place in map(self._place, paths) if place.part == "index" and place.rest]
        with ThreadPoolExecutor(_READS_AT_ONCE) as threads:
            list(threads.map(self._try_current, names))

    def _try_current(self, name: str) -> None:
        with suppress(OSError):  # reported when it is read
            self._current(name)

    def pull(self, path: Path) -> None:
        """See `Storage`."""
        with suppress(OSError):
            if not path.exists():
                url = remote.joined(self._url, self._relative(path))
                temporary = path.with_name(f".{uuid.uuid4().hex}.part")
                try:
                    remote.download(url, temporary, remote.stat(url).num_bytes)
                    temporary.replace(path)
                finally:
                    temporary.unlink(missing_ok=True)

    def push(self, path: Path) -> None:
        """See `Storage`."""
        steady = path.with_name(f".{uuid.uuid4().hex}.part")  # the file may be replaced at any moment
        try:
            os.link(path, steady)
            remote.upload(steady, remote.joined(self._url, self._relative(path)))
        finally:
            steady.unlink(missing_ok=True)
