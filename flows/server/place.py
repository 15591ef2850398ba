"""What one `tokmill up` serves: a folder with its profiles, and a store.

Deployment and work pool are named after both, so that two folders at one Prefect server keep their own
schedules, and neither runs what was meant for the other. A folder that is moved, or served with another
store, is another place.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_DIGITS = 6


@dataclass(frozen=True)
class Place:
    """A folder and a store.

    Attributes:
        folder: runs work here; relative paths of profiles start here. Absolute.
        store: folder of the artifacts, unless a run names another. Absolute.
    """

    folder: Path
    store: Path

    @classmethod
    def of(cls, folder: Path, store: Path) -> "Place":
        """The place with links resolved, so that every way there has the same name."""
        return cls(folder.resolve(), store.resolve())

    @cached_property
    def name(self) -> str:
        """The deployment's name: the folder's, and digits that tell apart what is called the same."""
        word = re.sub(r"[^a-z0-9]+", "-", self.folder.name.lower()).strip("-") or "folder"
        both = f"{self.folder}\0{self.store}".encode("utf-8", "surrogateescape")
        return f"{word}-{hashlib.blake2b(both).hexdigest()[:_DIGITS]}"

    @property
    def work_pool(self) -> str:
        """The work pool's name."""
        return f"tokmill-{self.name}"
