"""Lineage: the artifacts that an artifact was made from, and those made from it.

Up follows the inputs in the records. An input is the artifact that the record names, if it still has the
content that was used; else any artifact of that kind with that content; else the one that was removed, of
which the record stays; else it is marked as missing. Down finds the artifacts that used an artifact's
content, in the catalog alone, and goes on through removed ones. Artifacts made from another artifact with
equal bytes count too, since nothing in them would differ. Inputs from outside of the store are one node per
role.
"""

from collections import deque
from contextlib import suppress
from functools import cached_property
from operator import itemgetter
from typing import TypeAlias

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store.catalog import Row
from tokmill.tasks.store.graph import Direction, Edge, Graph, Node
from tokmill.tasks.store.lineage_views import ALL_ARTIFACTS, near_by_number
from tokmill.tasks.store.record import InputEntry, Record
from tokmill.tasks.store.store import Store
from tokmill.tasks.store.tables import content_id

_USERS = f"""
    WITH RECURSIVE {near_by_number("SELECT $content::UBIGINT")},
    made AS MATERIALIZED (SELECT * FROM ({ALL_ARTIFACTS}) WHERE content_id IN (FROM near))
    SELECT DISTINCT e.input_kind, e.digest, e.role, a.kind, a.name, a.label, a.fingerprint, a.content_digest,
           a.status
    FROM edges e JOIN made a ON a.fingerprint = e.fingerprint
    ORDER BY a.kind, a.name, a.fingerprint, e.role, e.input_kind, e.digest
"""  # noqa: S608 - constants
# Joined with `near` instead of filtered by it, a million inputs become the hash table: 0.4 CPU s, not 0.1.
_EQUALS = "SELECT kind, content_digest, fingerprint FROM artifacts ORDER BY ended DESC"
_Content: TypeAlias = tuple[str, str]  # its kind and digest


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
    """One query for all generations, and no records: an artifact may have ten thousand users.

    The query answers by numbers of contents; kinds and digests decide.
    """
    uses: dict[_Content, list[tuple[int, Row]]] = {}
    number = content_id(root.kind, root.content_digest)
    for place, row in enumerate(store.catalog.query(_USERS, {"content": number})):
        uses.setdefault((row["input_kind"], row["digest"]), []).append((place, row))
    generation: dict[_Content, str] = {(root.kind, root.content_digest): root.key}
    walked = {root.key}
    while generation:
        makers, generation = generation, {}
        for _, row in sorted((use for content in makers for use in uses.get(content, ())), key=itemgetter(0)):
            user = _user(row)
            graph.add(user)
            graph.edges.append(Edge(makers[row["input_kind"], row["digest"]], user.key, row["role"]))
            if user.key not in walked:
                walked.add(user.key)
                generation[user.kind, user.content_digest] = user.key


def _user(row: Row) -> Node:
    return Node(
        status=row["status"],
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
