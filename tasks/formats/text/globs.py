"""Patterns of files: paths and URLs with globs, and how the components of a path match them.

A pattern is a path, or a URL below a bucket, with `*`, `?`, `[…]` and `**` (any number of folders); `[*]` is
a literal `*`. A path may begin with `~`, with a placeholder (`{stdlib}`, `{samples}`), be absolute, or be
relative to a base folder. A name with brackets that exists is that name. Unless `hidden` is set, `*` does not
match a leading dot, as in a shell, nor what programs keep beside data (`num_aside`). Web servers list
nothing, so their URLs are taken as they are.
"""

import os
import re
import sysconfig
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase
from itertools import takewhile
from pathlib import Path
from typing import TypeAlias

from tokmill import tasks
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.sources import inner_suffix, is_of_table
from tokmill.tasks.remote.location import check_url, is_remote, is_url, local_path

_WEB = ("http://", "https://")
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

Names: TypeAlias = tuple[str, ...]  # the components of a path


@dataclass(frozen=True)
class Pattern:
    """An absolute pattern."""

    text: str  # the pattern as written in the profile
    folder: str  # the part without wildcards, a path or a URL
    parts: Names  # the components below `folder`, with wildcards; empty where `folder` is a file
    pruned: Names = ()  # names of folders that are never entered; of the standard library alone

    @property
    def parent(self) -> str:
        """The folder that the pattern looks into."""
        return self.folder if self.parts else self.folder.rpartition("/")[0] or "/"

    @property
    def is_of_web(self) -> bool:
        """Whether it is a URL of a web server."""
        return self.folder.lower().startswith(_WEB)


def parse(text: str, base: Path) -> Pattern:
    """Make a pattern absolute; relative patterns start from the folder `base`."""
    if not text.strip():
        raise SourceError("an empty pattern names no file; write a path or a glob such as data/**/*.txt")
    if is_remote(text):
        return _parse_url(text)
    text = str(local_path(text)) if is_url(text) else text
    placeholder = _PLACEHOLDER.match(text)
    path = Path(os.path.normpath(_filled(text, placeholder) if placeholder else _home(text, base)))
    folder, parts = _literal_part(path, Path(os.path.normpath(base.absolute())))
    is_stdlib = placeholder is not None and placeholder[1] == "stdlib"
    return Pattern(text, str(folder), parts, _NOT_STDLIB if is_stdlib else ())


def _parse_url(text: str) -> Pattern:
    check_url(text)
    if text.lower().startswith(_WEB):
        if "?" in text:
            named = text.partition("?")[0]
            raise SourceError(
                f"{named!r} is followed by a query, which may hold a secret; name a file without"
            )
        return Pattern(text, text, ())
    scheme, _, rest = text.partition("://")
    bucket, *path = rest.split("/")
    if not bucket or not any(path):
        example = f"{scheme}://{bucket or 'bucket'}/web/**/*.jsonl"
        raise SourceError(f"{text!r} names no object; write e.g. {example}")
    if _is_wild(bucket):
        raise SourceError(f"{text!r} has a wildcard in the name of the bucket; name each bucket by itself")
    plain = [*takewhile(lambda part: not _is_wild(part), path)]
    folder = "/".join([f"{scheme}://{bucket}", *map(_unescaped, plain)])
    return Pattern(text, folder, tuple(path[len(plain) :]))


def _literal_part(path: Path, base: Path) -> tuple[Path, Names]:
    """Divide a pattern into the part without wildcards and the rest; what exists has none, nor the base."""
    if os.path.lexists(path):
        return path, ()
    num_shared = len(Path(os.path.commonpath((path, base))).parts)
    folder, parts = Path(*path.parts[:num_shared]), path.parts[num_shared:]
    for index, part in enumerate(parts):
        if _BRACKETS_ALONE.fullmatch(part) and os.path.lexists(folder / part):
            folder /= part
        elif _is_wild(part):
            return folder, parts[index:]
        else:
            folder /= _unescaped(part)
    return folder, ()


def _filled(text: str, placeholder: re.Match[str]) -> Path:
    shipped = Path(next(iter(tasks.__path__))).parent / "profiles" / "samples"
    known = {"stdlib": Path(sysconfig.get_path("stdlib")), "samples": shipped}
    if placeholder[1] not in known:
        close = get_close_matches(placeholder[1], known, n=1)
        listed_names = ", ".join(f"{{{name}}}" for name in known)
        hint = f"did you mean {{{close[0]}}}?" if close else f"known are {listed_names}"
        raise SourceError(f"{text!r}: there is no placeholder {{{placeholder[1]}}}; {hint}")
    return known[placeholder[1]] / text[placeholder.end() :].lstrip("/")


def _home(text: str, base: Path) -> Path:
    try:
        return base.absolute() / Path(text).expanduser()
    except RuntimeError as error:
        raise SourceError(f"{text!r}: {error}; write the folder in full") from error


def _is_wild(part: str) -> bool:
    return _MAGIC.search(_ESCAPED.sub("", part)) is not None


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


def matches(parts: Names, names: Names, *, hidden: bool = False, further: bool = False) -> bool:
    """Whether a path matches the components of a pattern; with `further`, whether one below it may."""
    places = _with_none_matched(parts, {0})
    for name in names:
        shown = {
            place
            for place in places
            if place < len(parts) and (hidden or not name.startswith(".") or parts[place].startswith("."))
        }
        found = {place for place in shown if parts[place] == "**"}
        found |= {place + 1 for place in shown - found if fnmatchcase(name, parts[place])}
        places = _with_none_matched(parts, found)
    return any(place < len(parts) for place in places) if further else len(parts) in places


def _with_none_matched(parts: Names, places: set[int]) -> set[int]:
    """Add to places in a pattern those behind a `**`, which may match no folder."""
    for place, part in enumerate(parts):
        if part == "**" and place in places:
            places.add(place + 1)
    return places


def num_aside(parts: Names, names: Names) -> int:
    """Return how many components of a file's path lead to what programs keep beside data; 0 for data.

    These are backups and unfinished files; what is in folders such as Spark's `_temporary`; and tables, plain
    text and files without a suffix whose names, or those of folders above, begin with `_`. In other formats
    `_` is an ordinary letter, as in `__init__.py` and `_posts/a.md`. What the pattern names is data.
    """
    named = [part for part in parts if part.startswith("_") or part.endswith(_UNFINISHED)]
    if any(fnmatchcase(name, part) for part in named for name in names):
        return 0
    low = [n for n, name in enumerate(names, start=1) if name.startswith("_") and "=" not in name]
    if service := [number for number in low if names[number - 1] in _SERVICE_FOLDERS]:
        return service[0]
    if names[-1].lower().endswith(_UNFINISHED):
        return len(names)
    return low[0] if low and (is_of_table(names[-1]) or inner_suffix(names[-1]) in ("", ".txt")) else 0


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
    parsed = [parse(text, base) for text in whole]

    def covers(pattern: Pattern, place: str) -> bool:
        start = f"{pattern.folder.rstrip('/')}/"
        if place != pattern.folder and not place.startswith(start):
            return False
        parts = tuple(place[len(start) :].split("/")) if place != pattern.folder else ()
        ends = range(min(1, len(pattern.parts)), len(parts) + 1)
        return any(matches(pattern.parts, parts[:end]) for end in ends)

    def excluded(place: str) -> bool:
        inside = place.removeprefix(root).lstrip("/").split("/")
        is_named = any(part == name or fnmatchcase(part, name) for part in inside for name in names)
        return is_named or any(covers(pattern, place) for pattern in parsed)

    return excluded
