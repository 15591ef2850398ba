"""Folders that are tables with a log: not every file in them counts.

Of a Delta table, the files count that its log adds and does not remove again. Tables of Apache Iceberg and
Hudi have such logs, too, and are refused by name.
"""

import json
import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.columnar import read_columns
from tokmill.tasks.formats.text.content import read_bytes
from tokmill.tasks.formats.text.quarantine import BrokenFileError
from tokmill.tasks.remote.location import Location, RemoteFile, below
from tokmill.tasks.remote.objects import listed

DELTA, HUDI, ICEBERG = "_delta_log", ".hoodie", "metadata"
_ICEBERG_FILE = ".metadata.json"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_COLUMNS = ("add.path", "add.deletionVector.storageType")
_FIX = "write its current rows to files of their own, or set hidden = 'include' to read every file there"


def is_log(folder: Path) -> bool:
    """Whether a folder is the log of a table."""
    if folder.name == ICEBERG:
        return any(name.endswith(_ICEBERG_FILE) for name in _names(folder))
    return folder.name in (DELTA, HUDI) and folder.is_dir()


def num_above_log(names: Sequence[str]) -> int | None:
    """Return how many components of a key are those of a table, where the key is of its log; else None."""
    logs = (DELTA, HUDI, *([ICEBERG] if names[-1].endswith(_ICEBERG_FILE) else []))
    return next((index for index, name in enumerate(names) if name in logs), None)


def tables_above(folder: Path) -> list[Path]:
    """Return the tables that a folder lies in, without the folder itself."""
    return [above for above in folder.parents for name in (DELTA, HUDI, ICEBERG) if is_log(above / name)]


def tables_of_partition(folder: str) -> list[RemoteFile]:
    """Return the Delta table in which the URL of a folder is a partition, such as `…/date=2024`, if it is."""
    table, slash, _ = folder.partition("=")[0].rpartition("/")
    has_log = "=" in folder and slash and any(listed(f"{table}/{DELTA}"))
    return [RemoteFile(table)] if has_log else []


def counting_files(table: Location) -> frozenset[str]:
    """Return the files of a Delta table that count, as paths relative to its folder."""
    names = sorted(_names(below(str(table), DELTA)))
    if not names:
        raise SourceError(
            f"{table} is a table of Iceberg or Hudi, whose logs are not read, or its log is empty; {_FIX}"
        )
    try:
        return _replayed(table, names)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise SourceError(f"{table}: the log of this Delta table cannot be read ({error}); {_FIX}") from error


def _replayed(table: Location, names: Sequence[str]) -> frozenset[str]:
    """Add and remove files as the log says, from its last checkpoint that is whole on."""
    checkpoints: dict[tuple[int, int], list[str]] = {}
    for name in names:
        if match := _CHECKPOINT.fullmatch(name):
            checkpoints.setdefault((int(match[1]), int(match[2] or 1)), []).append(name)
    whole = [(version, parts) for (version, number), parts in checkpoints.items() if len(parts) == number]
    version, parts = max(whole, default=(-1, []))
    added_files = (added for part in parts for added in _added(below(str(table), f"{DELTA}/{part}")))
    files = {_path(added, table) for added in added_files if added and added["path"]}
    commits = [found for name in names if (found := _COMMIT.fullmatch(name)) and int(found[1]) > version]
    if not (parts or commits):
        raise ValueError("it has no commit")
    for number, commit in enumerate(commits, start=version + 1):
        if int(commit[1]) != number:
            raise ValueError(f"{number:020}.json is missing")
        lines = read_bytes(below(str(table), f"{DELTA}/{commit[0]}")).splitlines()
        for action in (json.loads(line) for line in lines if line.strip()):
            if added := action.get("add"):
                files.add(_path(added, table))
            if removed := action.get("remove"):
                files.discard(_normal(removed["path"]))
    return frozenset(files)


def _added(checkpoint: Location) -> list[Any]:
    try:
        return [row["add"] for row in read_columns(checkpoint, _COLUMNS)]
    except BrokenFileError as error:
        raise ValueError(f"{checkpoint.name}: {error}") from error


def _path(added: Mapping[str, Any], table: Location) -> str:
    if (added.get("deletionVector") or {}).get("storageType"):
        raise SourceError(f"{table}: this Delta table has deleted rows that still are in its files; {_FIX}")
    path = _normal(added["path"])
    if path.startswith(("/", "../")) or _SCHEME.match(added["path"]):
        raise SourceError(f"{table}: this Delta table has files elsewhere, such as {path!r}; {_FIX}")
    return path


def _normal(path: str) -> str:
    return posixpath.normpath(unquote(path))


def _names(folder: Location) -> list[str]:
    """Return the names in a folder; none if it does not exist."""
    if isinstance(folder, RemoteFile):
        return [found.url.rpartition("/")[2] for found in listed(folder.url, recursive=False)]
    return [path.name for path in folder.iterdir()] if folder.is_dir() else []
