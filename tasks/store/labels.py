"""Names: version labels and aliases.

Each (kind, name) counts v1, v2, …, one label per fingerprint. A label is a file that is created exclusively
just before the artifact is published, so two processes never give out the same one, and an artifact that is
made again gets its old label. It is copied into the record. An artifact that is requested under a second
name is not made again: the second name gets a label of its own for the same fingerprint. `latest` is the
highest label whose artifact exists.

A file among the labels or aliases that is neither (another name, not a regular file, other content) is
ignored, and `verify` reports it. If the writer of a label died while it wrote, the label names no artifact,
but its number stays taken.
"""

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

from tokmill.tasks.store.durable import reported_as
from tokmill.tasks.store.layout import RECORD_FILE, Layout
from tokmill.tasks.store.names import check_alias, check_label, is_alias, is_kind, is_label, is_name
from tokmill.tasks.store.storage import STORAGE

LABELS = "labels"
ALIASES = "aliases"
_MARK = "@"
_HELD = re.compile(rb'\s*\{\s*"fingerprint"\s*:\s*"([0-9a-f]{64})"\s*\}\s*')
_MOST_BYTES = 4096


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

    def label_path(self, kind: str, name: str, label: str) -> Path:
        """Return the file of a label; raises StoreError for a malformed name or label."""
        check_label(label)
        return self._layout.names(LABELS, kind, name) / f"{_MARK}{label}"

    def reserve(self, kind: str, name: str, fingerprint: str, *, note: bool = True) -> str:
        """Return the label that (kind, name) has for `fingerprint`; assign the next one if it has none.

        With `note`, the catalog looks for it (`note_labels`), which it does anyway if the artifact is
        published next.
        """
        folder = self._layout.names(LABELS, kind, name)
        while True:
            known = self.find(kind, name, fingerprint)
            if known is not None:
                return known
            taken = (path.name.removeprefix(_MARK) for path in _marked(folder))
            label = f"v{1 + max(map(version_number, filter(is_label, taken)), default=0)}"
            if self.restore(kind, name, label, fingerprint, note=note):
                return label

    def adopt(self, kind: str, name: str, label: str, fingerprint: str) -> None:
        """Give an artifact from another store its own label, or the next one if that is taken."""
        if self.find(kind, name, fingerprint) is None and not self.restore(kind, name, label, fingerprint):
            self.reserve(kind, name, fingerprint)

    def restore(self, kind: str, name: str, label: str, fingerprint: str, *, note: bool = True) -> bool:
        """Assign exactly `label`, unless it is taken; return whether it was free. `note`: as in `reserve`."""
        path = self.label_path(kind, name, label)
        with reported_as(f"label {kind}/{name}@{label} cannot be given out"):
            try:
                STORAGE.create(path, _encode(fingerprint))
            except FileExistsError:
                return False
            if note and not self._layout.is_remote:
                note_labels(self._layout, kind)
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
            STORAGE.replace(path, _encode(fingerprint))
        return path

    def tag_if_free(self, kind: str, name: str, alias: str, fingerprint: str) -> Path | None:
        """Point `alias` at `fingerprint` unless it points somewhere; return the alias's file if it was free.

        Of two that do so at once, on machines of which neither has listed the other's, one succeeds.
        """
        check_alias(alias)
        path = self._layout.names(ALIASES, kind, name) / f"{_MARK}{alias}"
        with reported_as(f"alias {kind}/{name}@{alias} cannot be written"):
            try:
                STORAGE.create(path, _encode(fingerprint))
            except FileExistsError:
                return None
        return path

    def references(self) -> list[str]:
        """Return every `kind/name` that has a label, sorted."""
        tree = self._layout.root / LABELS
        found = {path.parent.relative_to(tree).as_posix().partition("/") for path in named_files(tree)}
        return sorted(f"{kind}/{name}" for kind, _, name in found if is_kind(kind) and is_name(name))

    def _exists(self, kind: str, fingerprint: str) -> bool:
        return bool(fingerprint) and STORAGE.is_file(self._layout.artifact(kind, fingerprint) / RECORD_FILE)


def note_labels(layout: Layout, kind: str) -> None:
    """Leave a new number for the labels of a kind, so that the catalog looks for new ones."""
    number = uuid.uuid4().int >> 72
    STORAGE.replace(layout.cache / LABELS / kind, b"%d\n" % number)


def labels_number(layout: Layout, kind: str) -> int | None:
    """Return the number that was left for the labels of a kind; None if there is none."""
    try:
        return int(STORAGE.read(layout.cache / LABELS / kind, _MOST_BYTES))
    except (OSError, ValueError):
        return None


def version_number(label: str) -> int:
    """Return n of the label `vn`."""
    check_label(label)
    return int(label[1:])


def named_files(tree: Path) -> Iterator[Path]:
    """Files of all labels (or aliases) below `tree`, in no particular order."""
    return (path for path in STORAGE.tree(tree) if path.name.startswith(_MARK))


def read_name(path: Path) -> tuple[str, str]:
    """Return (label or alias, fingerprint) of one file; '' if it holds none, as when its writer died."""
    try:
        held = _HELD.fullmatch(STORAGE.read(path, _MOST_BYTES))
    except OSError:
        held = None
    return path.name.removeprefix(_MARK), held[1].decode("ascii") if held else ""


def _read_names(folder: Path) -> dict[str, str]:
    return dict(read_name(path) for path in _marked(folder))


def _marked(folder: Path) -> list[Path]:
    return [folder / entry.name for entry in STORAGE.entries(folder) if entry.name.startswith(_MARK)]


def _encode(fingerprint: str) -> bytes:
    return b'{"fingerprint": "%s"}\n' % fingerprint.encode("ascii")
