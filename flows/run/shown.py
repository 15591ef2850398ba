"""The Prefect artifacts of one of our artifacts: its sheet, with its own text and tables, by kind."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tokmill.flows.figures import counted, key_figures, labelled, outcome_words, span
from tokmill.flows.page.artifact import Shown, sheet
from tokmill.flows.page.links import Links, key_of
from tokmill.tasks.audit.sources import ALL
from tokmill.tasks.audit.summary import read_summary
from tokmill.tasks.card.words import without_front_matter
from tokmill.tasks.core.markdown import number
from tokmill.tasks.core.stage import ArtifactRef, Scalar
from tokmill.tasks.store import Store
from tokmill.tasks.sweep.stage import SweepSummary, to_markdown

_WORDS = {"made": "made", "cached": "cached", "waited": "waited for"}


class Piece(NamedTuple):
    """One artifact of Prefect's.

    Attributes:
        type: `markdown` or `table`.
        key: which gives it a page with all its versions.
        data: Markdown, or rows as JSON.
        description: one line; its first words are seen in the list.
    """

    type: str
    key: str
    data: str
    description: str


class _Own(NamedTuple):
    """What an artifact has to say itself: a text, and tables as (what, rows, description)."""

    text: str = ""
    tables: Sequence[tuple[str, Sequence[Mapping[str, Any]], str]] = ()


def pieces(store: Store, shown: Shown, links: Links) -> list[Piece]:
    """Return what the page of a task shows of its artifact."""
    ref = shown.ref
    own = _OWN[ref.kind](store, ref) if ref.kind in _OWN else _Own()
    return [
        Piece(
            "markdown",
            key_of(ref.kind, ref.name),
            sheet(store, shown, links, own.text),
            _in_a_line(store, shown),
        ),
        *(table_piece(key_of(what, ref.name), rows, said) for what, rows, said in own.tables),
    ]


def shards_table(group: str, rows: Sequence[tuple[str, Shown, Mapping[str, Scalar]]]) -> Piece:
    """Return one table of all shards of a stage.

    Args:
        group: the group of tasks, e.g. `encode[*]`.
        rows: the title, the artifact and the metrics of each task.
    """
    step, profile = group.removesuffix("[*]"), rows[0][1].ref.name.rpartition("/")[0].rpartition(".")[0]
    ways = Counter(_WORDS[shown.how] for _, shown, _ in rows)
    lines = [
        {
            "shard": title.removeprefix(f"{step}[").removesuffix("]"),
            "result": _WORDS[shown.how],
            "time": span(shown.seconds) if shown.how != "cached" else "",
            **dict(labelled(name, value) for name, value in metrics.items() if value not in {0, ""}),
        }
        for title, shown, metrics in sorted(rows, key=lambda row: row[0])
    ]
    said = f"{counted(len(rows), 'shard')}: {outcome_words(ways)}"
    return table_piece(key_of(f"{step}-shards", profile), lines, said)


def table_piece(key: str, rows: Sequence[Mapping[str, Any]], description: str) -> Piece:
    """Return a table; every row has the columns of all, in the order of their first appearance."""
    columns = dict.fromkeys(name for row in rows for name in row)
    full = [{name: _cell(row.get(name, "")) for name in columns} for row in rows]
    return Piece("table", key, json.dumps(full), description)


def _cell(value: Any) -> Any:
    return number(value) if isinstance(value, bool | int | float) else value


def _in_a_line(store: Store, shown: Shown) -> str:
    record, ref = store.record(shown.ref), shown.ref
    figures = key_figures(ref.kind, record.metrics)
    parts = [store.label(ref, ref.name), _WORDS[shown.how], figures]
    return " · ".join(part for part in parts if part)


def _audit(store: Store, ref: ArtifactRef) -> _Own:
    path = store.path(ref, ["summary.json", "summary.md"])
    summary = read_summary(path)
    rows = [{**row, "source": "all" if row["source"] == ALL else row["source"]} for row in summary.sources]
    limits = [("audit-limits", summary.limits, f"gate {summary.gate}: its limits")] if summary.limits else []
    text = (path / "summary.md").read_text("utf-8")
    return _Own(text, [("audit-sources", rows, "the tokenizer, by source"), *limits])


def _sweep(store: Store, ref: ArtifactRef) -> _Own:
    summary = SweepSummary.open(store.path(ref))
    return _Own(to_markdown(summary), [("sweep-cells", summary.cells, "all tokenizers of the sweep")])


def _card(store: Store, ref: ArtifactRef) -> _Own:
    return _Own(without_front_matter((store.path(ref) / "card.md").read_text("utf-8")))


_OWN: Mapping[str, Callable[[Store, ArtifactRef], _Own]] = {
    "audit": _audit,
    "sweep": _sweep,
    "card": _card,
    "tokenizer_card": _card,
}
