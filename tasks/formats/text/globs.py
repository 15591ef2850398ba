"""Find files of this machine by paths and globs, in a fixed order, without following loops of symbolic links.

A pattern is a path with `*`, `?`, `[…]` and `**` (any number of folders). It may begin with `~`, with a
placeholder (`{stdlib}`, `{samples}`), be absolute, or be relative to a base folder. A name with brackets that
exists is that name. Unless `hidden` is set, `*` does not match a leading dot, as in a shell, nor what
programs keep beside data (`Matcher.num_aside`). Wildcards match only regular files (no FIFO, socket or
device). Files skipped for these reasons are counted. Folders are walked in sorted order. Links to folders are
followed, except into a folder that is being walked already.
"""

import os
import re
import sysconfig
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import translate
from itertools import islice
from pathlib import Path, PurePath

from tokmill import tasks
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.core.faults import unreadable
from tokmill.tasks.formats.text.sources import compression_of, inner_suffix, is_of_table, nearest
from tokmill.tasks.formats.text.table_logs import is_log, tables_above
from tokmill.tasks.remote.location import Location, is_url, local_path

_SHOWN = 3
_LOOKED_AT = 1000
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
    """An absolute pattern.

    Attributes:
        text: the pattern as written in the profile.
        folder: the part without wildcards.
        parts: the components below `folder`, with wildcards; empty where `folder` is a file.
        pruned: names of folders that are never entered; of the standard library alone.
    """

    text: str
    folder: Path
    parts: tuple[str, ...]
    pruned: tuple[str, ...] = ()


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

    def note_aside(self, place: Location, *, is_file: bool) -> None:
        """Add a file or folder that is kept beside data."""
        (self.hidden_files if is_file else self.hidden_folders).append(place)


def placeholders() -> dict[str, Path]:
    """Return the placeholders that a pattern may begin with, and their folders."""
    shipped = Path(next(iter(tasks.__path__))).parent / "profiles" / "samples"
    return {"stdlib": Path(sysconfig.get_path("stdlib")), "samples": shipped}


def parse(text: str, base: Path) -> Pattern:
    """Make a pattern absolute; relative patterns start from the folder `base`."""
    if not text.strip():
        msg = "an empty pattern names no file; write a path or a glob such as data/**/*.txt"
        raise SourceError(msg)
    text = str(local_path(text)) if is_url(text) else text
    found = _PLACEHOLDER.match(text)
    path = _filled(text, found) if found else _home(text, base)
    path = Path(os.path.normpath(path))
    pruned = _NOT_STDLIB if found and found[1] == "stdlib" else ()
    folder, parts = _literal_part(path, Path(os.path.normpath(base.absolute())))
    return Pattern(text=text, folder=folder, parts=parts, pruned=pruned)


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
            folder /= unescaped(part)
        else:
            return folder, parts[index:]
    return folder, ()


def _filled(text: str, found: re.Match[str]) -> Path:
    known = placeholders()
    if found[1] not in known:
        close = get_close_matches(found[1], known, n=1)
        hint = (
            f"did you mean {{{close[0]}}}?" if close else f"known are {', '.join(f'{{{k}}}' for k in known)}"
        )
        msg = f"{text!r}: there is no placeholder {{{found[1]}}}; {hint}"
        raise SourceError(msg)
    return known[found[1]] / text[found.end() :].lstrip("/")


def _home(text: str, base: Path) -> Path:
    try:
        return base.absolute() / Path(text).expanduser()
    except RuntimeError as error:
        msg = f"{text!r}: {error}; write the folder in full"
        raise SourceError(msg) from error


def num_without_wildcards(parts: Sequence[str]) -> int:
    """Return the number of components before the first with a wildcard."""
    wild = (index for index, part in enumerate(parts) if _MAGIC.search(_ESCAPED.sub("", part)))
    return next(wild, len(parts))


def unescaped(part: str) -> str:
    """Return a component without wildcards as the name that it stands for."""
    return _ESCAPED.sub(r"\1", part)


def expand(pattern: Pattern, *, hidden: bool = False, skipped: Skipped | None = None) -> Iterator[Path]:
    """Yield the files that a pattern matches, each once; a dangling link counts as a file."""
    if pattern.parts:
        matcher = Matcher(pattern.parts, hidden=hidden)
        skipped = Skipped() if skipped is None else skipped
        skipped.tables += () if hidden else tables_above(pattern.folder)
        walk = _Walk(matcher, Matcher(pattern.parts, hidden=True), pattern.pruned, skipped)
        yield from walk.files(pattern.folder, {0}, (), ())
    elif pattern.folder.is_dir():
        inside = (path for path in pattern.folder.rglob("*") if path.is_file())
        raise is_folder(pattern.text, (path.relative_to(pattern.folder).as_posix() for path in inside))
    elif os.path.lexists(pattern.folder):
        yield pattern.folder


def is_folder(text: str, inside: Iterable[str]) -> SourceError:
    """Return the error for a pattern that names a folder, with a pattern for most of the files in it."""
    names = (PurePath(name) for name in islice(inside, _LOOKED_AT) if not re.search(r"(^|/)[._]", name))
    ends = Counter("".join(name.suffixes[-2 if compression_of(name.name) else -1 :]) for name in names)
    end = max(ends, key=lambda one: ends[one], default=".txt")
    return SourceError(f"{text!r} is a folder; name the files in it, e.g. {text.rstrip('/')}/**/*{end}")


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
        following = {index for at in self._open(state) for index in self._after(at, name)}
        return self._open(following)

    def accepts(self, state: set[int]) -> bool:
        """Whether the whole pattern has been matched."""
        return self._end in state

    def goes_on(self, state: set[int]) -> bool:
        """Whether a further component could be matched."""
        return any(index < self._end for index in state)

    def is_deep(self, state: set[int]) -> bool:
        """Whether any number of further components could be matched."""
        return any(index < self._end and self._recursive[index] for index in state)

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


@dataclass(frozen=True)
class _Walk:
    """A walk through folders.

    Attributes:
        matcher: selects the files.
        any_name: the same, but wildcards also match a leading dot.
        pruned: likewise; where there are any, a link to a file beside it is left out, too.
        skipped: collects files that only `any_name` matches, and irregular files.
    """

    matcher: Matcher
    any_name: Matcher
    pruned: Sequence[str]
    skipped: Skipped

    def files(
        self, folder: Path, state: set[int], above: tuple[str, ...], inside: tuple[str, ...]
    ) -> Iterator[Path]:
        real = os.path.realpath(folder)
        if real in above:
            return
        for entry in _entries(folder):
            after = self.matcher.step(state, entry.name)
            if entry.is_dir():
                if entry.name in self.pruned or self._is_log(entry, folder):
                    continue
                if self.matcher.goes_on(after):
                    yield from self.files(Path(entry.path), after, (*above, real), (*inside, entry.name))
                elif self._is_hidden(entry) and self.any_name.goes_on(self.any_name.step(state, entry.name)):
                    self.skipped.hidden_folders.append(Path(entry.path))
            elif self.matcher.accepts(after):
                if number := self.matcher.num_aside((*inside, entry.name)):
                    places = (Path(entry.path), *Path(entry.path).parents)
                    self.skipped.note_aside(places[len(inside) + 1 - number], is_file=number > len(inside))
                elif not self._is_second_name(entry, real):
                    yield from self._file(entry)
            elif self._is_hidden(entry) and self.any_name.accepts(self.any_name.step(state, entry.name)):
                self.skipped.hidden_files.append(Path(entry.path))

    def _is_log(self, entry: os.DirEntry[str], folder: Path) -> bool:
        """Whether a folder is the log of a table, which is noted; with `hidden`, logs are folders as any."""
        if self.matcher.takes_all or not is_log(Path(entry.path)):
            return False
        self.skipped.tables.append(folder)
        return True

    def _is_hidden(self, entry: os.DirEntry[str]) -> bool:
        return entry.name.startswith(".")

    def _is_second_name(self, entry: os.DirEntry[str], folder: str) -> bool:
        """Whether it is a link to a file beside it, as Debian has one in the standard library."""
        return (
            bool(self.pruned)
            and entry.is_symlink()
            and Path(os.path.realpath(entry.path)).parent == Path(folder)
        )

    def _file(self, entry: os.DirEntry[str]) -> Iterator[Path]:
        if entry.is_file() or not Path(entry.path).exists():
            yield Path(entry.path)
        else:
            self.skipped.others.append(Path(entry.path))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(folder, error) from error


def excluder(patterns: Sequence[str], base: Path, root: Path) -> Callable[[Path], bool]:
    """Return a function that decides whether a path is excluded, by itself or with a folder above it.

    A pattern without a slash is compared with every name below `root`; the others with whole paths, as
    `parse` reads them.
    """
    by_path = [text for text in patterns if "/" in text.rstrip("/") or _PLACEHOLDER.match(text)]
    names = [name_matcher(text) for text in patterns if text not in by_path]
    matchers = [
        (pattern.folder, Matcher(pattern.parts)) for pattern in (parse(text, base) for text in by_path)
    ]

    def excluded(path: Path) -> bool:
        return any(match(part) for match in names for part in path.relative_to(root).parts) or any(
            path.is_relative_to(folder) and lies_in(path.relative_to(folder).parts, matcher)
            for folder, matcher in matchers
        )

    return excluded


def name_matcher(text: str) -> Callable[[str], bool]:
    """Return a function that tells whether a name matches a pattern, or is the pattern, brackets and all."""
    name = text.rstrip("/")
    match = re.compile(translate(name)).match
    return lambda part: part == name or match(part) is not None


def holding(folder: object, text: str, names: Iterable[str]) -> str:
    """Describe what a folder holds for a pattern that matches nothing there: similar names first."""
    there = nearest(text.rpartition("/")[2], sorted(names), limit=_SHOWN + 1)
    shown = ", ".join([*there[:_SHOWN], "…"] if len(there) > _SHOWN else there)
    return f"{folder} holds {shown}" if there else f"{folder} is empty"


def lies_in(parts: Sequence[str], matcher: Matcher) -> bool:
    """Whether a pattern matches a path, or a folder above it; `parts` are the path's components."""
    state = {0}
    for name in parts:
        if matcher.accepts(state):
            return True
        state = matcher.step(state, name)
    return matcher.accepts(state)
