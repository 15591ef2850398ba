"""Where a store on object storage keeps its objects, and which of a mirror's paths they are.

    <url>/index/<kind>/<prefix>/record.json             a record: the artifact is published if it is there
    <url>/index/labels|aliases|runs|annotations|…       as in a folder: removed and leases, too
    <url>/files/<kind>/<prefix>/<stored[:16]>/<path>    an artifact's files, by their stored digest
    <url>/telling/<run id>/<attempt>/<name>             what runs and tasks elsewhere tell each other
    <url>/locks/<name>                                  who makes an artifact; see `tasks.store.remote_lock`
    <url>/catalog.duckdb                                a copy of some machine's catalog

What is small and listed often is apart from what is large. Files lie below the digest of their
bytes, so that two writers of one artifact with different bytes never write the same object; the record, of
which the service takes one, says whose files count. All other paths of a mirror (names with a dot, the
catalog) are local.
"""

from typing import Literal, NamedTuple, TypeAlias

INDEX, FILES, LOCKS, TELLING = "index", "files", "locks", "telling"
RECORD = "record.json"
CONTENT_CHARS = 16
_SHARED = frozenset({"labels", "aliases", "runs", "annotations", "removed", "leases", TELLING})
_DAMAGED = "damaged"
_LOCAL = "catalog.duckdb"  # with its log, and those of other versions

Part: TypeAlias = Literal["local", "index", "files"]


class Place(NamedTuple):
    """What a path below a mirror is.

    Attributes:
        part: local; a name in the index, or of what is told, beside it; or a file of an artifact, or a folder
            of such files.
        folder: of the artifact, for `files`: `<kind>/<prefix>`; else empty.
        rest: the path below the artifact's folder, or below the mirror.
    """

    part: Part
    folder: str
    rest: str


def files_url(url: str, folder: str, stored: str, path: str = "") -> str:
    """Return the URL of an artifact's files, or of one of them, by its folder and stored digest."""
    return "/".join(part for part in (url, FILES, folder, stored[:CONTENT_CHARS], path) if part)


def index_url(url: str, name: str) -> str:
    """Return the URL of a name in the index; what is told is beside it, and never listed with it."""
    return f"{url}/{name}" if is_told(name) else f"{url}/{INDEX}/{name}"


def is_told(name: str) -> bool:
    """Whether a name is of what runs and tasks tell each other: never kept locally, asked for each time."""
    return name.partition("/")[0] == TELLING


def place_of(relative: str) -> Place:
    """Return what a path is, given with slashes below the mirror; the mirror itself is '' ('.' is, too)."""
    if relative in ("", "."):
        return Place("index", "", "")
    parts = relative.split("/")
    if parts[0].startswith(".") or parts[0].startswith(_LOCAL):
        return Place("local", "", relative)
    if parts[0] in _SHARED:
        return Place("index", "", relative)
    depth = 3 if parts[0] == _DAMAGED else 2
    if len(parts) <= depth or parts[depth:] == [RECORD]:
        return Place("index", "", relative)
    return Place("files", "/".join(parts[:depth]), "/".join(parts[depth:]))


def is_artifact(relative: str) -> bool:
    """Whether a path of the index is the folder of an artifact."""
    parts = relative.split("/")
    depth = 3 if parts[0] == _DAMAGED else 2
    return parts[0] not in _SHARED and len(parts) == depth
