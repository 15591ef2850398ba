"""Resolve a source's patterns to its files, each with a digest for the fingerprint.

The root of a source is the deepest folder that all of its patterns share (their parts before the first
wildcard), so that it does not change when files are added or removed. A file's name is its path relative to
the root, with slashes; names are unique and sorted. A file is identified by its source, name and content,
because the corpus made from it holds all three.
"""

import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tokmill.tasks.core.errors import MachineError, RemoteError, SourceError
from tokmill.tasks.core.faults import refuse_irregular, unreadable
from tokmill.tasks.core.stage import External
from tokmill.tasks.formats.text.globs import Pattern, Skipped, excluder, expand, holding, parse
from tokmill.tasks.formats.text.sources import SourceSpec
from tokmill.tasks.formats.text.table_logs import counting_files
from tokmill.tasks.formats.text.url_globs import expand_url, parse_url, there, url_excluder, url_root
from tokmill.tasks.remote.location import Info, Location, RemoteFile, is_remote, stands_alone

_SHOWN = 3
_ABOUT = ("source", "name", "digest", "size")
_DIGESTED = 8  # objects that are read for their digests at a time
F = TypeVar("F", Path, Info)
_LOG = logging.getLogger(__name__)


class Digests(Protocol):
    """Computes content digests of files; `tasks.store.digest.FileDigests` also caches them."""

    def digest(self, file: Path | Info) -> str:
        """Return the content digest of a file or an object, as hex."""


def resolve_files(
    spec: SourceSpec, base: Path, digests: Digests, *, source: str
) -> tuple[list[External], str]:
    """Find a source's files.

    Args:
        spec: the source in the profile.
        base: the profile's folder, from which relative patterns start.
        digests: computes the files' content digests.
        source: the source's name.

    Returns:
        The files sorted by name, each an `External` whose value is {"source", "name" (relative to the root,
        with slashes), "path" (absolute, or a URL), "digest" (of the content), "size", and "mtime_ns" or, for
        an object, "tag"}, and the root, an absolute path or a URL.

    Raises:
        SourceError: a pattern matches nothing, a file is found twice (also through a link), or cannot be
            read; or paths and URLs are mixed.
        MachineError: the service of a URL cannot be reached, or goes on failing.
        RemoteError: a URL holds a password, or needs a library that is not installed.
    """
    try:
        remote = [is_remote(text) for text in spec.files]
        if any(remote) and not all(remote):
            path, url = spec.files[remote.index(False)], spec.files[remote.index(True)]
            raise SourceError(  # noqa: TRY301 - the message gets the source's name below
                f"{path!r} is a path of this machine and {url!r} a URL; make each a source of its own"
            )
        resolve = _remote_files if any(remote) else _local_files
        return resolve(spec, base, digests, source)
    except (SourceError, MachineError, RemoteError) as error:
        msg = f"source '{source}': {error}"
        raise type(error)(msg) from error


def _local_files(spec: SourceSpec, base: Path, digests: Digests, source: str) -> tuple[list[External], str]:
    patterns = [parse(text, base) for text in spec.files]
    root = _root(patterns)
    hidden = spec.hidden == "include"
    found = _matched(
        {pattern.text: partial(expand, pattern, hidden=hidden) for pattern in patterns},
        {pattern.text: partial(_looked, pattern, base) for pattern in patterns},
        excluder(spec.exclude, base, root),
        source,
    )
    names = {_name(path, root): path for path in found}
    _refuse_twins(names)
    return [_external(source, name, names[name], spec, digests) for name in sorted(names)], str(root)


def _remote_files(spec: SourceSpec, _base: Path, digests: Digests, source: str) -> tuple[list[External], str]:
    patterns = [parse_url(text) for text in spec.files]
    root = url_root(patterns)
    excluded = url_excluder(spec.exclude, root)
    hidden = spec.hidden == "include"
    try:
        found = _matched(
            {pattern.text: partial(expand_url, pattern, hidden=hidden) for pattern in patterns},
            {pattern.text: partial(there, pattern) for pattern in patterns},
            lambda file: excluded(_place(file)),
            source,
        )
    except OSError as error:
        raise unreadable(RemoteFile(error.filename or root), error) from error
    names = {state.url[len(root) + 1 :]: state for state in found}
    with ThreadPoolExecutor(_DIGESTED, thread_name_prefix="digests") as pool:
        made = pool.map(lambda name: _external_object(source, name, names[name], digests), sorted(names))
        return list(made), root


def _matched(
    files: Mapping[str, Callable[..., Iterator[F]]],
    nothing: Mapping[str, Callable[[], str]],
    excluded: Callable[[Any], bool],
    source: str,
) -> list[F]:
    """Return the files that patterns match, and log the skipped ones."""
    found: dict[str, tuple[F, str]] = {}
    skipped = Skipped()
    for text, expanded in files.items():
        everything = list(expanded(skipped=skipped))
        kept = [file for file in everything if not excluded(file)]
        if not kept:
            raise _nothing_matched(text, nothing[text], len(everything), skipped)
        for file in _counting(kept, text, skipped, source):
            if _place(file) in found:
                msg = (
                    f"{_place(file)} matches both {found[_place(file)][1]!r} and {text!r}; narrow one of them"
                )
                raise SourceError(msg)
            found[_place(file)] = file, text
    _log_skipped(skipped, source, lambda file: excluded(file) or _place(file) in found)
    return [file for file, _ in found.values()]


def _counting(files: list[F], text: str, skipped: Skipped, source: str) -> list[F]:
    """Return the files without those that the logs of their tables do not list; these are logged."""
    for table in skipped.tables:
        start = f"{table}/"
        inside = {_place(file) for file in files if _place(file).startswith(start)}
        if gone := inside - {start + name for name in (counting_files(table) if inside else ())}:
            names = ", ".join(sorted(place[len(start) :] for place in gone)[:_SHOWN])
            _LOG.warning(
                "source '%s': skipped %s that the log of the Delta table %s does not list or removes (%s)",
                source,
                _number(sorted(gone), "file"),
                table,
                names,
            )
        files = [file for file in files if _place(file) not in gone]
    skipped.tables.clear()
    if not files:
        raise SourceError(f"{text!r} matches only files that the logs of their tables remove; correct it")
    return files


def _place(file: Location | Info) -> str:
    return file.url if isinstance(file, Info) else str(file)


def _root(patterns: list[Pattern]) -> Path:
    folders = [pattern.folder if pattern.parts else pattern.folder.parent for pattern in patterns]
    root = Path(os.path.commonpath(folders))
    if root == Path(root.anchor) and len(set(folders)) > 1:
        shown = " and ".join(sorted({str(folder) for folder in folders})[:2])
        msg = f"its files lie in {shown}, which share no folder; make each a source of its own"
        raise SourceError(msg)
    return root


def _log_skipped(skipped: Skipped, source: str, known: Callable[[Location], bool]) -> None:
    files, folders, others = (
        sorted({path for path in paths if not known(path)}, key=str)
        for paths in (skipped.hidden_files, skipped.hidden_folders, skipped.others)
    )
    if files or folders:
        names = " and ".join(filter(None, (_number(files, "file"), _number(folders, "folder"))))
        _LOG.warning(
            "source '%s': skipped %s that may not be data, by their names (%s); set hidden = 'include' to "
            "read them",
            source,
            names,
            _shown([*files, *folders]),
        )
    if others:
        _LOG.warning(
            "source '%s': skipped %s (%s): wildcards match regular files only, no FIFOs, sockets or devices",
            source,
            _number(others, "entry", "entries"),
            _shown(others),
        )


def _number(paths: Sequence[Any], word: str, words: str = "") -> str:
    return "" if not paths else f"1 {word}" if len(paths) == 1 else f"{len(paths):,} {words or word + 's'}"


def _shown(paths: Sequence[Location | Info]) -> str:
    return ", ".join(
        [
            *(_place(path).rpartition("/")[2] for path in paths[:_SHOWN]),
            *(["…"] if len(paths) > _SHOWN else []),
        ]
    )


def _nothing_matched(
    text: str, looked: Callable[[], str], num_excluded: int, skipped: Skipped
) -> SourceError:
    if num_excluded:
        num = f"{num_excluded} files" if num_excluded > 1 else "the file"
        return SourceError(f"{text!r}: 'exclude' removes {num} that it matches; narrow 'exclude'")
    if aside := [*skipped.hidden_files, *skipped.hidden_folders]:
        return SourceError(
            f"{text!r} matches only what may not be data, by its name ({_shown(aside)}); name the files, or "
            "set hidden = 'include' to read them"
        )
    if "[" in text:
        msg = f"{text!r} matches no file ({looked()}); […] stands for one character, and [[] for a bracket"
        return SourceError(msg)
    return SourceError(f"{text!r} matches no file ({looked()}); correct the pattern, or put the files there")


def _looked(pattern: Pattern, base: Path) -> str:
    """Describe the folder in which a pattern looked for files."""
    folder = pattern.folder if pattern.parts else pattern.folder.parent
    start = "" if stands_alone(pattern.text) else f"; relative paths start from {base.absolute()}"
    if not folder.is_dir():
        return f"there is no folder {folder}{start}"
    names = [path.name + "/" * path.is_dir() for path in folder.iterdir()]
    return f"{holding(folder, pattern.text, names)}{start}"


def _name(path: Path, root: Path) -> str:
    name = path.relative_to(root).as_posix()
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        msg = f"the name of {os.fsencode(path)!r} is not UTF-8; rename the file"
        raise SourceError(msg) from None
    return name


def _refuse_twins(names: Mapping[str, Path]) -> None:
    """Reject two names of one file; hard links and copies count as different files."""
    seen: dict[str, str] = {}
    for name in sorted(names):
        real = os.path.realpath(names[name])
        if real in seen:
            msg = f"{seen[real]} and {name} are the same file ({real}); exclude one of them"
            raise SourceError(msg)
        seen[real] = name


def _external(source: str, name: str, path: Path, spec: SourceSpec, digests: Digests) -> External:
    try:
        status = path.stat()
        refuse_irregular(path, status)
        with path.open("rb"):
            digest = digests.digest(path)
    except OSError as error:
        raise unreadable(path, error) from error
    value: dict[str, str | int] = {"source": source, "name": name, "path": str(path), "digest": digest}
    value |= {"size": status.st_size}
    about = {name: value[name] for name in _ABOUT}
    value |= {"mtime_ns": status.st_mtime_ns}
    return External(digest=origin_digest(source, name, digest), value=value, about=about)


def _external_object(source: str, name: str, state: Info, digests: Digests) -> External:
    digest = digests.digest(state)
    value = {"source": source, "name": name, "path": state.url, "digest": digest, "size": state.num_bytes}
    return External(
        digest=origin_digest(source, name, digest),
        value={**value, "tag": state.tag},
        about={name: value[name] for name in _ABOUT},
    )


def origin_digest(source: str, name: str, digest: str) -> str:
    """Return the digest that identifies a file: of its source, name and content."""
    text = json.dumps([source, name, digest], ensure_ascii=False, separators=(",", ":"))
    return hashlib.blake2b(text.encode("utf-8"), digest_size=32).hexdigest()
