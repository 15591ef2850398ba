"""Patterns of files: paths and URLs with globs, and how components of a path match them.

A pattern is a path, or a URL below a bucket, with `*`, `?`, `[…]` and `**` (any number of folders); `[*]` is
a literal `*`. A path may begin with `~`, with a placeholder (`{stdlib}`, `{samples}`), be absolute, or be
relative to a base folder. A name with brackets that exists is that name. Unless `hidden` is set, `*` does not
match a leading dot, as in a shell, nor what programs keep beside data (`Matcher.num_aside`). Web servers list
nothing, so their URLs are taken as they are.
"""

import os
import re
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import translate
from functools import cache
from itertools import islice, takewhile
from pathlib import Path, PurePath
from typing import NamedTuple, TypeAlias

from tokmill import tasks
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.faults import unreadable
from tokmill.tasks.formats.text.sources import compression_of, inner_suffix, is_of_table, nearest
from tokmill.tasks.formats.text.table_logs import is_log, num_above_log, tables_above, tables_of_partition
from tokmill.tasks.remote.location import (
    Info,
    Location,
    RemoteFile,
    check_url,
    is_remote,
    is_url,
    local_path,
    stands_alone,
)
from tokmill.tasks.remote.objects import listed, stat

WEB = ("http://", "https://")
_BUCKET_PARTS = 3  # "s3:", "" and "bucket"
# Folders inside the standard library's folder that are not part of it.
_NOT_STDLIB = ("site-packages", "dist-packages", "__pycache__")
_PLACEHOLDER = re.compile(r"^\{([A-Za-z_]+)\}(?=/|$)")
_MAGIC = re.compile(r"[*?\[]")
_BRACKETS_ALONE = re.compile(r"[^*?]*\[[^*?]*")
# Folders of Spark's unfinished and internal files, and the ends of the names of other such files.
_SERVICE_FOLDERS = ("_temporary", "_spark_metadata", "_change_data")
_UNFINISHED = (".bak", "~", ".part", ".partial", ".incomplete", ".crdownload", "._copying_", ".tmp", ".crc")
# How `glob.escape` escapes a character.
_ESCAPED = re.compile(r"\[([*?\[])\]")


@dataclass(frozen=True)
class Pattern:
    """An absolute pattern."""

    text: str  # the pattern as written in the profile
    folder: str  # the part without wildcards, a path or a URL
    parts: tuple[str, ...]  # the components below `folder`, with wildcards; empty where `folder` is a file
    pruned: tuple[str, ...] = ()  # names of folders that are never entered; of the standard library alone

    @property
    def parent(self) -> str:
        """The folder that the pattern looks into."""
        return self.folder if self.parts else self.folder.rpartition("/")[0] or "/"

    @property
    def is_of_web(self) -> bool:
        """Whether it is a URL of a web server."""
        return self.folder.lower().startswith(WEB)


def parse(text: str, base: Path) -> Pattern:
    """Make a pattern absolute; relative patterns start from the folder `base`."""
    if not text.strip():
        msg = "an empty pattern names no file; write a path or a glob such as data/**/*.txt"
        raise SourceError(msg)
    if is_remote(text):
        return _parse_url(text)
    text = str(local_path(text)) if is_url(text) else text
    placeholder = _PLACEHOLDER.match(text)
    path = Path(os.path.normpath(_filled(text, placeholder) if placeholder else _home(text, base)))
    folder, parts = _literal_part(path, Path(os.path.normpath(base.absolute())))
    return Pattern(
        text, str(folder), parts, _NOT_STDLIB if placeholder and placeholder[1] == "stdlib" else ()
    )


def _parse_url(text: str) -> Pattern:
    check_url(text)
    if text.lower().startswith(WEB):
        if "?" in text:
            msg = f"{text.partition('?')[0]!r} is followed by a query, which may hold a secret; name a file"
            raise SourceError(f"{msg} without")
        return Pattern(text, text, ())
    scheme, _, rest = text.partition("://")
    bucket, *path = rest.split("/")
    if not bucket or not any(path):
        example = f"{scheme}://{bucket or 'bucket'}/web/**/*.jsonl"
        raise SourceError(f"{text!r} names no object; write e.g. {example}")
    if not num_without_wildcards([bucket]):
        raise SourceError(f"{text!r} has a wildcard in the name of the bucket; name each bucket by itself")
    num_plain = num_without_wildcards(path)
    folder = "/".join([f"{scheme}://{bucket}", *map(_unescaped, path[:num_plain])])
    return Pattern(text, folder, tuple(path[num_plain:]))


def _literal_part(path: Path, base: Path) -> tuple[Path, tuple[str, ...]]:
    """Divide a pattern into the part without wildcards and the rest; what exists has none, nor the base."""
    if os.path.lexists(path):
        return path, ()
    num_shared = len(Path(os.path.commonpath((path, base))).parts)
    folder, parts = Path(*path.parts[:num_shared]), path.parts[num_shared:]
    for index, part in enumerate(parts):
        if _BRACKETS_ALONE.fullmatch(part) and os.path.lexists(folder / part):
            folder /= part
        elif num_without_wildcards([part]):
            folder /= _unescaped(part)
        else:
            return folder, parts[index:]
    return folder, ()


def _filled(text: str, placeholder: re.Match[str]) -> Path:
    shipped = Path(next(iter(tasks.__path__))).parent / "profiles" / "samples"
    known = {"stdlib": Path(sysconfig.get_path("stdlib")), "samples": shipped}
    if placeholder[1] not in known:
        close = get_close_matches(placeholder[1], known, n=1)
        listed = ", ".join(f"{{{name}}}" for name in known)
        hint = f"did you mean {{{close[0]}}}?" if close else f"known are {listed}"
        raise SourceError(f"{text!r}: there is no placeholder {{{placeholder[1]}}}; {hint}")
    return known[placeholder[1]] / text[placeholder.end() :].lstrip("/")


def _home(text: str, base: Path) -> Path:
    try:
        return base.absolute() / Path(text).expanduser()
    except RuntimeError as error:
        raise SourceError(f"{text!r}: {error}; write the folder in full") from error


def num_without_wildcards(parts: Sequence[str]) -> int:
    """Return the number of components before the first with a wildcard."""
    wild = (index for index, part in enumerate(parts) if _MAGIC.search(_ESCAPED.sub("", part)))
    return next(wild, len(parts))


def _unescaped(part: str) -> str:
    return _ESCAPED.sub(r"\1", part)


def shared_folder(patterns: Iterable[Pattern]) -> str:
    """Return the deepest folder, a path or a URL, that all patterns look into."""
    parents = sorted({pattern.parent for pattern in patterns}, key=lambda folder: folder.split("/"))
    pairs = zip(parents[0].rstrip("/").split("/"), parents[-1].rstrip("/").split("/"), strict=False)
    shared = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    least, word = (_BUCKET_PARTS, "bucket") if is_remote(parents[0]) else (2, "folder")
    if len(shared) < least and len(parents) > 1:
        shown = f"{parents[0]} and {parents[-1]}"
        raise SourceError(f"its files lie in {shown}, which share no {word}; make each a source of its own")
    return "/".join(shared) or "/"


class Matcher:
    """Matches a path component by component; a state is the set of pattern components that may be next.

    Args:
        parts: the components of a pattern.
        hidden: whether wildcards match a leading dot.
    """

    def __init__(self, parts: tuple[str, ...], *, hidden: bool = False) -> None:
        self._recursive = [part == "**" for part in parts]
        self._hidden = [hidden or part.startswith(".") for part in parts]
        self._matches = [re.compile(translate(part)).match for part in parts]
        self._end = len(parts)
        self.takes_all = hidden
        named = (part for part in parts if part.startswith("_") or part.endswith(_UNFINISHED))
        self._named = [re.compile(translate(part)).match for part in named]

    def num_aside(self, names: Sequence[str]) -> int:
        """Return how many components lead to what programs keep beside data; 0 for data.

        These are backups and unfinished files; what is in folders such as Spark's `_temporary`; and tables,
        plain text and files without a suffix whose names, or those of folders above, begin with `_`. In other
        formats `_` is an ordinary letter, as in `__init__.py` and `_posts/a.md`. What the pattern names
        is data.

        Args:
            names: the components of a file's path below the pattern's folder.
        """
        if self.takes_all or any(match(name) for match in self._named for name in names):
            return 0
        low = [n for n, name in enumerate(names, start=1) if name.startswith("_") and "=" not in name]
        if service := [number for number in low if names[number - 1] in _SERVICE_FOLDERS]:
            return service[0]
        if names[-1].lower().endswith(_UNFINISHED):
            return len(names)
        return low[0] if low and (is_of_table(names[-1]) or inner_suffix(names[-1]) in ("", ".txt")) else 0

    def step(self, state: set[int], name: str) -> set[int]:
        """Return the state after the next component of a path."""
        return self._open({index for at in self._open(state) for index in self._after(at, name)})

    def accepts(self, state: set[int]) -> bool:
        """Whether the whole pattern has been matched."""
        return self._end in state

    def goes_on(self, state: set[int]) -> bool:
        """Whether a further component could be matched."""
        return any(index < self._end for index in state)

    def is_deep(self, state: set[int]) -> bool:
        """Whether any number of further components could be matched."""
        return any(index < self._end and self._recursive[index] for index in state)

    def lies_in(self, names: Sequence[str]) -> bool:
        """Whether the pattern matches a path, or a folder above it."""
        state = {0}
        for name in names:
            if self.accepts(state):
                return True
            state = self.step(state, name)
        return self.accepts(state)

    def _open(self, state: set[int]) -> set[int]:
        opened = set(state)
        for index in range(self._end):
            if index in opened and self._recursive[index]:
                opened.add(index + 1)
        return opened

    def _after(self, at: int, name: str) -> Iterator[int]:
        if at == self._end or (name.startswith(".") and not self._hidden[at]):
            return
        if self._recursive[at]:
            yield at
        elif self._matches[at](name):
            yield at + 1


def excluder(patterns: Sequence[str], base: Path, root: str) -> Callable[[str], bool]:
    """Return a function that decides whether a path or a URL is excluded, or a folder above it.

    A pattern without a slash is compared with every name below `root`; the others with whole paths, as
    `parse` reads them.
    """
    whole = [text for text in patterns if "/" in text.rstrip("/") or _PLACEHOLDER.match(text)]
    for text in whole if is_remote(root) else ():
        if not is_remote(text):
            raise SourceError(
                f"exclude: {text!r} is a path of this machine, but the files are in {root}; write a URL such "
                f"as {root}/drafts/*, or a name without a slash"
            )
    names = [text.rstrip("/") for text in patterns if text not in whole]
    matches = [re.compile(translate(name)).match for name in names]
    matchers = [
        (pattern.folder, f"{pattern.folder.rstrip('/')}/", Matcher(pattern.parts))
        for pattern in (parse(text, base) for text in whole)
    ]

    def excluded(place: str) -> bool:
        inside = place.removeprefix(root).lstrip("/").split("/")
        return any(part in names or any(match(part) for match in matches) for part in inside) or any(
            matcher.lies_in(place[len(start) :].split("/") if place != folder else ())
            for folder, start, matcher in matchers
            if place == folder or place.startswith(start)
        )

    return excluded


_SHOWN = 3
_LOOKED_AT = 1000
_LISTED = 100
# What some clients of Hadoop call the object that marks a folder.
_MARKER = "_$folder$"

File: TypeAlias = Path | Info


@dataclass
class Skipped:
    """The files and folders that wildcards did not match because of their names or type; and tables.

    Attributes:
        hidden_files: files whose names begin with a dot, or that are kept beside data.
        hidden_folders: folders whose names begin with a dot; their content is not examined.
        others: names of FIFOs, sockets and devices.
        tables: folders with a log that says which of their files count.
    """

    hidden_files: list[Location] = field(default_factory=list)
    hidden_folders: list[Location] = field(default_factory=list)
    others: list[Location] = field(default_factory=list)
    tables: list[Location] = field(default_factory=list)


class _Entry(NamedTuple):
    """A file or a folder below a listed one, with the components of its path from there."""

    names: tuple[str, ...]
    is_folder: bool
    itself: os.DirEntry[str] | Info


class _Folders:
    """The folders of this machine below a pattern's."""

    def __init__(self, pattern: Pattern) -> None:
        self._root, self._pruned = Path(pattern.folder), pattern.pruned

    def entries(self, folder: str, *, deep: bool) -> Iterator[_Entry]:
        try:
            with os.scandir(folder) as scanned:
                found = sorted(scanned, key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        except OSError as error:
            raise unreadable(folder, error) from error
        for entry in found:
            is_folder = entry.is_dir()
            if not self._pruned or not (entry.name in self._pruned if is_folder else _is_second_name(entry)):
                yield _Entry((entry.name,), is_folder, entry)

    def place(self, names: tuple[str, ...]) -> Path:
        return self._root.joinpath(*names)

    def num_above_log(self, names: tuple[str, ...], *, is_folder: bool) -> int | None:
        return len(names) - 1 if is_folder and is_log(self.place(names)) else None


def _is_second_name(entry: os.DirEntry[str]) -> bool:
    """Whether it is a link to a file beside it, as Debian has one in the standard library."""
    return entry.is_symlink() and (
        Path(os.path.realpath(entry.path)).parent == Path(os.path.realpath(Path(entry.path).parent))
    )


class _Keys:
    """The keys of a bucket below a pattern's folder; objects of 0 bytes last, because they may be markers."""

    def __init__(self, pattern: Pattern) -> None:
        self._root = pattern.folder

    def entries(self, folder: str, *, deep: bool) -> Iterator[_Entry]:
        folders: set[tuple[str, ...]] = set()
        empty: list[_Entry] = []
        for info in listed(folder, recursive=deep):
            names = tuple(info.url[len(folder) + 1 :].split("/"))
            above = names if info.is_folder else names[:-1]
            while above and above not in folders:
                folders.add(above)
                above = above[:-1]
            if names[-1]:
                entry = _Entry(names, info.is_folder, info)
                if info.is_folder or info.num_bytes:
                    yield entry
                else:
                    empty.append(entry)
        yield from (one for one in empty if one.names not in folders and not one.names[-1].endswith(_MARKER))

    def place(self, names: tuple[str, ...]) -> RemoteFile:
        return RemoteFile("/".join([self._root, *names]))

    def num_above_log(self, names: tuple[str, ...], *, is_folder: bool) -> int | None:
        return num_above_log(names)


class _Walk:
    """A walk through the folders or keys below a pattern's folder."""

    def __init__(self, pattern: Pattern, tree: _Folders | _Keys, skipped: Skipped, *, hidden: bool) -> None:
        self._tree, self._skipped = tree, skipped
        self._matcher = Matcher(pattern.parts, hidden=hidden)
        self._any_name = Matcher(pattern.parts, hidden=True)  # wildcards also match a leading dot

    def files(
        self, folder: str, state: set[int], inside: tuple[str, ...] = (), above: tuple[str, ...] = ()
    ) -> Iterator[File]:
        real = folder if is_remote(folder) else os.path.realpath(folder)
        if real in above:
            return
        entered = cache(lambda names: self._entered(state, inside, names))
        for entry in self._tree.entries(folder, deep=self._matcher.is_deep(state)):
            names = (*inside, *entry.names)
            if self._is_of_log(names, is_folder=entry.is_folder):
                continue
            inner = entered(entry.names if entry.is_folder else entry.names[:-1])
            if entry.is_folder and inner:
                place = entry.itself.url if isinstance(entry.itself, Info) else entry.itself.path
                yield from self.files(place, inner, names, (*above, real))
            elif inner and self._selects(inner, names):
                yield from self._file(entry.itself)

    def _entered(self, state: set[int], inside: tuple[str, ...], names: tuple[str, ...]) -> set[int]:
        """Return the state in a folder below; empty if nothing there can match."""
        for number, name in enumerate(names, start=1):
            after = self._matcher.step(state, name)
            if not self._matcher.goes_on(after):
                if name.startswith(".") and self._any_name.goes_on(self._any_name.step(state, name)):
                    _note(self._skipped.hidden_folders, self._tree.place((*inside, *names[:number])))
                return set()
            state = after
        return state

    def _is_of_log(self, names: tuple[str, ...], *, is_folder: bool) -> bool:
        """Whether a folder or a key is the log of a table or in it; the table is noted."""
        if self._matcher.takes_all:
            return False
        number = self._tree.num_above_log(names, is_folder=is_folder)
        if number is not None:
            _note(self._skipped.tables, self._tree.place(names[:number]))
        return number is not None

    def _selects(self, state: set[int], names: tuple[str, ...]) -> bool:
        """Whether a file matches; one that is kept beside data, or hidden, is noted."""
        name = names[-1]
        if self._matcher.accepts(self._matcher.step(state, name)):
            if number := self._matcher.num_aside(names):
                is_file = number == len(names)
                notes = self._skipped.hidden_files if is_file else self._skipped.hidden_folders
                notes.append(self._tree.place(names[:number]))
            return not number
        if name.startswith(".") and self._any_name.accepts(self._any_name.step(state, name)):
            self._skipped.hidden_files.append(self._tree.place(names))
        return False

    def _file(self, entry: os.DirEntry[str] | Info) -> Iterator[File]:
        if isinstance(entry, Info):
            yield entry
        elif entry.is_file() or not Path(entry.path).exists():
            yield Path(entry.path)
        else:
            self._skipped.others.append(Path(entry.path))


def _note(notes: list[Location], place: Location) -> None:
    if place not in notes:
        notes.append(place)


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
        tree = _Keys(pattern) if in_bucket else _Folders(pattern)
        if not hidden:
            skipped.tables += tables_of_partition(folder) if in_bucket else tables_above(Path(folder))
        yield from _Walk(pattern, tree, skipped, hidden=hidden).files(folder, {0})
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
