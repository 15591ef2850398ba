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
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from tokmill.tasks.core.errors import MachineError, RemoteError, SourceError
from tokmill.tasks.core.faults import refuse_irregular, unreadable
from tokmill.tasks.core.stage import External
from tokmill.tasks.formats.text.globs import Pattern, excluder, parse, shared_folder
from tokmill.tasks.formats.text.sources import SourceSpec
from tokmill.tasks.formats.text.table_logs import counting_files
from tokmill.tasks.formats.text.walk import File, Skipped, describe_folder, expand
from tokmill.tasks.remote.location import Info, Location, RemoteFile, is_remote

_SHOWN = 3
_DIGESTED = 8  # objects that are read for their digests at a time
_LOG = logging.getLogger(__name__)


class Digests(Protocol):
    """Computes content digests of files; `tasks.store.digest.FileDigests` also caches them."""

    def digest(self, file: Path | Info) -> str:
        """Return the content digest of a file or an object, as hex."""


def resolve_files(
    spec: SourceSpec, base: Path, digests: Digests, *, source: str
) -> tuple[list[External], str]:
    """Find a source's files; relative patterns start from the folder `base`.

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
        return _resolved(spec, base, digests, source)
    except (SourceError, MachineError, RemoteError) as error:
        msg = f"source '{source}': {error}"
        raise type(error)(msg) from error


def _resolved(spec: SourceSpec, base: Path, digests: Digests, source: str) -> tuple[list[External], str]:
    remote = [is_remote(text) for text in spec.files]
    if any(remote) and not all(remote):
        path, url = spec.files[remote.index(False)], spec.files[remote.index(True)]
        raise SourceError(
            f"{path!r} is a path of this machine and {url!r} a URL; make each a source of its own"
        )
    patterns = [parse(text, base) for text in dict.fromkeys(spec.files)]
    root = shared_folder(patterns)
    try:
        places = _matched(patterns, base, spec, excluder(spec.exclude, base, root), source)
    except OSError as error:
        raise unreadable(RemoteFile(error.filename or root) if all(remote) else root, error) from error
    start = len(root.rstrip("/")) + 1
    names = {place[start:]: file for place, file in sorted(places.items())}
    _refuse_twins({name: file for name, file in names.items() if isinstance(file, Path)})
    if not all(remote):
        return [_external(source, name, file, digests) for name, file in names.items()], root
    with ThreadPoolExecutor(_DIGESTED, thread_name_prefix="digests") as pool:
        return list(pool.map(lambda one: _external(source, one[0], one[1], digests), names.items())), root


def _matched(
    patterns: Sequence[Pattern], base: Path, spec: SourceSpec, excluded: Callable[[str], bool], source: str
) -> dict[str, File]:
    """Return the files that patterns match, by their places, and log the skipped ones."""
    found: dict[str, tuple[File, str]] = {}
    skipped = Skipped()
    for pattern in patterns:
        everything = {
            _place(file): file for file in expand(pattern, hidden=spec.hidden == "include", skipped=skipped)
        }
        kept = [place for place in everything if not excluded(place)]
        if not kept:
            raise _nothing_matched(pattern, base, len(everything), skipped)
        for place in _counting(kept, pattern.text, skipped, source):
            if place in found:
                both = f"{found[place][1]!r} and {pattern.text!r}"
                raise SourceError(f"{place} matches both {both}; narrow one of them")
            found[place] = everything[place], pattern.text
    _log_skipped(skipped, source, lambda place: excluded(place) or place in found)
    return {place: file for place, (file, _) in found.items()}


def _place(file: Location | Info) -> str:
    return file.url if isinstance(file, Info) else str(file)


def _counting(places: list[str], text: str, skipped: Skipped, source: str) -> list[str]:
    """Return the files without those that the logs of their tables do not list; these are logged."""
    for table in skipped.tables:
        start = f"{table}/"
        inside = {place for place in places if place.startswith(start)}
        gone = sorted(inside - {start + name for name in (counting_files(table) if inside else ())})
        said = f"that the log of the Delta table {table} does not list or removes"
        _log_left_out(source, _number(gone, "file"), said, [place[len(start) :] for place in gone])
        places = [place for place in places if place not in gone]
    skipped.tables.clear()
    if not places:
        raise SourceError(f"{text!r} matches only files that the logs of their tables remove; correct it")
    return places


def _log_skipped(skipped: Skipped, source: str, is_known: Callable[[str], bool]) -> None:
    files, folders, others = (
        sorted({str(place) for place in places if not is_known(str(place))})
        for places in (skipped.hidden_files, skipped.hidden_folders, skipped.others)
    )
    number = " and ".join(filter(None, (_number(files, "file"), _number(folders, "folder"))))
    fix = "; set hidden = 'include' to read them"
    _log_left_out(source, number, "that may not be data, by their names", _last([*files, *folders]), fix)
    fix = ": wildcards match regular files only, no FIFOs, sockets or devices"
    _log_left_out(source, _number(others, "entry", "entries"), "", _last(others), fix)


def _log_left_out(source: str, number: str, reason: str, names: Sequence[str], fix: str = "") -> None:
    if number:
        said = f"{number} {reason}".strip()
        _LOG.warning("source '%s': skipped %s (%s)%s", source, said, _shown(names), fix)


def _number(places: Sequence[str], word: str, words: str = "") -> str:
    return "" if not places else f"1 {word}" if len(places) == 1 else f"{len(places):,} {words or word + 's'}"


def _last(places: Sequence[str]) -> list[str]:
    return [place.rpartition("/")[2] for place in places]


def _shown(names: Sequence[str]) -> str:
    return ", ".join([*names[:_SHOWN], "…"] if len(names) > _SHOWN else names)


def _nothing_matched(pattern: Pattern, base: Path, num_excluded: int, skipped: Skipped) -> SourceError:
    text = pattern.text
    if num_excluded:
        num = f"{num_excluded} files" if num_excluded > 1 else "the file"
        return SourceError(f"{text!r}: 'exclude' removes {num} that it matches; narrow 'exclude'")
    if aside := [*map(str, (*skipped.hidden_files, *skipped.hidden_folders))]:
        return SourceError(
            f"{text!r} matches only what may not be data, by its name ({_shown(_last(aside))}); name the "
            "files, or set hidden = 'include' to read them"
        )
    fix = "correct the pattern, or put the files there"
    if "[" in text:
        fix = "[…] stands for one character, and [[] for a bracket"
    return SourceError(f"{text!r} matches no file ({describe_folder(pattern, base)}); {fix}")


def _refuse_twins(names: Mapping[str, Path]) -> None:
    """Reject names that are not UTF-8, and two names of one file; hard links count as different files."""
    seen: dict[str, str] = {}
    for name, file in names.items():
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            raise SourceError(f"the name of {os.fsencode(file)!r} is not UTF-8; rename the file") from None
        real = os.path.realpath(file)
        if real in seen:
            raise SourceError(f"{seen[real]} and {name} are the same file ({real}); exclude one of them")
        seen[real] = name


def _external(source: str, name: str, file: File, digests: Digests) -> External:
    if isinstance(file, Info):
        digest, size = digests.digest(file), file.num_bytes
        more: dict[str, Any] = {"path": file.url, "tag": file.tag}
    else:
        try:
            status = file.stat()
            refuse_irregular(file, status)
            with file.open("rb"):
                digest, size = digests.digest(file), status.st_size
        except OSError as error:
            raise unreadable(file, error) from error
        more = {"path": str(file), "mtime_ns": status.st_mtime_ns}
    about = {"source": source, "name": name, "digest": digest, "size": size}
    return External(digest=origin_digest(source, name, digest), value={**about, **more}, about=about)


def origin_digest(source: str, name: str, digest: str) -> str:
    """Return the digest that identifies a file: of its source, name and content."""
    text = json.dumps([source, name, digest], ensure_ascii=False, separators=(",", ":"))
    return hashlib.blake2b(text.encode("utf-8"), digest_size=32).hexdigest()
