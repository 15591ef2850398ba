"""What artifacts are called: version labels and aliases, and the references by which people name one.

Each (kind, name) counts v1, v2, …, one label per fingerprint. A label is a file that is created exclusively
just before the artifact is published, so two processes never give out the same one, and an artifact that is
made again gets its old label. Anything else among them is ignored, and `verify` reports it.

    kind/name[@v3|@prod|@latest]    a version, an alias, or the highest label whose artifact exists
    [kind/]3f09ab…                  a fingerprint, or the first 6 or more of its hexadecimal digits
"""

import difflib
import re
from collections.abc import Iterator, Sequence
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
from tokmill.tasks.store.record import read_record, read_tombstone, tombstone, tombstones

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
        labels = self.labels(kind, name)
        return next((label for label, owner in labels.items() if owner == fingerprint), None)

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
        named = _read_names(self._layout.names(LABELS, kind, name))
        return {label: named[label] for label in sorted(filter(is_label, named), key=version_number)}

    def published(self, kind: str, name: str) -> dict[str, str]:
        """Return label → fingerprint of (kind, name) in the order of the labels, for artifacts that exist."""
        labels = {label: owner for label, owner in self.labels(kind, name).items() if owner}
        records = {owner: self._layout.artifact(kind, owner) / RECORD_FILE for owner in labels.values()}
        return {label: owner for label, owner in labels.items() if records[owner].is_file()}

    def aliases(self, kind: str, name: str) -> dict[str, str]:
        """Return alias → fingerprint of (kind, name), sorted."""
        named = _read_names(self._layout.names(ALIASES, kind, name))
        return {alias: named[alias] for alias in sorted(filter(is_alias, named))}

    def tag(self, kind: str, name: str, alias: str, fingerprint: str, *, move: bool = True) -> bool:
        """Point `alias` at `fingerprint`; return whether it does now.

        Unless it may `move` from another artifact, it stays if it points somewhere: of two that give it at
        once, on machines of which neither has listed the other's, one succeeds.
        """
        check_alias(alias)
        path = self._layout.names(ALIASES, kind, name) / f"{_MARK}{alias}"
        with reported_as(f"alias {kind}/{name}@{alias} cannot be written"):
            try:
                (shared.replace if move else shared.create)(path, _encode(fingerprint))
            except FileExistsError:
                return False
        return True

    def references(self) -> list[str]:
        """Return every `kind/name` that has a label, sorted."""
        tree = self._layout.root / LABELS
        folders = {path.parent.relative_to(tree).as_posix() for path in tree.rglob(f"{_MARK}*")}
        named = (folder.partition("/") for folder in folders)
        return sorted(f"{kind}/{name}" for kind, _, name in named if is_kind(kind) and is_name(name))


def version_number(label: str) -> int:
    """Return n of the label `vn`."""
    check_label(label)
    return int(label[1:])


def read_name(path: Path) -> tuple[str, str]:
    """Return (label or alias, fingerprint) of one file; '' if it holds none, as when its writer died."""
    try:
        held = _HELD.fullmatch(disk.read(path, _MOST_BYTES))
    except OSError:
        held = None
    return path.name.removeprefix(_MARK), held[1].decode("ascii") if held else ""


def _read_names(folder: Path) -> dict[str, str]:
    return dict(read_name(path) for path in _marked(folder))


def _marked(folder: Path) -> Iterator[Path]:
    return (folder / entry.name for entry in disk.entries(folder) if entry.name.startswith(_MARK))


def _encode(fingerprint: str) -> bytes:
    return b'{"fingerprint": "%s"}\n' % fingerprint.encode("ascii")


def resolve(layout: Layout, reference: str, *, removed: bool = False) -> ArtifactRef:
    """Return the artifact that `reference` names; if there is none, the error suggests the nearest names."""
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
    labels, full = names.labels(kind, name), f"{kind}/{name}"
    versions = names.published(kind, name) or (labels if removed else {})
    if label == "latest" and not versions:
        if _HEX.fullmatch(name.lower()):
            return _by_prefix(layout, name.lower(), kind, removed=removed)
        for last, owner in reversed(labels.items()):
            if stone := tombstone(layout, kind, owner):
                raise StoreError(f"{full} has no version any more; {last} was {stone.words}")
        near = _nearest(full, names.references())
        raise StoreError(f"there is no artifact {full} in {layout.location}{near}")
    label = next(reversed(versions)) if label == "latest" else label
    called = labels | names.aliases(kind, name)
    if label not in called:
        near = _nearest(label, [*called]) or f"; it has {', '.join(called)}"
        near = near if called else _nearest(full, names.references())
        raise StoreError(f"there is no {full}@{label}{near}")
    if (layout.artifact(kind, called[label]) / RECORD_FILE).is_file():  # maybe made under another name first
        return read_record(layout.artifact(kind, called[label])).ref.model_copy(update={"name": name})
    stone = tombstone(layout, kind, called[label])
    if stone is not None and removed:
        return stone.record.ref.model_copy(update={"name": name})
    if stone is not None:
        raise StoreError(f"{full}@{label} was {stone.words}")
    raise StoreError(
        f"{full}@{label} was given to {called[label][:PREFIX_CHARS]}, which is no longer in the store (or "
        "was never finished); run the profile that made it again"
    )


def _by_prefix(layout: Layout, prefix: str, kind: str | None = None, *, removed: bool) -> ArtifactRef:
    start = prefix[:PREFIX_CHARS]
    places = [path for path in layout.artifacts() if path.name.startswith(start)]
    stones = tombstones(layout, start)
    if removed:
        places += [path for path in stones if layout.root / path.parent.name / path.stem not in places]
    records = []
    for path in places:
        try:
            record = read_tombstone(path).record if path in stones else read_record(path)
        except StoreError:  # which is told only if there is no other
            if len(places) == 1:
                raise
        else:
            if kind in (None, record.kind) and record.fingerprint.startswith(prefix):
                records.append(record)
    if len(records) == 1:
        return records[0].ref
    if records:
        several = ", ".join(f"{each.reference} ({each.fingerprint[:PREFIX_CHARS]})" for each in records)
        raise StoreError(
            f"fingerprint prefix {prefix} fits {len(records)} artifacts: {several}; use more digits"
        )
    for gone in map(read_tombstone, () if removed else stones):
        if gone.record.fingerprint.startswith(prefix):
            raise StoreError(f"{gone.record.reference} ({prefix}) was {gone.words}")
    what = kind or "artifact"
    raise StoreError(f"no {what} in {layout.location} has a fingerprint that begins with {prefix}")


def _nearest(wanted: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""
