"""Lineage: the artifacts that an artifact was made from, and those made from it, also removed ones.

An input is the artifact that the record names, if it has the content that was used; else any with that
content; else a removed one; else it is missing. In a drawing, a stage's shards of a profile are one node.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store.fingerprint import Json
from tokmill.tasks.store.record import InputEntry, Record
from tokmill.tasks.store.rows import content_id
from tokmill.tasks.store.snapshot import Row
from tokmill.tasks.store.tables import ALL_ARTIFACTS, near_by_number

if TYPE_CHECKING:
    from tokmill.tasks.store.store import Store

Direction: TypeAlias = Literal["up", "down", "both"]
Status: TypeAlias = Literal["published", "removed", "missing", "external"]

_HEADINGS: Final = {"up": "is made from", "down": "is used by"}
# Joined with `near` instead of filtered by it, a million inputs become the hash table: 0.4 CPU s, not 0.1.
_USERS = f"""
    WITH RECURSIVE {near_by_number("SELECT $content::UBIGINT")},
    made AS MATERIALIZED (SELECT * FROM ({ALL_ARTIFACTS}) WHERE content_id IN (FROM near))
    SELECT DISTINCT e.input_kind, e.digest, e.role, a.kind, a.name, a.label, a.fingerprint, a.content_digest,
           a.status
    FROM edges e JOIN made a ON a.fingerprint = e.fingerprint
    ORDER BY a.kind, a.name, a.fingerprint, e.role, e.input_kind, e.digest
"""  # noqa: S608 - constants
_EQUALS = "SELECT kind, content_digest, fingerprint FROM artifacts ORDER BY ended DESC"


@dataclass(frozen=True)
class Node:
    """One artifact, or all inputs from outside of the store in one role of an artifact.

    Attributes:
        role, count: of outside inputs: their role, and their number.
        status: `published`, `removed` (its record stays), `missing` (gone), or `external` (from outside).
        kind, name, label, content_digest: of an artifact; empty where there is none or it is not known.
    """

    key: str  # unique in the graph: the fingerprint, or `external:<fingerprint>:<role>`
    title: str  # for people: `kind/name@label`, or the path of the outside input
    status: Status = "published"
    kind: str = ""
    name: str = ""
    label: str = ""
    content_digest: str = ""
    role: str = ""
    count: int = 1


@dataclass(frozen=True)
class Edge:
    """`source` is an input of `target`, in the given role."""

    source: str
    target: str
    role: str


@dataclass
class Graph:
    """Nodes by key, and edges, in the order they were found; `root` is the key of the artifact asked for."""

    root: str
    direction: Direction
    nodes: dict[str, Node] = field(default_factory=dict)
    edges: list[Edge] = field(default_factory=list)

    def add(self, node: Node) -> bool:
        """Add a node; return whether it is new."""
        return self.nodes.setdefault(node.key, node) is node

    def to_json(self) -> dict[str, Json]:
        """Return the whole graph as plain data, shards one by one."""
        nodes: list[Json] = [dict(vars(node)) for node in self.nodes.values()]
        edges: list[Json] = [dict(vars(edge)) for edge in self.edges]
        return {"root": self.root, "direction": self.direction, "nodes": nodes, "edges": edges}

    def to_tree(self) -> str:
        """Return the graph as an indented tree from the root; a repeated branch is marked `…`."""
        drawing = _Drawing(self)
        root = drawing.group[self.root]
        lines: list[str] = []
        for direction, heading in _HEADINGS.items():
            if self.direction in (direction, "both"):
                title = drawing.titles[root]
                lines.append(f"{title} {heading}" if self.direction == "both" else title)
                lines.extend(drawing.branches(root, direction))
        return "\n".join(lines)

    def to_mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart, from inputs to the artifacts made from them."""
        return self._drawn(
            ("flowchart TD", '    {}["{}"]', "    {} --> {}", "    style {} stroke-width:3px"), _mermaid_text
        )

    def to_graphviz(self) -> str:
        """Return the graph in Graphviz's language, from inputs to the artifacts made from them."""
        head = "digraph lineage {\n    node [shape=box];"
        return self._drawn((head, "    {} [label={}];", "    {} -> {};", "    {} [penwidth=3];\n}}"), _quoted)

    def _drawn(self, templates: tuple[str, str, str, str], text: Callable[[str], str]) -> str:
        head, node, arrow, root = templates
        drawing = _Drawing(self)
        ids = {group: f"n{index}" for index, group in enumerate(drawing.titles)}
        lines = [head]
        lines += [node.format(ids[group], text(title)) for group, title in drawing.titles.items()]
        lines += [arrow.format(ids[source], ids[target]) for source, target in drawing.arrows]
        return "\n".join([*lines, root.format(ids[drawing.group[self.root]])])


def families(graph: Graph) -> dict[str, str]:
    """Return the group of each node: one for a stage's shards of a profile, and one for their outside inputs.

    A node that belongs to no group is alone in its own.
    """
    groups = {}
    for node in graph.nodes.values():
        parent, slash, _ = node.name.rpartition("/")  # a shard is `profile.source/3`
        profile, dot, _ = parent.rpartition(".")
        group = f"{node.kind}/{profile}.*" if dot else f"{node.kind}/{parent}/*"
        groups[node.key] = group if slash else node.key
    users = {edge.source: edge.target for edge in graph.edges}
    outside = [node for node in graph.nodes.values() if node.status == "external"]
    return groups | {node.key: f"{groups[users[node.key]]} {node.role}" for node in outside}


class _Drawing:
    """A graph with its shards drawn together: nodes' `group`, groups' `titles`, `arrows` between them."""

    def __init__(self, graph: Graph) -> None:
        family_of = families(graph)
        sizes = Counter(family_of.values())
        self.group = {
            key: key if key == graph.root or sizes[family] == 1 else family
            for key, family in family_of.items()
        }
        members = defaultdict[str, list[Node]](list)
        for key, group in self.group.items():
            members[group].append(graph.nodes[key])
        self.titles = {group: _title(nodes, group) for group, nodes in members.items()}
        arrows = ((self.group[edge.source], self.group[edge.target]) for edge in graph.edges)
        self.arrows = [(here, there) for here, there in dict.fromkeys(arrows) if here != there]

    def branches(self, root: str, direction: str) -> Iterator[str]:
        """Yield the lines below the root: depth first, each group's own branches drawn once."""
        following = defaultdict[str, list[str]](list)  # the inputs of each group (`up`), or its users
        for source, target in self.arrows:
            here, there = (target, source) if direction == "up" else (source, target)
            following[here].append(there)

        def below(group: str, indent: str) -> list[tuple[str, str, bool]]:
            return [(each, indent, each is following[group][-1]) for each in reversed(following[group])]

        drawn = {root}
        waiting = below(root, "")
        while waiting:
            group, indent, is_last = waiting.pop()
            again = " …" if group in drawn and following[group] else ""
            yield f"{indent}{'└─ ' if is_last else '├─ '}{self.titles[group]}{again}"
            if group not in drawn:
                drawn.add(group)
                waiting += below(group, indent + ("   " if is_last else "│  "))


def _title(nodes: list[Node], group: str) -> str:
    titles, status = {node.title for node in nodes}, nodes[0].status
    if len(titles) == 1:
        return f"{nodes[0].title} ({status})" if status in ("missing", "removed") else nodes[0].title
    if status == "external":
        return f"{sum(node.count for node in nodes)} × {nodes[0].role}"
    return f"{group} ({len(nodes)})"


def _mermaid_text(text: str) -> str:
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def lineage(store: "Store", ref: ArtifactRef, direction: Direction = "up") -> Graph:
    """Return the graph of the artifacts that `ref` was made from (`up`), that used it (`down`), or both."""
    record = store.past_record(ref)
    graph = Graph(record.fingerprint, direction)
    root = _node(record, store)
    graph.add(root)
    if direction in ("up", "both"):
        _walk_up(store, graph, record)
    if direction in ("down", "both"):
        _walk_down(store, graph, root)
    return graph


def _walk_up(store: "Store", graph: Graph, root: Record) -> None:
    equals = _Equals(store)
    waiting = deque([root])
    while waiting:
        record = waiting.popleft()
        _add_external(graph, record)
        for entry in record.inputs:
            if entry.kind is None:
                continue
            used = equals.record_of(entry)
            node = _node(used, store) if used else _missing(entry)
            graph.edges.append(Edge(node.key, record.fingerprint, entry.role))
            if graph.add(node) and used:
                waiting.append(used)


def _walk_down(store: "Store", graph: Graph, root: Node) -> None:
    """One query for all generations, and no records: an artifact may have ten thousand users.

    The query answers by numbers of contents; kinds and digests decide.
    """
    uses = defaultdict[tuple[str, str], list[tuple[int, Row]]](list)  # by kind and content digest
    number = content_id(root.kind, root.content_digest)
    for place, row in enumerate(store.catalog.query(_USERS, {"content": number})):
        uses[row.pop("input_kind"), row.pop("digest")].append((place, row))
    generation = {(root.kind, root.content_digest): root.key}
    walked = {root.key}
    while generation:
        makers, generation = generation, {}
        users = [(place, key, row) for content, key in makers.items() for place, row in uses.get(content, ())]
        for _, maker, row in sorted(users, key=itemgetter(0)):
            about = {name: row[name] for name in ("status", "kind", "name", "label", "content_digest")}
            user = Node(row["fingerprint"], f"{row['kind']}/{row['name']}@{row['label']}", **about)
            graph.add(user)
            graph.edges.append(Edge(maker, user.key, row["role"]))
            if user.key not in walked:
                walked.add(user.key)
                generation[user.kind, user.content_digest] = user.key


class _Equals:
    """Finds the artifact of an input: by its fingerprint, else any with its content, else a removed one."""

    def __init__(self, store: "Store") -> None:
        self._store = store

    def record_of(self, entry: InputEntry) -> Record | None:
        """Return the record of the used artifact, or None if nothing has its content any more."""
        kind = entry.kind or ""
        if record := self._with_content(self._store.read, entry):
            return record
        if equal := self._by_content.get((kind, entry.digest)):  # removed or damaged since
            return self._store.read(kind, equal)
        return self._with_content(self._store.past, entry)

    def _with_content(self, read: Callable[[str, str], Record], entry: InputEntry) -> Record | None:
        with suppress(StoreError):
            record = read(entry.kind or "", entry.fingerprint or "")
            return record if record.content_digest == entry.digest else None
        return None

    @cached_property
    def _by_content(self) -> dict[tuple[str, str], str]:
        rows = self._store.catalog.query(_EQUALS)
        return {(row["kind"], row["content_digest"]): row["fingerprint"] for row in rows}


def _node(record: Record, store: "Store") -> Node:
    status: Status = "published" if store.holds(record.ref) else "removed"
    about = record.ref.model_dump(exclude={"fingerprint"})
    return Node(record.fingerprint, record.reference, status, label=record.label, **about)


def _missing(entry: InputEntry) -> Node:
    kind, name = entry.kind or "", entry.name or ""
    key = entry.fingerprint or entry.digest
    return Node(key, f"{kind}/{name}", "missing", kind=kind, name=name, content_digest=entry.digest)


def _add_external(graph: Graph, record: Record) -> None:
    """Add one node for each role with inputs from outside of the store."""
    roles = defaultdict[str, list[InputEntry]](list)
    for entry in record.inputs:
        if entry.kind is None:
            roles[entry.role].append(entry)
    for role, entries in roles.items():
        one = entries[0].origin or f"{role} {entries[0].digest[:12]}"
        title = one if len(entries) == 1 else f"{len(entries)} × {role}"
        key = f"external:{record.fingerprint}:{role}"
        graph.add(Node(key, title, "external", role=role, count=len(entries)))
        graph.edges.append(Edge(key, record.fingerprint, role))
