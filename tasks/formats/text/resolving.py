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
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from tokmill.tasks.core.errors import MachineError, SourceError
from tokmill.tasks.core.faults import refuse_irregular, unreadable
from tokmill.tasks.core.stage import External
from tokmill.tasks.formats.text.globbing import Pattern, Skipped, excluder, expand, parse
from tokmill.tasks.formats.text.sources import SourceSpec, format_of, nearest

_SHOWN = 3
_LOG = logging.getLogger(__name__)


class Digests(Protocol):
    """Computes content digests of files; `tasks.store.files.FileDigests` also caches them."""

    def digest(self, path: Path) -> str:
        """Return the file's content digest, as hex."""


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
        with slashes), "path" (absolute), "digest" (of the content), "size", "mtime_ns"}, and the root, an
        absolute path.

    Raises:
        SourceError: a pattern matches nothing or is a URL, or a file is found twice (also through a link),
            cannot be read, or has the suffix of a format that is not text.
    """
    try:
        patterns = [parse(text, base) for text in spec.files]
        root = _root(patterns)
        found = _matched(patterns, excluder(spec.exclude, base, root), base, source, spec)
        names = {_name(path, root): path for path in found}
        _refuse_twins(names)
        files = [_external(source, name, names[name], spec, digests) for name in sorted(names)]
    except (SourceError, MachineError) as error:
        msg = f"source '{source}': {error}"
        raise type(error)(msg) from error
    return files, str(root)


def _root(patterns: list[Pattern]) -> Path:
    folders = [pattern.folder if pattern.parts else pattern.folder.parent for pattern in patterns]
    root = Path(os.path.commonpath(folders))
    if root == Path(root.anchor) and len(set(folders)) > 1:
        shown = " and ".join(sorted({str(folder) for folder in folders})[:2])
        msg = f"its files lie in {shown}, which share no folder; make each a source of its own"
        raise SourceError(msg)
    return root


def _matched(
    patterns: list[Pattern], excluded: Callable[[Path], bool], base: Path, source: str, spec: SourceSpec
) -> dict[Path, str]:
    """Return path -> the pattern that matched it, and log the skipped files."""
    found: dict[Path, str] = {}
    skipped = Skipped()
    for pattern in patterns:
        everything = list(expand(pattern, hidden=spec.hidden == "include", skipped=skipped))
        paths = [path for path in everything if not excluded(path)]
        if not paths:
            raise _nothing_matched(pattern, base, len(everything))
        for path in paths:
            if path in found:
                msg = f"{path} matches both {found[path]!r} and {pattern.text!r}; narrow one of them"
                raise SourceError(msg)
            found[path] = pattern.text
    _log_skipped(skipped, source, lambda path: excluded(path) or path in found)
    return found


def _log_skipped(skipped: Skipped, source: str, known: Callable[[Path], bool]) -> None:
    files, folders, others = (
        sorted({path for path in paths if not known(path)})
        for paths in (skipped.hidden_files, skipped.hidden_folders, skipped.others)
    )
    if files or folders:
        names = " and ".join(filter(None, (_number(files, "file"), _number(folders, "folder"))))
        _LOG.warning(
            "source '%s': skipped %s with a name that begins with a dot (%s); set hidden = 'include' to read "
            "them",
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


def _number(paths: list[Path], word: str, words: str = "") -> str:
    return "" if not paths else f"1 {word}" if len(paths) == 1 else f"{len(paths):,} {words or word + 's'}"


def _shown(paths: list[Path]) -> str:
    return ", ".join([*(path.name for path in paths[:_SHOWN]), *(["…"] if len(paths) > _SHOWN else [])])


def _nothing_matched(pattern: Pattern, base: Path, num_excluded: int) -> SourceError:
    if num_excluded:
        num = f"{num_excluded} files" if num_excluded > 1 else "the file"
        return SourceError(f"{pattern.text!r}: 'exclude' removes {num} that it matches; narrow 'exclude'")
    start = "" if _stands_alone(pattern.text) else f"; relative paths start from {base.absolute()}"
    fix = "correct the pattern, or put the files there"
    return SourceError(f"{pattern.text!r} matches no file ({_looked(pattern)}{start}); {fix}")


def _looked(pattern: Pattern) -> str:
    """Describe the folder in which a pattern looked for files."""
    folder = pattern.folder if pattern.parts else pattern.folder.parent
    if not folder.is_dir():
        return f"there is no folder {folder}"
    there = nearest(Path(pattern.text).name, sorted(path.name for path in folder.iterdir()), limit=_SHOWN + 1)
    shown = ", ".join([*there[:_SHOWN], "…"] if len(there) > _SHOWN else there)
    return f"{folder} holds {shown}" if there else f"{folder} is empty"


def _stands_alone(text: str) -> bool:
    """Whether a pattern ignores the base folder: it is absolute, or begins with `~` or a placeholder."""
    return text.startswith(("/", "~", "{"))


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
    format_of(name, spec)
    try:
        status = path.stat()
        refuse_irregular(path, status)
        with path.open("rb"):
            digest = digests.digest(path)
    except OSError as error:
        raise unreadable(path, error) from error
    value: dict[str, str | int] = {"source": source, "name": name, "path": str(path), "digest": digest}
    value |= {"size": status.st_size, "mtime_ns": status.st_mtime_ns}
    return External(digest=origin_digest(source, name, digest), value=value)


def origin_digest(source: str, name: str, digest: str) -> str:
    """Return the digest that identifies a file: of its source, name and content."""
    text = json.dumps([source, name, digest], ensure_ascii=False, separators=(",", ":"))
    return hashlib.blake2b(text.encode("utf-8"), digest_size=32).hexdigest()
