"""References: the forms in which people name an artifact.

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
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store.labels import Names
from tokmill.tasks.store.layout import PREFIX_CHARS, RECORD_FILE, Layout
from tokmill.tasks.store.names import is_kind, is_name, shortened
from tokmill.tasks.store.record import Record, read_record
from tokmill.tasks.store.storage import STORAGE
from tokmill.tasks.store.tombstones import read_tombstone, tombstone, tombstones

_NAMED = re.compile(r"(?P<kind>[^/@]+)/(?P<name>[^@]+?)(@(?P<label>[^@]+))?")
_HEX = re.compile(r"[0-9a-f]{6,64}")


def resolve(layout: Layout, reference: str, *, removed: bool = False) -> ArtifactRef:
    """Return the artifact that `reference` names.

    Args:
        layout: the store.
        reference: of the artifact.
        removed: whether it may be one that was removed; `latest` is such a one only if all versions were.

    Raises:
        StoreError: the reference has no known form, there is no such artifact, or a prefix fits several.
    """
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
    if not STORAGE.is_file(layout.artifact(kind, called[label]) / RECORD_FILE):
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
