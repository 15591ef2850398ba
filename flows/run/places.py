"""The machine that a run or a command works on: store, workers, memory, how closely artifacts are checked.

Where a thing is said in several places the nearest wins: an option, then the environment, then the profile's
`[execution]`, then the default. None of it enters a fingerprint.
"""

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from tokmill.flows.errors import UsageError
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.machine import quarter_of_the_ram
from tokmill.tasks.store import Store, Verify
from tokmill.tasks.store.layout import DEFAULT_STORE

if TYPE_CHECKING:
    from tokmill.flows.profile import (
        Execution,  # brings numpy and all stages along, and `tokmill ls` is to be quick
    )

RunnerName: TypeAlias = Literal["threads"]
"""A key of `flows.run.runners.RUNNERS`."""


@dataclass(frozen=True)
class Machine:
    """Where and how a run works.

    Attributes:
        store: URL or folder of the artifacts.
        workers: tasks at a time.
        memory_bytes: what all of them together may take of memory for what grows with their input.
        verify: what is checked of an artifact before it is used again: its files' sizes, or digests too.
        rehash: whether source files are read for their digest although size and time are as before.
        runner: where tasks are executed.
    """

    store: str
    workers: int
    memory_bytes: int
    verify: Verify
    rehash: bool
    runner: RunnerName = "threads"

    @classmethod
    def of(
        cls,
        profile: "Execution",
        *,
        store: str | None = None,
        workers: int | None = None,
        memory: str | None = None,
        verify: Verify | None = None,
        rehash: bool = False,
    ) -> Self:
        """Resolve options against the environment and a profile's `[execution]`.

        Raises:
            UsageError: `memory`, or TOKMILL_MEMORY, is no size.
        """
        said = memory or os.environ.get("TOKMILL_MEMORY") or profile.memory
        return cls(
            store_url(store, profile),
            workers or profile.workers or os.cpu_count() or 1,
            num_bytes(said) if said else quarter_of_the_ram(),
            verify or profile.verify,
            rehash or profile.rehash,
        )

    def open_store(self) -> Store:
        """Open the store, making its folder if need be."""
        return Store.open(self.store)


def open_store(location: str) -> Store:
    """Open a store, which need not be there yet.

    Raises:
        UsageError: a URL of a kind that is not supported, or a file.
    """
    try:
        return Store.open(location)
    except StoreError as error:
        raise UsageError(str(error)) from error


def writable_store(location: str) -> Store:
    """Open a store to put artifacts in, and make its folder if need be.

    Raises:
        UsageError: as `open_store`, or the folder cannot be made or written to.
    """
    store = open_store(location)
    try:
        store.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(_not_writable(location, f"cannot be made ({error.strerror})")) from error
    if not os.access(store.root, os.W_OK | os.X_OK):
        raise UsageError(_not_writable(location, "cannot be written to"))
    return store


def _not_writable(location: str, problem: str) -> str:
    return f"store {location} {problem}; name another with --store or TOKMILL_STORE"


def num_bytes(size: str) -> int:
    """Return how many bytes a size such as `4GB` or `512MiB` is.

    Raises:
        UsageError: it is no size.
    """
    from tokmill.flows.profile import SIZE  # noqa: PLC0415 - as above

    found = re.fullmatch(SIZE, size)
    if found is None:
        raise UsageError(f"memory={size!r} must be a number and a unit from KB to TiB; use e.g. 4GB")
    number, unit = found.groups()
    return int(float(number) * (1024 if "i" in unit else 1000) ** (1 + "KMGT".index(unit[0])))


def store_url(option: str | None, profile: "Execution | None" = None) -> str:
    """Return the store that an option, `TOKMILL_STORE`, a profile or the default names, in that order."""
    named = profile.store if profile else None
    return option or os.environ.get("TOKMILL_STORE") or named or DEFAULT_STORE
