"""The files that a pattern matches, in folders of this machine and in buckets, in a fixed order.

Links to folders are followed, except into a folder that is being walked already. Wildcards match only regular
files. Buckets have no folders, only keys with slashes, which are listed level by level as far as the pattern
goes, and all keys below a `**` at once; what only marks a folder is not a file. What wildcards skip is noted.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path, PurePath
from typing import TypeAlias

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.faults import unreadable
from tokmill.tasks.formats.text.globs import Names, Pattern, matches, num_aside
from tokmill.tasks.formats.text.sources import compression_of, nearest
from tokmill.tasks.formats.text.table_logs import is_log, num_above_log, tables_above, tables_of_partition
from tokmill.tasks.remote.location import Info, Location, RemoteFile, is_remote, stands_alone
from tokmill.tasks.remote.objects import listed, stat

_SHOWN = 3
_LOOKED_AT = 1000
_LISTED = 100
# What some clients of Hadoop call the object that marks a folder.
_MARKER = "_$folder$"

File: TypeAlias = Path | Info
_Entry: TypeAlias = tuple[Names, bool, "os.DirEntry[str] | Info"]  # components, whether a folder, itself


@dataclass
class Skipped:
    """What wildcards did not match because of names or types; and tables whose log says what counts."""

    hidden_files: list[Location] = field(default_factory=list)  # or kept beside data
    hidden_folders: list[Location] = field(default_factory=list)  # their content is not examined
    others: list[Location] = field(default_factory=list)  # FIFOs, sockets and devices
    tables: list[Location] = field(default_factory=list)


def _in_folder(folder: str, pruned: Names) -> Iterator[_Entry]:
    """Yield the entries of a folder of this machine."""
    try:
        with os.scandir(folder) as scanned:
            found = sorted(scanned, key=lambda entry: entry.name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise unreadable(folder, error) from error
    for entry in found:
        is_folder = entry.is_dir()
        if not pruned or not (entry.name in pruned if is_folder else _is_second_name(entry)):
            yield (entry.name,), is_folder, entry


def _is_second_name(entry: os.DirEntry[str]) -> bool:
    """Whether it is a link to a file beside it, as Debian has one in the standard library."""
    if not entry.is_symlink():
        return False
    real, folder = (Path(os.path.realpath(path)) for path in (entry.path, Path(entry.path).parent))
    return real.parent == folder


def _in_bucket(folder: str, *, deep: bool) -> Iterator[_Entry]:
    """Yield the keys below a folder of a bucket; objects of 0 bytes last, because they may be markers."""
    folders: set[Names] = set()
    empty: list[_Entry] = []
    for info in listed(folder, recursive=deep):
        names = tuple(info.url[len(folder) + 1 :].split("/"))
        above = names if info.is_folder else names[:-1]
        while above and above not in folders:
            folders.add(above)
            above = above[:-1]
        if names[-1] and (info.is_folder or info.num_bytes):
            yield names, info.is_folder, info
        elif names[-1]:
            empty.append((names, False, info))
    yield from (one for one in empty if one[0] not in folders and not one[0][-1].endswith(_MARKER))


class _Walk:
    """A walk through the folders or keys below a pattern's folder."""

    def __init__(self, pattern: Pattern, skipped: Skipped, *, hidden: bool) -> None:
        self._pattern, self._parts = pattern, pattern.parts
        self._skipped, self._hidden = skipped, hidden
        self._is_bucket = is_remote(pattern.folder)
        self._enters = cache(self._is_entered)  # notes a hidden folder once

    def files(self, folder: str, inside: Names = (), above: Names = ()) -> Iterator[File]:
        real = folder if self._is_bucket else os.path.realpath(folder)
        if real in above:
            return
        deep = "**" in self._parts[: len(inside) + 1]
        entries = (
            _in_bucket(folder, deep=deep) if self._is_bucket else _in_folder(folder, self._pattern.pruned)
        )
        for own_names, is_folder, entry in entries:
            names = (*inside, *own_names)
            is_below_log = not self._hidden and self._is_of_log(names, is_folder=is_folder)
            if is_below_log or not self._enters(names if is_folder else names[:-1]):
                continue
            if is_folder:
                place = entry.url if isinstance(entry, Info) else entry.path
                yield from self.files(place, names, (*above, real))
            elif not self._selects(names):
                continue
            elif isinstance(entry, Info):
                yield entry
            elif entry.is_file() or not Path(entry.path).exists():
                yield Path(entry.path)
            else:
                self._skipped.others.append(Path(entry.path))

    def _place(self, names: Names) -> Location:
        place = "/".join([self._pattern.folder.rstrip("/"), *names])
        return RemoteFile(place) if self._is_bucket else Path(place)

    def _is_entered(self, names: Names) -> bool:
        if not names or not self._enters(names[:-1]):
            return not names
        if matches(self._parts, names, hidden=self._hidden, further=True):
            return True
        if names[-1].startswith(".") and matches(self._parts, names, hidden=True, further=True):
            self._skipped.hidden_folders.append(self._place(names))
        return False

    def _is_of_log(self, names: Names, *, is_folder: bool) -> bool:
        """Whether a folder or a key is the log of a table or in it; the table is noted."""
        if self._is_bucket:
            number = num_above_log(names)
        else:
            number = len(names) - 1 if is_folder and is_log(Path(self._pattern.folder, *names)) else None
        table = None if number is None else self._place(names[:number])
        if table is not None and table not in self._skipped.tables:
            self._skipped.tables.append(table)
        return table is not None

    def _selects(self, names: Names) -> bool:
        """Whether a file matches; one that is kept beside data, or hidden, is noted."""
        if not matches(self._parts, names, hidden=self._hidden):
            if names[-1].startswith(".") and matches(self._parts, names, hidden=True):
                self._skipped.hidden_files.append(self._place(names))
            return False
        number = 0 if self._hidden else num_aside(self._parts, names)
        if number:
            is_file = number == len(names)
            notes = self._skipped.hidden_files if is_file else self._skipped.hidden_folders
            notes.append(self._place(names[:number]))
        return not number


def expand(pattern: Pattern, *, hidden: bool = False, skipped: Skipped | None = None) -> Iterator[File]:
    """Yield the files or objects that a pattern matches, each once; a dangling link counts as a file.

    Args:
        pattern: the pattern.
        hidden: whether wildcards match a leading dot, and what programs keep beside data.
        skipped: collects the files that wildcards skipped.
    """
    skipped, folder = Skipped() if skipped is None else skipped, pattern.folder
    in_bucket = is_remote(folder)
    if pattern.parts:
        if not hidden:
            skipped.tables += tables_of_partition(folder) if in_bucket else tables_above(Path(folder))
        yield from _Walk(pattern, skipped, hidden=hidden).files(folder)
    elif in_bucket:
        try:
            yield stat(folder)
        except FileNotFoundError:
            inside = [] if pattern.is_of_web else listed(folder)
            if names := [info.url[len(folder) + 1 :] for info in islice(inside, _LOOKED_AT)]:
                raise _is_folder(pattern.text, names) from None
    elif Path(folder).is_dir():
        files = (path for path in Path(folder).rglob("*") if path.is_file())
        raise _is_folder(pattern.text, (path.relative_to(folder).as_posix() for path in files))
    elif os.path.lexists(folder):
        yield Path(folder)


def _is_folder(text: str, inside: Iterable[str]) -> SourceError:
    """Return the error for a pattern that names a folder, with a pattern for most of the files in it."""
    names = (PurePath(name) for name in islice(inside, _LOOKED_AT) if not re.search(r"(^|/)[._]", name))
    ends = Counter("".join(name.suffixes[-2 if compression_of(name.name) else -1 :]) for name in names)
    end = max(ends, key=lambda one: ends[one], default=".txt")
    return SourceError(f"{text!r} is a folder; name the files in it, e.g. {text.rstrip('/')}/**/*{end}")


def describe_folder(pattern: Pattern, base: Path) -> str:
    """Describe the folder in which a pattern found nothing: similar names first."""
    folder, start = pattern.parent, ""
    if pattern.is_of_web:
        return "the server has no such file"
    if is_remote(folder):
        urls = (info.url for info in islice(listed(folder), _LISTED))
        names = [*filter(None, (url[len(folder) + 1 :].partition("/")[0] for url in urls))]
    else:
        start = "" if stands_alone(pattern.text) else f"; relative paths start from {base.absolute()}"
        if not Path(folder).is_dir():
            return f"there is no folder {folder}{start}"
        names = [path.name + "/" * path.is_dir() for path in Path(folder).iterdir()]
    there = nearest(pattern.text.rpartition("/")[2], sorted(names), limit=_SHOWN + 1)
    shown = ", ".join([*there[:_SHOWN], "…"] if len(there) > _SHOWN else there)
    return f"{folder} holds {shown}{start}" if there else f"{folder} is empty{start}"
