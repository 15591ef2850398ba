"""A store, in a folder or a bucket, as it is seen without tokmill: records, locks, damage."""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tests.object_server import Bucket

Artifact: TypeAlias = tuple[str, str]
"""Kind and fingerprint."""

_HELD = re.compile(r"FLOCK .*:(\d+) 0 EOF$", re.MULTILINE)
_RECORD = "record.json"


@dataclass(frozen=True)
class SeenStore(ABC):
    """A store.

    Attributes:
        url: as a run is given it.
    """

    url: str

    @abstractmethod
    def _names(self) -> list[str]:
        """The names of all files."""

    @abstractmethod
    def _read(self, name: str) -> bytes: ...

    @abstractmethod
    def _write(self, name: str, content: bytes) -> None: ...

    @abstractmethod
    def _remove(self, name: str) -> None: ...

    @abstractmethod
    def _work_folders(self) -> Iterator[Path]:
        """The folders in which processes of this machine have what they work on."""

    def records(self) -> dict[Artifact, bytes]:
        """Return the record of every artifact: it has the times at which that was made."""
        found = {}
        for name in self._names():
            if name.endswith(f"/{_RECORD}"):
                content = self._read(name)
                record = json.loads(content)
                found[record["kind"], record["fingerprint"]] = content
        return found

    def num_of(self, kind: str) -> int:
        """Return how many artifacts of a kind there are."""
        return sum(f"/{kind}/" in f"/{name}" and name.endswith(f"/{_RECORD}") for name in self._names())

    def digests(self) -> dict[Artifact, str]:
        """Return the digest of every artifact's content."""
        return {key: json.loads(record)["content_digest"] for key, record in self.records().items()}

    def noted(self, run_id: str) -> dict[str, Any]:
        """Return what is noted of a run; nothing if it is not known."""
        for name in self._names():
            if name.endswith(f"/{run_id}.json") and "runs" in name.split("/"):
                found: dict[str, Any] = json.loads(self._read(name))
                return found
        return {}

    def remove(self, artifact: Artifact) -> None:
        """Delete an artifact."""
        for name in self._files_of(artifact):
            self._remove(name)

    def damage(self, artifact: Artifact) -> None:
        """Cut the largest file of an artifact."""
        files = {name: self._read(name) for name in self._files_of(artifact) if not name.endswith(_RECORD)}
        name, content = max(files.items(), key=lambda each: len(each[1]))
        self._write(name, content[: len(content) // 2])

    def _files_of(self, artifact: Artifact) -> list[str]:
        kind, fingerprint = artifact
        return [name for name in self._names() if f"/{kind}/{fingerprint[:16]}/" in f"/{name}"]

    def at_work(self, kind: str = "") -> bool:
        """Whether a process of this machine is making an artifact, or one of a kind.

        The locks are those of the system's table, so that whoever looks never holds one.
        """
        pattern = f".locks/{kind}-*.lock" if kind else ".tmp/*.lock"
        held = {int(inode) for inode in _HELD.findall(Path("/proc/locks").read_text("ascii"))}
        files = [file for folder in self._work_folders() for file in folder.glob(pattern)]
        return not held.isdisjoint(_inodes(files))


def _inodes(files: list[Path]) -> Iterator[int]:
    for file in files:
        with suppress(FileNotFoundError):  # just released
            yield file.stat().st_ino


@dataclass(frozen=True)
class FolderSeen(SeenStore):
    """A store in a folder."""

    @property
    def root(self) -> Path:
        """The folder."""
        return Path(self.url)

    def _names(self) -> list[str]:
        """All but work in progress; what is just being removed is passed over."""
        found = [path for path in self.root.glob("[!.]*/**/*") if path.is_file()]
        return [path.relative_to(self.root).as_posix() for path in found]

    def _read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def _write(self, name: str, content: bytes) -> None:
        (self.root / name).write_bytes(content)

    def _remove(self, name: str) -> None:
        (self.root / name).unlink()

    def _work_folders(self) -> Iterator[Path]:
        yield self.root


@dataclass(frozen=True)
class BucketSeen(SeenStore):
    """A store in a bucket.

    Attributes:
        bucket: which has nothing else.
        caches: the folder with the caches of all machines.
    """

    bucket: Bucket
    caches: Path

    def damage(self, artifact: Artifact) -> None:
        """Cut the record of an artifact; a file of a bucket is compared when it is pulled, and not before."""
        (name,) = (name for name in self._files_of(artifact) if name.endswith(_RECORD))
        content = self._read(name)
        self._write(name, content[: len(content) // 2])

    def _names(self) -> list[str]:
        return self.bucket.keys()

    def _read(self, name: str) -> bytes:
        return self.bucket.get(name)

    def _write(self, name: str, content: bytes) -> None:
        self.bucket.put(name, content)

    def _remove(self, name: str) -> None:
        self.bucket.delete(name)

    def _work_folders(self) -> Iterator[Path]:
        for mark in self.caches.glob("*/tokmill/stores/*/.url"):
            if self.url in mark.read_text("utf-8"):
                yield mark.parent
