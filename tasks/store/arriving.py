"""Paths in an artifact on object storage whose files arrive when they are opened.

A stage gets the folders of its inputs before their files are local. Whatever opens, maps or measures a file
asks the path for its name in the file system first (`os.fspath`), and that fetches it: the stage fetches
what it opens and nothing else, and knows nothing of it. Who asks for the name of a folder may list it, so
that fetches all that is in it.

Laws. What arrives was compared with the record. A file that the record does not list does not arrive. To ask
whether a file is there fetches nothing. `str(path)` is a name to show, and fetches nothing either. The cache
may take away what arrived while it is used (`tasks.store.uses`): what is mapped stays readable, and what is
opened again arrives again. So a stage that reads its inputs one after the other needs room for a few of them.
"""

import os
from collections.abc import Iterable
from pathlib import Path, PosixPath
from typing import NamedTuple

from tokmill.tasks.store.interface import DamagedError


class ArrivingPath(PosixPath):
    """A path below an artifact's folder in a mirror; see the module. Paths made from it are such paths."""

    def __fspath__(self) -> str:
        from tokmill.tasks.store.mirrored import mirrored_at

        name = str(self)
        storage = mirrored_at(name)
        if storage is not None:
            storage.arrive(name)
        return name

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is such a file or folder."""
        return self._lists() or os.path.lexists(str(self))

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is such a file."""
        return self._lists() or os.path.isfile(str(self))  # noqa: PTH113 - a path would fetch it

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        """Whether there is such a folder."""
        return not self._lists() and os.path.isdir(str(self))  # noqa: PTH112 - a path would fetch it

    def _lists(self) -> bool:
        from tokmill.tasks.store.mirrored import mirrored_at

        storage = mirrored_at(str(self))
        return storage is not None and storage.lists(str(self))


class Damage(NamedTuple):
    """What was found damaged when it arrived: the artifact's folder, and the error with a path inside it."""

    place: Path
    found: DamagedError


def damage_below(error: BaseException, places: Iterable[Path]) -> Damage | None:
    """Return the damage to an artifact in one of `places` that led to an error, if that is what did."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, DamagedError):
        cause = cause.__cause__
    if cause is None:
        return None
    for place in places:
        inside = str(cause.filename).removeprefix(f"{place}/")
        if inside != cause.filename:
            return Damage(place, DamagedError(cause.errno, cause.strerror, inside))
    return None
