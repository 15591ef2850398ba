"""Names: version labels and aliases, and the references by which people name an artifact.

Each (kind, name) counts v1, v2, …, one label per fingerprint. A label is a file that is created exclusively
just before the artifact is published, so two processes never give out the same one, and an artifact that is
made again gets its old label. It is copied into the record. An artifact that is requested under a second
name is not made again: the second name gets a label of its own for the same fingerprint. `latest` is the
highest label whose artifact exists.

A file among the labels or aliases that is neither (another name, not a regular file, other content) is
ignored, and `verify` reports it. If the writer of a label died while it wrote, the label names no artifact,
but its number stays taken.

    kind/name            the latest version: the highest label whose artifact exists
    kind/name@v3         a version label (`@latest` is the highest)
    kind/name@prod       an alias
    3f09ab…              a fingerprint, or the first 6 or more of its hexadecimal digits
    kind/3f09ab…         the same, of a kind, where nothing has it as its name

Names may hold `/`: `encoded_shard/quickstart.english/3@v1`. If nothing is found, the error suggests the
nearest existing names.
"""

import difflib
import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.disk import reported_as
from tokmill.tasks.store.layout import ALIASES, LABELS, PREFIX_CHARS, RECORD_FILE, Layout
from tokmill.tasks.store.names import (
    check_alias,
    check_label,
    is_alias,
    is_kind,
    is_label,
    is_name,
    shortened,
)
from tokmill.tasks.store.record import Record, read_record
from tokmill.tasks.store.tombstones import read_tombstone, tombstone, tombstones

_MARK = "@"
_HELD = re.compile(rb'\s*\{\s*"fingerprint"\s*:\s*"([0-9a-f]{64})"\s*\}\s*')
_MOST_BYTES = 4096
_NAMED = re.compile(r"(?P<kind>[^/@]+)/(?P<name>[^@]+?)(@(?P<label>[^@]+))?")
_HEX = re.compile(r"[0-9a-f]{6,64}")


class Names:
    """The labels and aliases of one store."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def find(self, kind: str, name: str, fingerprint: str) -> str | None:
        """Return the label that (kind, name) has for `fingerprint`, or None."""
        given = self._given(kind, name)
        return min(
            (label for label, owner in given.items() if owner == fingerprint),
            key=version_number,
            default=None,
        )

    def is_label_of(self, kind: str, name: str, label: str, fingerprint: str) -> bool:
        """Whether (kind, name) has a label for `fingerprint`."""
        return read_name(self.label_path(kind, name, label))[1] == fingerprint

    def label_path(self, kind: str, name: str, label: str) -> Path:
        """Return the file of a label; raises StoreError for a malformed name or label."""
        check_label(label)
        return self._layout.names(LABELS, kind, name) / f"{_MARK}{label}"

    def reserve(self, kind: str, name: str, fingerprint: str, *, announce: bool = True) -> str:
        """Return the label that (kind, name) has for `fingerprint`; assign the next one if it has none.

        `announce`: as in `restore`.
        """
        folder = self._layout.names(LABELS, kind, name)
        while True:
            shared.bring_folder(folder)
            if (known := self.find(kind, name, fingerprint)) is not None:
                return known
            taken = (path.name.removeprefix(_MARK) for path in _marked(folder))
            label = f"v{1 + max(map(version_number, filter(is_label, taken)), default=0)}"
            if self.restore(kind, name, label, fingerprint, announce=announce):
                return label

    def adopt(self, kind: str, name: str, label: str, fingerprint: str) -> None:
        """Give an artifact from another store its own label, or the next one if that is taken."""
        if self.find(kind, name, fingerprint) is None and not self.restore(kind, name, label, fingerprint):
            self.reserve(kind, name, fingerprint)

    def restore(self, kind: str, name: str, label: str, fingerprint: str, *, announce: bool = True) -> bool:
        """Assign exactly `label`, unless it is taken; return whether it was free.

        With `announce`, the labels of the kind get a new time first, so that the catalog looks for this one
        whatever happens to this process. It does so anyway if an artifact is published next, or if the
        temporary folder of a killed process is swept (`tasks.store.indexing`).
        """
        path = self.label_path(kind, name, label)
        with reported_as(f"label {kind}/{name}@{label} cannot be given out"):
            if announce:
                tree = self._layout.root / LABELS / kind
                tree.mkdir(parents=True, exist_ok=True)
                disk.touch(tree)
            try:
                shared.create(path, _encode(fingerprint))
            except FileExistsError:
                return False
        return True

    def labels(self, kind: str, name: str) -> dict[str, str]:
        """Return label → fingerprint of (kind, name), sorted, including labels without an artifact."""
        given = self._given(kind, name)
        return {label: given[label] for label in sorted(given, key=version_number)}

    def _given(self, kind: str, name: str) -> dict[str, str]:
        given = _read_names(self._layout.names(LABELS, kind, name))
        return {label: owner for label, owner in given.items() if is_label(label)}

    def published(self, kind: str, name: str) -> dict[str, str]:
        """Return label → fingerprint of (kind, name) in the order of the labels, for artifacts that exist."""
        return {label: owner for label, owner in self.labels(kind, name).items() if self._exists(kind, owner)}

    def aliases(self, kind: str, name: str) -> dict[str, str]:
        """Return alias → fingerprint of (kind, name), sorted."""
        given = _read_names(self._layout.names(ALIASES, kind, name))
        return {alias: given[alias] for alias in sorted(given) if is_alias(alias)}

    def tag(self, kind: str, name: str, alias: str, fingerprint: str) -> Path:
        """Point `alias` at `fingerprint`, even if it pointed elsewhere before; return the alias's file."""
        check_alias(alias)
        path = self._layout.names(ALIASES, kind, name) / f"{_MARK}{alias}"
        with reported_as(f"alias {kind}/{name}@{alias} cannot be written"):
            shared.replace(path, _encode(fingerprint))
        return path

    def tag_if_free(self, kind: str, name: str, alias: str, fingerprint: str) -> Path | None:
        """Point `alias` at `fingerprint` unless it points somewhere; return the alias's file if it was free.

        Of two that do so at once, on machines of which neither has listed the other's, one succeeds.
        """
        check_alias(alias)
        path = self._layout.names(ALIASES, kind, name) / f"{_MARK}{alias}"
        with reported_as(f"alias {kind}/{name}@{alias} cannot be written"):
            try:
                shared.create(path, _encode(fingerprint))
            except FileExistsError:
                return None
        return path

    def references(self) -> list[str]:
        """Return every `kind/name` that has a label, sorted."""
        tree = self._layout.root / LABELS
        found = {path.parent.relative_to(tree).as_posix().partition("/") for path in named_files(tree)}
        return sorted(f"{kind}/{name}" for kind, _, name in found if is_kind(kind) and is_name(name))

    def _exists(self, kind: str, fingerprint: str) -> bool:
        return bool(fingerprint) and (self._layout.artifact(kind, fingerprint) / RECORD_FILE).is_file()


def version_number(label: str) -> int:
    """Return n of the label `vn`."""
    check_label(label)
    return int(label[1:])


def named_files(tree: Path) -> Iterator[Path]:
    """Files of all labels (or aliases) below `tree`, in no particular order."""
    return (path for path in tree.rglob("*") if path.name.startswith(_MARK))


def read_name(path: Path) -> tuple[str, str]:
    """Return (label or alias, fingerprint) of one file; '' if it holds none, as when its writer died."""
    try:
        held = _HELD.fullmatch(disk.read(path, _MOST_BYTES))
    except OSError:
        held = None
    return path.name.removeprefix(_MARK), held[1].decode("ascii") if held else ""


def _read_names(folder: Path) -> dict[str, str]:
    return dict(read_name(path) for path in _marked(folder))


def _marked(folder: Path) -> list[Path]:
    return [folder / entry.name for entry in disk.entries(folder) if entry.name.startswith(_MARK)]


def _encode(fingerprint: str) -> bytes:
    return b'{"fingerprint": "%s"}\n' % fingerprint.encode("ascii")


def resolve(layout: Layout, reference: str, *, removed: bool = False) -> ArtifactRef:
    """Return the artifact that `reference` names."""
    named = _NAMED.fullmatch(reference)
    if named and is_kind(named["kind"]) and is_name(named["name"]):
        return _by_name(layout, named["kind"], named["name"], named["label"] or "latest", removed=removed)
    if _HEX.fullmatch(reference.lower()):
        return _by_prefix(layout, reference.lower(), removed=removed)
    raise StoreError(
        f"{shortened(reference)} names no artifact: use kind/name, kind/name@v3, kind/name@alias, or at "
        f"least 6 hexadecimal digits of a fingerprint{_nearest(reference, Names(layout).references())}"
    )


def _by_name(layout: Layout, kind: str, name: str, label: str, *, removed: bool) -> ArtifactRef:
    names = Names(layout)
    published = names.published(kind, name)
    if label == "latest" and removed and not published:
        label = next(reversed(names.labels(kind, name)), label)
    if label == "latest":
        if not published:
            if _HEX.fullmatch(name.lower()):
                return _by_prefix(layout, name.lower(), kind, removed=removed)
            _raise_if_removed(layout, kind, name)
            near = _nearest(f"{kind}/{name}", names.references())
            raise StoreError(f"there is no artifact {kind}/{name} in {layout.location}{near}")
        _, fingerprint = published.popitem()
        return _open(layout, kind, name, fingerprint)
    called = {**names.labels(kind, name), **names.aliases(kind, name)}
    if label not in called:
        raise StoreError(f"there is no {kind}/{name}@{label}{_alternatives(layout, kind, name, label)}")
    if not (layout.artifact(kind, called[label]) / RECORD_FILE).is_file():
        left = tombstone(layout, kind, called[label])
        if left is not None and removed:
            return left.record.ref.model_copy(update={"name": name})
        if left is not None:
            raise StoreError(f"{kind}/{name}@{label} was {left.words}")
        raise StoreError(
            f"{kind}/{name}@{label} was given to {called[label][:PREFIX_CHARS]}, which is no longer "
            "in the store (or was never finished); run the profile that made it again"
        )
    return _open(layout, kind, name, called[label])


def _raise_if_removed(layout: Layout, kind: str, name: str) -> None:
    """Raise StoreError, with when and by whom, if the versions of a name were removed."""
    given = Names(layout).labels(kind, name)
    for label in reversed(given):
        left = tombstone(layout, kind, given[label])
        if left is not None:
            raise StoreError(f"{kind}/{name} has no version any more; {label} was {left.words}")


def _open(layout: Layout, kind: str, name: str, fingerprint: str) -> ArtifactRef:
    """Return the artifact under the given name; it may have been made under another one first."""
    return read_record(layout.artifact(kind, fingerprint)).ref.model_copy(update={"name": name})


def _by_prefix(layout: Layout, prefix: str, kind: str | None = None, *, removed: bool) -> ArtifactRef:
    start = prefix[:PREFIX_CHARS]
    here = [path for path in layout.artifacts() if path.name.startswith(start)]
    candidates: list[Callable[[], Record]] = [partial(read_record, path) for path in here]
    if removed:
        left = ((path, layout.root / path.parent.name / path.stem) for path in tombstones(layout, start))
        candidates += [partial(_left, path) for path, place in left if place not in here]
    records = _readable(candidates)
    of_kind = (record for record in records if kind in (None, record.kind))
    found = [record for record in of_kind if record.fingerprint.startswith(prefix)]
    if len(found) == 1:
        return found[0].ref
    for path in [] if found or removed else tombstones(layout, start):
        gone = read_tombstone(path)
        if gone.record.fingerprint.startswith(prefix):
            raise StoreError(f"{gone.record.reference} ({prefix}) was {gone.words}")
    if not found:
        what = kind or "artifact"
        raise StoreError(f"no {what} in {layout.location} has a fingerprint that begins with {prefix}")
    several = ", ".join(f"{record.reference} ({record.fingerprint[:PREFIX_CHARS]})" for record in found)
    raise StoreError(f"fingerprint prefix {prefix} fits {len(found)} artifacts: {several}; use more digits")


def _left(path: Path) -> Record:
    return read_tombstone(path).record


def _readable(candidates: list[Callable[[], Record]]) -> list[Record]:
    """Return the records that can be read; one that cannot raises only if it is the only candidate."""
    records = []
    for read in candidates:
        try:
            records.append(read())
        except StoreError:
            if len(candidates) == 1:
                raise
    return records


def _alternatives(layout: Layout, kind: str, name: str, label: str) -> str:
    names = Names(layout)
    known = [*names.labels(kind, name), *names.aliases(kind, name)]
    if not known:
        return _nearest(f"{kind}/{name}", names.references())
    return _nearest(label, known) or f"; it has {', '.join(known)}"


def _nearest(wanted: str, known: list[str]) -> str:
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""
