"""Lineage: what an artifact was made from, and what was made from it.

Up follows the inputs in the records. An input is the artifact that the record names, if its content is still
the one that was used; else any artifact of that kind with that content; else it is told as missing. Down
finds, in the catalog, the artifacts that used an artifact's content: those that were made from another
artifact with equal bytes count, since nothing in them would differ. What came from outside of the store is
one node a role.
"""

from tasks.errors import StoreError
from tasks.stage import ArtifactRef
from tasks.store.graph import Direction, Edge, Graph, Node
from tasks.store.record import InputEntry, Record
from tasks.store.store import Store

_USERS = """
    SELECT DISTINCT i.role, a.kind, a.fingerprint
    FROM inputs i JOIN artifacts a USING (fingerprint)
    WHERE i.input_kind = $kind AND i.digest = $digest ORDER BY a.kind, a.fingerprint, i.role
"""
_EQUALS = "SELECT fingerprint FROM artifacts WHERE kind = $kind AND content_digest = $digest ORDER BY ended"


def lineage(store: Store, ref: ArtifactRef, direction: Direction = "up") -> Graph:
    """Return the graph of what `ref` was made from (`up`), what used it (`down`), or both.

    Raises:
        StoreError: `ref` is not in the store, or the catalog is busy for too long.
    """
    record = store.record(ref)
    graph = Graph(record.fingerprint, direction)
    graph.add(_node(record))
    if direction in ("up", "both"):
        _walk_up(store, graph, record)
    if direction in ("down", "both"):
        _walk_down(store, graph, record)
    return graph


def _walk_up(store: Store, graph: Graph, root: Record) -> None:
    waiting = [root]
    while waiting:
        record = waiting.pop(0)
        graph.edges.extend(_external_edges(graph, record))
        for entry in record.inputs:
            if entry.kind is None:
                continue
            found = _input_record(store, entry)
            node = _node(found) if found else _missing(entry)
            graph.edges.append(Edge(node.key, record.fingerprint, entry.role))
            if graph.add(node) and found:
                waiting.append(found)


def _walk_down(store: Store, graph: Graph, root: Record) -> None:
    waiting = [root]
    walked = {root.fingerprint}
    while waiting:
        record = waiting.pop(0)
        content = {"kind": record.kind, "digest": record.content_digest}
        for row in store.catalog.query(_USERS, content):
            user = store.read(row["kind"], row["fingerprint"])
            graph.add(_node(user))
            graph.edges.append(Edge(record.fingerprint, user.fingerprint, row["role"]))
            if user.fingerprint not in walked:
                walked.add(user.fingerprint)
                waiting.append(user)


def _input_record(store: Store, entry: InputEntry) -> Record | None:
    """The record of what was used: by its fingerprint, else by its content."""
    try:
        record = store.read(entry.kind or "", entry.fingerprint or "")
        if record.content_digest == entry.digest:
            return record
    except StoreError:  # removed or damaged since; another artifact may hold the same bytes
        pass
    equal = store.catalog.query(_EQUALS, {"kind": entry.kind, "digest": entry.digest})
    return store.read(entry.kind or "", equal[0]["fingerprint"]) if equal else None


def _node(record: Record) -> Node:
    return Node(
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
    """Add one node for each role that took something from outside; return their edges."""
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
