"""The folder that a `tokmill up` serves or a `tokmill deploy` registers, and its store.

The deployment and the work pool are named after both. So two folders at one Prefect server have separate
schedules, and a worker never takes the runs of another folder. A folder that is moved, or served with
another store, gets a new deployment and a new work pool.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_DIGITS = 6


@dataclass(frozen=True)
class ServedFolder:
    """A folder with profiles, and the store for its artifacts.

    Attributes:
        folder: the working folder of the runs; relative paths of profiles start here. Absolute.
        store: folder of the artifacts, unless a run names another (absolute), or its URL.
        pool: a work pool that others look after; None for the folder's own.
    """

    folder: Path
    store: Path | str
    pool: str | None = None

    @classmethod
    def of(cls, folder: Path, store: Path | str, pool: str | None = None) -> "ServedFolder":
        """Resolve symbolic links, so that every path to a folder gives the same name."""
        return cls(folder.resolve(), store.resolve() if isinstance(store, Path) else store, pool)

    @cached_property
    def name(self) -> str:
        """The deployment's name: the folder's, and digits that tell folders of the same name apart."""
        word = re.sub(r"[^a-z0-9]+", "-", self.folder.name.lower()).strip("-") or "folder"
        both = f"{self.folder}\0{self.store}".encode("utf-8", "surrogateescape")
        return f"{word}-{hashlib.blake2b(both).hexdigest()[:_DIGITS]}"

    @property
    def work_pool(self) -> str:
        """The work pool's name."""
        return self.pool or f"tokmill-{self.name}"
