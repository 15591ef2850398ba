"""Lineage: the artifacts that an artifact was made from, and those made from it.

Up follows the inputs in the records. An input is the artifact that the record names, if it still has the
content that was used; else any artifact of that kind with that content; else the one that was removed, of
which the record stays; else it is marked as missing. Down finds the artifacts that used an artifact's
content, in the catalog alone. Artifacts made from another artifact with equal bytes count too, since nothing
in them would differ. Inputs from outside of the store are one node per role.
"""

from collections import deque
from contextlib import suppress
from functools import cached_property
from operator import itemgetter

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store.catalog import Row
from tokmill.tasks.store.graph import Direction, Edge, Graph, Node
from tokmill.tasks.store.record import InputEntry, Record
from tokmill.tasks.store.store import Store

_USERS = """
    WITH RECURSIVE content(kind, digest) AS (
        SELECT $kind::VARCHAR, $digest::VARCHAR
        UNION
        SELECT a.kind, a.content_digest
        FROM content c JOIN inputs i ON i.input_kind = c.kind AND i.digest = c.digest
        JOIN artifacts a ON a.fingerprint = i.fingerprint
    )
    SELECT DISTINCT i.input_kind, i.digest, i.role, a.kind, a.name, a.label, a.fingerprint, a.content_digest
    FROM content c JOIN inputs i ON i.input_kind = c.kind AND i.digest = c.digest
    JOIN artifacts a ON a.fingerprint = i.fingerprint
    ORDER BY a.kind, a.name, a.fingerprint, i.role, i.digest
"""
_REMOVED = """
    SELECT DISTINCT i.input_kind AS kind, i.input_fingerprint AS fingerprint
    FROM inputs i JOIN removed r ON r.fingerprint = i.input_fingerprint
    ANTI JOIN artifacts a ON a.fingerprint = i.input_fingerprint
    ORDER BY ALL
"""
_EQUALS = "SELECT kind, content_digest, fingerprint FROM artifacts ORDER BY ended DESC"


def lineage(store: Store, ref: ArtifactRef, direction: Direction = "up") -> Graph:
    """Return the graph of the artifacts that `ref` was made from (`up`), that used it (`down`), or both.

    Raises:
        StoreError: `ref` is not in the store and was not removed from it; or the catalog is busy too long.
    """
    record = store.past_record(ref)
    graph = Graph(record.fingerprint, direction)
    root = _node(record, store)
    graph.add(root)
    if direction in ("up", "both"):
        _walk_up(store, graph, record)
    if direction in ("down", "both"):
        _walk_down(store, graph, root)
    return graph


def removed_between(store: Store) -> list[Record]:
    """Return the records of the removed artifacts that others in the store were made from, over any steps.

    The catalog has no inputs of them, so that whoever follows these leaves out what is behind them.

    Raises:
        StoreError: a tombstone cannot be read.
    """
    waiting = [(row["kind"], row["fingerprint"]) for row in store.catalog.query(_REMOVED)]
    seen, found = set(waiting), []
    while waiting:
        left = store.tombstone(*waiting.pop())
        if left is None:  # it is there, and in the catalog
            continue
        found.append(left.record)
        inputs = {(entry.kind, entry.fingerprint) for entry in left.record.inputs}
        new = {(kind, owner) for kind, owner in inputs if kind and owner} - seen
        seen |= new
        waiting += sorted(new)
    return found


def _walk_up(store: Store, graph: Graph, root: Record) -> None:
    equals = _Equals(store)
    waiting = deque([root])
    while waiting:
        record = waiting.popleft()
        graph.edges.extend(_external_edges(graph, record))
        for entry in record.inputs:
            if entry.kind is None:
                continue
            found = equals.record_of(entry)
            found = found or equals.past(entry)
            node = _node(found, store) if found else _missing(entry)
            graph.edges.append(Edge(node.key, record.fingerprint, entry.role))
            if graph.add(node) and found:
                waiting.append(found)


def _walk_down(store: Store, graph: Graph, root: Node) -> None:
    """One query for all generations, and no records: an artifact may have ten thousand users."""
    uses: dict[tuple[str, str], list[tuple[int, Row]]] = {}
    rows = store.catalog.query(_USERS, {"kind": root.kind, "digest": root.content_digest})
    for place, row in enumerate(rows):
        uses.setdefault((row["input_kind"], row["digest"]), []).append((place, row))
    generation, walked = [root], {root.key}
    while generation:
        makers = {(node.kind, node.content_digest): node.key for node in generation}
        generation = []
        for _, row in sorted((use for content in makers for use in uses.get(content, ())), key=itemgetter(0)):
            user = _user(row)
            graph.add(user)
            graph.edges.append(Edge(makers[row["input_kind"], row["digest"]], user.key, row["role"]))
            if user.key not in walked:
                walked.add(user.key)
                generation.append(user)


def _user(row: Row) -> Node:
    return Node(
        key=row["fingerprint"],
        title=f"{row['kind']}/{row['name']}@{row['label']}",
        kind=row["kind"],
        name=row["name"],
        label=row["label"],
        content_digest=row["content_digest"],
    )


class _Equals:
    """Finds the artifact of an input: by its fingerprint, else any with the same content."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def record_of(self, entry: InputEntry) -> Record | None:
        """Return the record of the used artifact, or None if no artifact has its content any more."""
        with suppress(StoreError):  # removed or damaged since; another artifact may hold the same bytes
            record = self._store.read(entry.kind or "", entry.fingerprint or "")
            if record.content_digest == entry.digest:
                return record
        equal = self._by_content.get((entry.kind or "", entry.digest))
        return self._store.read(entry.kind or "", equal) if equal else None

    def past(self, entry: InputEntry) -> Record | None:
        """Return the record of an artifact that was removed, if it is the one that was used."""
        with suppress(StoreError):
            record = self._store.past(entry.kind or "", entry.fingerprint or "")
            if record.content_digest == entry.digest:
                return record
        return None

    @cached_property
    def _by_content(self) -> dict[tuple[str, str], str]:
        rows = self._store.catalog.query(_EQUALS)
        return {(row["kind"], row["content_digest"]): row["fingerprint"] for row in rows}


def _node(record: Record, store: Store | None = None) -> Node:
    return Node(
        status="published" if store is None or store.holds(record.ref) else "removed",
        key=record.fingerprint,
        title=record.reference,
        kind=record.kind,
        name=record.name,
        label=record.label,
        content_digest=record.content_digest,
    )


def _missing(entry: InputEntry) -> Node:
    return Node(
        key=entry.fingerprint or entry.digest,
        title=f"{entry.kind}/{entry.name}",
        status="missing",
        kind=entry.kind or "",
        name=entry.name or "",
        content_digest=entry.digest,
    )


def _external_edges(graph: Graph, record: Record) -> list[Edge]:
    """Add one node for each role with inputs from outside of the store; return their edges."""
    roles: dict[str, list[InputEntry]] = {}
    for entry in record.inputs:
        if entry.kind is None:
            roles.setdefault(entry.role, []).append(entry)
    edges = []
    for role, entries in roles.items():
        one = entries[0].origin or f"{role} {entries[0].digest[:12]}"
        node = Node(
            key=f"external:{record.fingerprint}:{role}",
            title=one if len(entries) == 1 else f"{len(entries)} × {role}",
            status="external",
            role=role,
            count=len(entries),
        )
        graph.add(node)
        edges.append(Edge(node.key, record.fingerprint, role))
    return edges
