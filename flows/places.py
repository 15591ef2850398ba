"""The machine that a run or a command works on: store, workers, how closely artifacts are checked.

Where a thing is said in several places the nearest wins: an option, then the environment, then the profile's
`[execution]`, then the default. None of it enters a fingerprint.
"""

import os
from dataclasses import dataclass
from typing import Self

from flows.profile import Execution
from tasks.store import Store, Verify

DEFAULT_STORE = "tokmill-store"


@dataclass(frozen=True)
class Machine:
    """Where and how a run works.

    Attributes:
        store: URL or folder of the artifacts.
        workers: tasks at a time.
        verify: what is checked of an artifact before it is used again: its files' sizes, or digests too.
        rehash: whether source files are read for their digest although size and time are as before.
    """

    store: str
    workers: int
    verify: Verify
    rehash: bool

    @classmethod
    def of(
        cls,
        profile: Execution,
        *,
        store: str | None = None,
        workers: int | None = None,
        verify: Verify | None = None,
        rehash: bool = False,
    ) -> Self:
        """Resolve options against the environment and a profile's `[execution]`."""
        return cls(
            store_url(store, profile),
            workers or profile.workers or os.cpu_count() or 1,
            verify or profile.verify,
            rehash or profile.rehash,
        )

    def open_store(self) -> Store:
        """Open the store, making its folder if need be."""
        return Store.open(self.store)


def store_url(option: str | None, profile: Execution | None = None) -> str:
    """Return the store that an option, `TOKMILL_STORE`, a profile or the default names, in that order."""
    named = profile.store if profile else None
    return option or os.environ.get("TOKMILL_STORE") or named or DEFAULT_STORE
