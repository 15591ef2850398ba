"""A lineage graph, and its drawings as a tree and as a Mermaid flowchart.

To keep the drawing small, a stage's shards of one profile, whatever their source, are drawn as one,
`encoded_shard/quickstart.* (27)`. The data (`to_json`) has them one by one.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from tokmill.tasks.store.canonical import Json

Direction: TypeAlias = Literal["up", "down", "both"]
Status: TypeAlias = Literal["published", "removed", "missing", "external"]

_HEADINGS: Final = {"up": "is made from", "down": "is used by"}


@dataclass(frozen=True)
class Node:
    """One artifact, or all inputs from outside of the store in one role of an artifact.

    Attributes:
        key: unique in the graph: the fingerprint, or `external:<fingerprint>:<role>`.
        title: for people: `kind/name@label`, or the path of the outside input.
        role, count: of outside inputs: their role, and their number.
        status: `published`, `removed` (its record stays), `missing` (gone), or `external` (from outside).
        kind, name, label, content_digest: of an artifact; empty where there is none or it is not known.
    """

    key: str
    title: str
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
                lines.extend(_branches(drawing.next_to(direction), drawing.titles, root))
        return "\n".join(lines)

    def to_mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart, from inputs to the artifacts made from them."""
        drawing = _Drawing(self)
        ids = {group: f"n{index}" for index, group in enumerate(drawing.titles)}
        lines = ["flowchart TD"]
        lines += [f'    {ids[group]}["{_mermaid_text(title)}"]' for group, title in drawing.titles.items()]
        lines += [f"    {ids[source]} --> {ids[target]}" for source, target in drawing.arrows]
        lines.append(f"    style {ids[drawing.group[self.root]]} stroke-width:3px")
        return "\n".join(lines)

    def to_graphviz(self) -> str:
        """Return the graph in Graphviz's language, from inputs to the artifacts made from them."""
        drawing = _Drawing(self)
        ids = {group: f"n{index}" for index, group in enumerate(drawing.titles)}
        lines = ["digraph lineage {", "    node [shape=box];"]
        lines += [f"    {ids[group]} [label={_quoted(title)}];" for group, title in drawing.titles.items()]
        lines += [f"    {ids[source]} -> {ids[target]};" for source, target in drawing.arrows]
        lines += [f"    {ids[drawing.group[self.root]]} [penwidth=3];", "}"]
        return "\n".join(lines)


def families(graph: Graph) -> dict[str, str]:
    """Return the group of each node: one for a stage's shards of a profile, and one for their outside inputs.

    A node that belongs to no group is alone in its own.
    """
    found = {node.key: _family(node) for node in graph.nodes.values()}
    users = {edge.source: edge.target for edge in graph.edges}
    for node in graph.nodes.values():
        if node.status == "external":
            found[node.key] = f"{found[users[node.key]]} {node.role}"
    return found


class _Drawing:
    """A graph with its shards drawn together: nodes' `group`, groups' `titles`, `arrows` between them."""

    def __init__(self, graph: Graph) -> None:
        family_of = families(graph)
        sizes = Counter(family_of.values())
        alone = {graph.root, *(key for key, family in family_of.items() if sizes[family] == 1)}
        self.group = {key: key if key in alone else family for key, family in family_of.items()}
        members: dict[str, list[Node]] = {}
        for key, group in self.group.items():
            members.setdefault(group, []).append(graph.nodes[key])
        self.titles = {group: _title(nodes, group) for group, nodes in members.items()}
        arrows = ((self.group[edge.source], self.group[edge.target]) for edge in graph.edges)
        self.arrows = [(here, there) for here, there in dict.fromkeys(arrows) if here != there]

    def next_to(self, direction: str) -> dict[str, list[str]]:
        """Return the groups next to each group: its inputs (`up`), or its users (`down`)."""
        following: dict[str, list[str]] = {}
        for source, target in self.arrows:
            here, there = (target, source) if direction == "up" else (source, target)
            following.setdefault(here, []).append(there)
        return following


def _family(node: Node) -> str:
    """Return a node's group: all shards `profile.source/3` of a profile; other nodes are alone."""
    parent, slash, _ = node.name.rpartition("/")
    profile, dot, _ = parent.rpartition(".")
    if not slash:
        return node.key
    return f"{node.kind}/{profile}.*" if dot else f"{node.kind}/{parent}/*"


def _title(nodes: list[Node], group: str) -> str:
    titles = sorted({node.title for node in nodes})
    if len(titles) == 1:
        gone = nodes[0].status in ("missing", "removed")
        return f"{titles[0]} ({nodes[0].status})" if gone else titles[0]
    if nodes[0].status == "external":
        return f"{sum(node.count for node in nodes)} × {nodes[0].role}"
    return f"{group} ({len(nodes)})"


def _branches(following: dict[str, list[str]], titles: dict[str, str], root: str) -> list[str]:
    """The lines below the root: depth first, each group's own branches drawn once."""
    lines: list[str] = []
    drawn = {root}

    def draw(group: str, indent: str) -> None:
        groups = following.get(group, [])
        for index, each in enumerate(groups):
            last = index == len(groups) - 1
            again = each in drawn and each in following
            lines.append(f"{indent}{'└─ ' if last else '├─ '}{titles[each]}{' …' if again else ''}")
            if each not in drawn:
                drawn.add(each)
                draw(each, indent + ("   " if last else "│  "))

    draw(root, "")
    return lines


def _mermaid_text(text: str) -> str:
    return text.replace("&", "#amp;").replace('"', "#quot;").replace("<", "#lt;").replace(">", "#gt;")


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'
