"""What is in a store, from its catalog, in the form that decides what is kept.

The artifacts are read first. What is published later is not in the inventory, so that nobody decides to
remove it; aliases, runs and labels that were added later can only keep more.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.labels import ALIASES, named_files
from tokmill.tasks.store.layout import RECORD_FILE, Layout
from tokmill.tasks.store.storage import STORAGE
from tokmill.tasks.store.superseding import MADE_FROM, superseded

_ARTIFACTS = (
    "SELECT fingerprint, kind, name, label, num_bytes, ended, content_digest FROM artifacts ORDER BY ALL"
)
_INPUTS = f"""
    SELECT i.fingerprint, i.input_kind, i.input_fingerprint, i.digest
    FROM inputs i JOIN artifacts a USING (fingerprint)
    WHERE i.input_kind IS NOT NULL AND {MADE_FROM}
    ORDER BY ALL
"""  # noqa: S608 - a constant
_EQUAL_FILES = """
    SELECT a.kind, f.fingerprint, f.path, f.size_bytes FROM files f JOIN artifacts a USING (fingerprint)
    WHERE f.size_bytes > 0 AND f.digest IN (SELECT digest FROM files GROUP BY digest HAVING count(*) > 1)
    ORDER BY a.ended, f.fingerprint, f.path
"""
_LABELS = "SELECT kind, name, number, fingerprint FROM labels ORDER BY ALL"
_ALIASES = "SELECT kind, name, alias, fingerprint FROM aliases ORDER BY ALL"
_RUNS = """
    SELECT r.run_id, r.profile, r.state, r.started, r.ended,
           list(a.fingerprint ORDER BY a.position) FILTER (a.fingerprint IS NOT NULL)
    FROM runs r LEFT JOIN run_artifacts a USING (run_id, attempt)
    GROUP BY ALL ORDER BY r.started, r.run_id
"""
_NUM_RUNS = "SELECT count(DISTINCT run_id) FROM runs"


class Item(NamedTuple):
    """An artifact: `ended` is when it was made, with the time zone.

    `num_bytes` is what it takes in the store. A file that has names in several artifacts, by hard links,
    counts for the first that was made; the others were made from it, so it goes last.
    """

    fingerprint: str
    kind: str
    name: str
    label: str
    num_bytes: int
    ended: datetime

    @property
    def reference(self) -> str:
        """Its name for people: `kind/name@label`."""
        return f"{self.kind}/{self.name}@{self.label}"


class PastRun(NamedTuple):
    """An execution of a run, and the fingerprints of its artifacts."""

    run_id: str
    profile: str
    state: str
    started: datetime
    ended: datetime | None
    artifacts: Sequence[str]


class Label(NamedTuple):
    """A version label: the version `number` of (kind, name)."""

    kind: str
    name: str
    number: int
    fingerprint: str


class Inventory(NamedTuple):
    """What is in a store.

    Attributes:
        items: the artifacts by fingerprint.
        inputs: by fingerprint, those that it was made from and that are still there. Where one is not, every
            artifact with the same content takes its place.
        labels: of artifacts that are there.
        aliases: (name for people, fingerprint) of each.
        runs: every attempt, the oldest first.
        superseded: by fingerprint, what replaces it; see `tasks.store.superseding`.
    """

    items: Mapping[str, Item]
    inputs: Mapping[str, Sequence[str]]
    labels: Sequence[Label]
    aliases: Sequence[tuple[str, str]]
    runs: Sequence[PastRun]
    superseded: Mapping[str, Sequence[str]]


def take_inventory(layout: Layout, catalog: Catalog) -> Inventory:
    """Read what is in a store.

    Raises:
        StoreError: a record, a run or an alias cannot be read, so that it is not known what is needed.
    """
    rows = catalog.ask(_ARTIFACTS).rows
    linked = _linked_bytes(layout, catalog)
    items = {row[0]: _item(row, linked[row[0]]) for row in rows}
    equal = defaultdict(list)
    for fingerprint, kind, *_, digest in rows:
        equal[kind, digest].append(fingerprint)
    inputs = defaultdict[str, list[str]](list)
    for made, kind, fingerprint, digest in catalog.ask(_INPUTS).rows:
        inputs[made] += [fingerprint] if fingerprint in items else equal[kind, digest]
    labels = [Label(*row) for row in catalog.ask(_LABELS).rows if row[3] in items]
    aliases = [(f"{kind}/{name}@{alias}", owner) for kind, name, alias, owner in catalog.ask(_ALIASES).rows]
    runs = [_past_run(row) for row in catalog.ask(_RUNS).rows]
    _check_complete(layout, catalog, items, len(aliases))
    return Inventory(items, inputs, labels, aliases, runs, superseded(catalog))


def _linked_bytes(layout: Layout, catalog: Catalog) -> Counter[str]:
    """Return by fingerprint the bytes of files that an artifact made before holds by another name."""
    linked, known = Counter[str](), set[tuple[int, int]]()
    for kind, fingerprint, path, num_bytes in catalog.ask(_EQUAL_FILES).rows:
        try:
            identity = STORAGE.state(layout.artifact(kind, fingerprint) / path).identity
        except FileNotFoundError:
            continue
        if identity in known:
            linked[fingerprint] += num_bytes
        elif identity is not None:
            known.add(identity)
    return linked


def _item(row: Sequence[Any], linked_bytes: int) -> Item:
    fingerprint, kind, name, label, num_bytes, ended, _ = row
    return Item(fingerprint, kind, name, label, num_bytes - linked_bytes, ended.replace(tzinfo=UTC))


def _past_run(row: Sequence[Any]) -> PastRun:
    run_id, profile, state, started, ended, artifacts = row
    end = None if ended is None else ended.replace(tzinfo=UTC)
    return PastRun(run_id, profile, state, started.replace(tzinfo=UTC), end, artifacts or [])


def _check_complete(layout: Layout, catalog: Catalog, items: Mapping[str, Item], num_aliases: int) -> None:
    """Refuse an inventory that lacks what cannot be read: a wish or a need may be among it."""
    known = {layout.artifact(item.kind, item.fingerprint) for item in items.values()}
    unread = [path / RECORD_FILE for path in layout.artifacts() if path not in known]
    for place in unread:
        if STORAGE.is_file(place) and not catalog.ask(_one(place.parent.name)).rows:
            raise _incomplete(f"{place} cannot be read")
    found = sum(1 for _ in named_files(layout.root / ALIASES))
    if found > num_aliases:
        raise _incomplete(f"{found - num_aliases} of {found} aliases cannot be read")
    files = [entry.name for entry in STORAGE.entries(layout.runs) if entry.name.endswith(".json")]
    num_files = sum(not name.startswith(".") for name in files)
    ((num_runs,),) = catalog.ask(_NUM_RUNS).rows
    if num_files > num_runs:
        raise _incomplete(f"{num_files - num_runs} of {num_files} runs cannot be read")


def _one(prefix: str) -> str:
    return f"SELECT 1 FROM artifacts WHERE starts_with(fingerprint, '{prefix}')"  # noqa: S608 - hexadecimal


def _incomplete(what: str) -> StoreError:
    return StoreError(f"gc: {what}, so it is not known what is needed; `tokmill verify` has the reason")
