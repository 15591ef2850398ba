"""References: what people call an artifact.

If nothing is found, the error suggests the nearest names.

    kind/name[@v3|@prod|@latest]    a version, an alias, or the highest label whose artifact exists
    [kind/]3f09ab…                  a fingerprint, or the first 6 or more of its hexadecimal digits
"""

import difflib
import re

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store.labels import Names
from tokmill.tasks.store.layout import PREFIX_CHARS, RECORD_FILE, Layout
from tokmill.tasks.store.names import is_kind, is_name, shortened
from tokmill.tasks.store.record import read_record, read_tombstone, tombstone, tombstones

_NAMED = re.compile(r"(?P<kind>[^/@]+)/(?P<name>[^@]+?)(@(?P<label>[^@]+))?")
_HEX = re.compile(r"[0-9a-f]{6,64}")


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
            for label, owner in reversed(names.labels(kind, name).items()):
                if stone := tombstone(layout, kind, owner):
                    raise StoreError(f"{kind}/{name} has no version any more; {label} was {stone.words}")
            near = _nearest(f"{kind}/{name}", names.references())
            raise StoreError(f"there is no artifact {kind}/{name} in {layout.location}{near}")
        _, fingerprint = published.popitem()
        return _open(layout, kind, name, fingerprint)
    called = {**names.labels(kind, name), **names.aliases(kind, name)}
    if label not in called:
        near = _nearest(label, [*called]) or f"; it has {', '.join(called)}"
        near = near if called else _nearest(f"{kind}/{name}", names.references())
        raise StoreError(f"there is no {kind}/{name}@{label}{near}")
    if not (layout.artifact(kind, called[label]) / RECORD_FILE).is_file():
        stone = tombstone(layout, kind, called[label])
        if stone is not None and removed:
            return stone.record.ref.model_copy(update={"name": name})
        if stone is not None:
            raise StoreError(f"{kind}/{name}@{label} was {stone.words}")
        raise StoreError(
            f"{kind}/{name}@{label} was given to {called[label][:PREFIX_CHARS]}, which is no longer "
            "in the store (or was never finished); run the profile that made it again"
        )
    return _open(layout, kind, name, called[label])


def _open(layout: Layout, kind: str, name: str, fingerprint: str) -> ArtifactRef:
    """Return the artifact under the given name; it may have been made under another one first."""
    return read_record(layout.artifact(kind, fingerprint)).ref.model_copy(update={"name": name})


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
    for path in [] if records or removed else stones:
        gone = read_tombstone(path)
        if gone.record.fingerprint.startswith(prefix):
            raise StoreError(f"{gone.record.reference} ({prefix}) was {gone.words}")
    if not records:
        what = kind or "artifact"
        raise StoreError(f"no {what} in {layout.location} has a fingerprint that begins with {prefix}")
    several = ", ".join(f"{record.reference} ({record.fingerprint[:PREFIX_CHARS]})" for record in records)
    raise StoreError(f"fingerprint prefix {prefix} fits {len(records)} artifacts: {several}; use more digits")


def _nearest(wanted: str, known: list[str]) -> str:
    near = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(near)}?" if near else ""
