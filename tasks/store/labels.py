"""Version labels and aliases: the names of artifacts.

Each (kind, name) counts v1, v2, …, one label per fingerprint: a file that is created exclusively just before
the artifact is published. Anything else among them is ignored, and `verify` reports it.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.disk import reported_as
from tokmill.tasks.store.layout import ALIASES, LABELS, RECORD_FILE, Layout
from tokmill.tasks.store.names import check_alias, check_label, is_alias, is_kind, is_label, is_name

_MARK = "@"
_HELD = re.compile(rb'\s*\{\s*"fingerprint"\s*:\s*"([0-9a-f]{64})"\s*\}\s*')
_MOST_BYTES = 4096


class Names:
    """The labels and aliases of one store."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def find(self, kind: str, name: str, fingerprint: str) -> str | None:
        """Return the label that (kind, name) has for `fingerprint`, or None."""
        labels = self.labels(kind, name)
        return next((label for label, owner in labels.items() if owner == fingerprint), None)

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
        check_label(label)
        path = self._layout.names(LABELS, kind, name) / f"{_MARK}{label}"
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
        labels = self.labels(kind, name)
        return {
            label: owner
            for label, owner in labels.items()
            if owner and (self._layout.artifact(kind, owner) / RECORD_FILE).is_file()
        }

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
