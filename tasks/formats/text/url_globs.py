"""Find objects by URLs and globs, with the semantics of `tasks.formats.text.globs` for files.

A pattern is a URL with `*`, `?`, `[…]` and `**` in the path below the bucket; `[*]` is a literal `*`. Buckets
have no folders, only keys with slashes, which are listed page by page: level by level as far as the pattern
goes, and all keys below a `**` at once. Keys that end with a slash, and objects of 0 bytes that only mark a
folder, are not files. Keys with an empty part (`a//b`) match a `**` alone. Web servers list nothing,
so their URLs are taken as they are.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice, takewhile

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.globs import (
    Matcher,
    Skipped,
    holding,
    is_folder,
    lies_in,
    name_matcher,
    num_without_wildcards,
    unescaped,
)
from tokmill.tasks.formats.text.table_logs import num_above_log, tables_of_partition
from tokmill.tasks.remote.location import Info, RemoteFile, check_url, is_remote
from tokmill.tasks.remote.objects import listed, stat

_WEB = ("http://", "https://")
_LOOKED_AT = 100
_BUCKET_PARTS = 3  # "s3:", "" and "bucket"
# What some clients of Hadoop call the object that marks a folder.
_MARKER = "_$folder$"


@dataclass(frozen=True)
class UrlPattern:
    """A pattern of URLs.

    Attributes:
        text: the pattern as written in the profile.
        folder: the URL up to the first component with wildcards, without a slash at its end.
        parts: the components below `folder`, with wildcards; empty where `folder` is an object.
    """

    text: str
    folder: str
    parts: tuple[str, ...]

    @property
    def parent(self) -> str:
        """The URL of the folder that the pattern looks into."""
        return self.folder if self.parts else self.folder.rpartition("/")[0]


def parse_url(text: str) -> UrlPattern:
    """Read a pattern."""
    check_url(text)
    if text.lower().startswith(_WEB) and "?" in text:
        msg = (
            f"{text.partition('?')[0]!r} is followed by a query, which may hold a secret; name a file without"
        )
        raise SourceError(msg)
    if text.lower().startswith(_WEB):
        return UrlPattern(text, text, ())
    scheme, _, rest = text.partition("://")
    bucket, *path = rest.split("/")
    if not bucket or not any(path):
        example = f"{scheme}://{bucket or 'bucket'}/web/**/*.jsonl"
        raise SourceError(f"{text!r} names no object; write e.g. {example}")
    if not num_without_wildcards([bucket]):
        raise SourceError(f"{text!r} has a wildcard in the name of the bucket; name each bucket by itself")
    num_plain = num_without_wildcards(path)
    folder = "/".join([f"{scheme}://{bucket}", *map(unescaped, path[:num_plain])])
    return UrlPattern(text, folder, tuple(path[num_plain:]))


def expand_url(pattern: UrlPattern, *, hidden: bool, skipped: Skipped) -> Iterator[Info]:
    """Yield the objects that a pattern matches, each once."""
    if pattern.parts:
        matchers = Matcher(pattern.parts, hidden=hidden), Matcher(pattern.parts, hidden=True)
        walk = _Walk(pattern.folder, *matchers, skipped)
        skipped.tables += () if hidden else tables_of_partition(pattern.folder)
        yield from walk.files(pattern.folder, {0})
        return
    try:
        yield stat(pattern.folder)
    except FileNotFoundError:
        if not pattern.folder.lower().startswith(_WEB) and any(listed(pattern.folder)):
            inside = (found.url[len(pattern.folder) + 1 :] for found in listed(pattern.folder))
            raise is_folder(pattern.text, inside) from None


@dataclass(frozen=True)
class _Walk:
    """A walk through the keys below a folder.

    Attributes:
        root: the URL of the folder.
        matcher: selects the objects.
        any_name: the same, but wildcards also match a leading dot.
        skipped: collects what only `any_name` matches, and tables.
    """

    root: str
    matcher: Matcher
    any_name: Matcher
    skipped: Skipped

    def files(self, folder: str, state: set[int]) -> Iterator[Info]:
        """Yield the matching objects below a folder; those of 0 bytes last, because they may mark folders."""
        folders: set[str] = set()
        entered = cache(lambda above: self._entered(folder, state, above))
        empty: list[Info] = []
        for found in listed(folder, recursive=self.matcher.is_deep(state)):
            if self._is_of_log(found):
                continue
            inside = found.url[len(folder) + 1 :]
            name = inside.rpartition("/")[2]
            above = inside[: len(inside) - len(name)]
            inner = entered(above)
            if above and f"{folder}/{above[:-1]}" not in folders:
                folders |= _with_those_above(folder, above)
            if found.is_folder:
                folders.add(found.url)
                if name and (below := self._entered(folder, state, f"{name}/")):
                    yield from self.files(found.url, below)
            elif name and inner and self._selects(inner, name, found):
                if found.num_bytes:
                    yield found
                else:
                    empty.append(found)
        yield from (found for found in empty if found.url not in folders and not found.url.endswith(_MARKER))

    def _is_of_log(self, found: Info) -> bool:
        """Whether an object is of the log of a table, which is noted."""
        names = found.url[len(self.root) + 1 :].split("/")
        number = None if self.matcher.takes_all else num_above_log(names)
        if number is None:
            return False
        table = RemoteFile("/".join([self.root, *names[:number]]))
        self.skipped.tables += [] if table in self.skipped.tables else [table]
        return True

    def _entered(self, folder: str, state: set[int], above: str) -> set[int]:
        """Return the state in a folder below; empty if nothing there can match."""
        names = above.split("/")[:-1]
        for number, name in enumerate(names, start=1):
            after = self.matcher.step(state, name)
            if not self.matcher.goes_on(after):
                if name.startswith(".") and self.any_name.goes_on(self.any_name.step(state, name)):
                    hidden = RemoteFile("/".join([folder, *names[:number]]))
                    if hidden not in self.skipped.hidden_folders:
                        self.skipped.hidden_folders.append(hidden)
                return set()
            state = after
        return state

    def _selects(self, state: set[int], name: str, found: Info) -> bool:
        if self.matcher.accepts(self.matcher.step(state, name)):
            names = found.url[len(self.root) + 1 :].split("/")
            if number := self.matcher.num_aside(names):
                place = RemoteFile("/".join([self.root, *names[:number]]))
                self.skipped.note_aside(place, is_file=number == len(names))
            return not number
        if name.startswith(".") and self.any_name.accepts(self.any_name.step(state, name)):
            self.skipped.hidden_files.append(RemoteFile(found.url))
        return False


def _with_those_above(folder: str, above: str) -> set[str]:
    """Return the URLs of a folder below `folder`, and of those between the two."""
    names = above.split("/")[:-1]
    return {"/".join([folder, *names[:number]]) for number in range(1, len(names) + 1)}


def url_root(patterns: Sequence[UrlPattern]) -> str:
    """Return the deepest folder that all patterns share."""
    parents = sorted(pattern.parent.split("/") for pattern in patterns)
    pairs = zip(parents[0], parents[-1], strict=False)
    shared = [one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs)]
    if len(shared) < _BUCKET_PARTS:
        shown = f"{'/'.join(parents[0])} and {'/'.join(parents[-1])}"
        raise SourceError(f"its files lie in {shown}, which share no bucket; make each a source of its own")
    return "/".join(shared)


def there(pattern: UrlPattern) -> str:
    """Describe the folder in which a pattern found nothing."""
    if pattern.text.lower().startswith(_WEB):
        return "the server has no such file"
    beginning = islice(listed(pattern.parent), _LOOKED_AT)
    names = [found.url[len(pattern.parent) + 1 :].partition("/")[0] for found in beginning]
    return holding(pattern.parent, pattern.text, filter(None, names))


def url_excluder(patterns: Sequence[str], root: str) -> Callable[[str], bool]:
    """Return a function that decides whether a URL is excluded, by itself or with a folder above it.

    A pattern without a slash is compared with every name below `root`, as for files; the others are URLs.
    """
    by_url = [text for text in patterns if "/" in text.rstrip("/")]
    for text in by_url:
        if not is_remote(text):
            raise SourceError(
                f"exclude: {text!r} is a path of this machine, but the files are in {root}; write a URL such "
                f"as {root}/drafts/*, or a name without a slash"
            )
    names = [name_matcher(text) for text in patterns if text not in by_url]
    matchers = [(found.folder, Matcher(found.parts)) for found in map(parse_url, by_url)]

    def excluded(url: str) -> bool:
        parts = url.removeprefix(root).lstrip("/").split("/")
        return any(match(part) for match in names for part in parts) or any(
            lies_in(url[len(folder) + 1 :].split("/") if url != folder else (), matcher)
            for folder, matcher in matchers
            if url == folder or url.startswith(f"{folder}/")
        )

    return excluded
