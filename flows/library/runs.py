"""The runs of a store as a table: filtered, sorted, with metrics and parameters as columns."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from html import escape
from typing import Any

from tokmill.flows.cli.lookup import columns_named, moment_since, order_by
from tokmill.flows.library.table import Table
from tokmill.tasks.core.stage import ArtifactRef, Scalar
from tokmill.tasks.store import Direction, Graph, Store, lineage
from tokmill.tasks.store.references import RunFilter, list_runs
from tokmill.tasks.store.rows import as_json
from tokmill.tokenizer.core import markup

_TEXTS = (
    *("run_id", "name", "profile", "experiment", "state", "message", "started_by", "user_name", "host"),
    *("tokmill", "git_commit", "url"),
)
_NUMBERS = ("attempt", "num_made", "num_cached", "num_waited", "peak_bytes")
_MOMENTS = ("started", "ended")
_ORDER = (
    *("run_id", "attempt", "name", "profile", "experiment", "tags", "state", "message", *_MOMENTS),
    *("seconds", "num_made", "num_cached", "num_waited", "peak_bytes", "started_by", "user_name"),
    *("host", "tokmill", "git_commit", "git_dirty", "url"),
)
"""The columns that every list has."""


def table_of_runs(
    store: Store, where: RunFilter, sort: str, show: Sequence[str], best: int | None, lowest: bool | None
) -> Table:
    """Return one row per run.

    Args:
        store: whose runs.
        where: which ones; `since` is `7d`, `12h`, or a date.
        sort: the column to sort by.
        show: further metrics and parameters.
        best: how many of the best to return; None for all.
        lowest: whether the lowest value comes first; None where the name says it.

    Raises:
        UsageError: there is no such metric or parameter, or it is not known what is better.
    """
    import pyarrow as pa  # noqa: PLC0415 - `import tokmill` stays quick

    where = replace(where, since=moment_since(where.since))
    by, *others = columns_named(store, [sort, *show])
    order = order_by(by, lowest=lowest, best=best is not None)
    rows = list_runs(store.catalog, where, [by, *others], order, best, complete=best is not None)
    named = [column.label for column in dict.fromkeys([by, *others]) if column.of != "field"]
    columns = {name: _column(rows, name) for name in _ORDER}
    values = {name: _values([row["values"][name] for row in rows]) for name in named}
    return Table(pa.table({**columns, **values}), f"Runs of {store.location}")


def _column(rows: Sequence[dict[str, Any]], name: str) -> Any:
    import pyarrow as pa  # noqa: PLC0415

    values = [row[name] for row in rows]
    if name in _TEXTS:
        return pa.array(values, pa.string())
    if name in _NUMBERS:
        return pa.array(values, pa.int64())
    if name in _MOMENTS:
        return pa.array([_moment(value) for value in values], pa.timestamp("s"))
    kinds = {"tags": pa.list_(pa.string()), "seconds": pa.float64(), "git_dirty": pa.bool_()}
    return pa.array(values, kinds[name])


def _values(found: Sequence[Scalar | None]) -> Any:
    """Return metrics or parameters as a column: of one type if that loses nothing, else as texts.

    Seeds may have all of 64 bits, which neither int64 nor a float holds, and a setting may be a number in one
    run and a word or a table in another.
    """
    import pyarrow as pa  # noqa: PLC0415

    with suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array(found)
    if all(isinstance(value, int) and value >= 0 for value in found if value is not None):
        return pa.array(found, pa.uint64())
    texts = (value if value is None or isinstance(value, str) else as_json(value) for value in found)
    return pa.array(texts, pa.string())


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=None)


@dataclass(frozen=True)
class Lineage:
    """What an artifact was made from, or what was made from it.

    Attributes:
        graph: the graph, with `to_tree()`, `to_mermaid()` and `to_json()`.
    """

    graph: Graph

    @classmethod
    def of(cls, store: Store, ref: ArtifactRef, direction: Direction) -> "Lineage":
        """Follow the records of a store, up, down, or both."""
        return cls(lineage(store, ref, direction))

    @property
    def nodes(self) -> Table:
        """One row per artifact, or per role of inputs from outside: key, title, status, kind, name, label."""
        return _table([dict(vars(node)) for node in self.graph.nodes.values()], "Nodes")

    @property
    def edges(self) -> Table:
        """One row per use: `source` is an input of `target`, in a role."""
        return _table([dict(vars(edge)) for edge in self.graph.edges], "Edges")

    def to_tree(self) -> str:
        """Return the graph as an indented tree, shards drawn together."""
        return self.graph.to_tree()

    def to_mermaid(self) -> str:
        """Return the graph as a Mermaid flowchart."""
        return self.graph.to_mermaid()

    def __repr__(self) -> str:
        return self.to_tree()

    def _repr_html_(self) -> str:
        return markup.sheet("Lineage", f"<pre>{escape(self.to_tree())}</pre>")


def _table(rows: list[dict[str, object]], title: str) -> Table:
    import pyarrow as pa  # noqa: PLC0415 - `import tokmill` stays quick

    return Table(pa.Table.from_pylist(rows), title)
