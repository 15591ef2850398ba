"""sweep: the tokenizers of a sweep side by side, and which of them to take.

The artifact has `summary.json`, `summary.md` and below `catalog/` tables of the tokenizers, by source and by
language of parallel text.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tokmill.tasks.core.markdown import percent, table
from tokmill.tasks.core.stage import Outcome, Scalar, Stage
from tokmill.tasks.formats.files.arrays import write_catalog
from tokmill.tasks.formats.files.manifests import Entry, read_model, write_model
from tokmill.tasks.sweep.cell import Cell
from tokmill.tasks.sweep.recommendation import SweepParams, cost_of, knees, operations_text, recommend

SUMMARY_FILE = "summary.json"
_I, _F, _S, _B = pa.int64(), pa.float64(), pa.string(), pa.bool_()
CELLS = pa.schema(
    [
        *(("cell", _S), ("family", _S), ("temperature", _F), ("vocab_size", _I), ("num_ids", _I)),
        *(("num_bytes", _I), ("num_tokens", _I), ("bytes_per_token", _F), ("unknown_share", _F)),
        *(("num_used", _I), ("min_bytes_per_token", _F), ("max_premium", _F), ("dearest", _S)),
        *(("gini", _F), ("embedding_parameters", _I), ("embedding_share", _F)),
        *(("operations_per_token", _I), ("attention_share", _F), ("output_share", _F)),
        *(("operations_per_byte", _F), ("context_bytes", _F)),
        *(("lossy", _B), ("knee", _B), ("recommended", _B)),
    ]
)
SOURCES = pa.schema(
    [
        *(("cell", _S), ("source", _S), ("num_documents", _I), ("num_bytes", _I), ("num_tokens", _I)),
        *(("bytes_per_token", _F), ("unknown_share", _F)),
    ]
)
LANGUAGES = pa.schema([("cell", _S), ("language", _S), ("num_tokens", _I), ("premium", _F)])
LOSSY = (
    "Lossy: a part of the text is unknown to the tokenizer, or may come back changed (normalized, or with "
    "other spaces); what is lost costs no tokens."
)
SHOWN = {
    "cell": "tokenizer",
    "bytes_per_token": "bytes/token",
    "max_premium": "premium",
    "unknown_share": "unknown",
    "operations_per_byte": "ops/byte",
    "embedding_parameters": "embedding",
    "embedding_share": "of model",
    "marks": "",
}
"""The columns that a wide terminal has room for, with their headings."""
_IN_FULL = {
    "cell": "tokenizer",
    "marks": "",
    "bytes_per_token": "bytes per token",
    "max_premium": "greatest premium",
    "unknown_share": "unknown",
    "embedding_parameters": "embedding parameters",
    "embedding_share": "share of the model",
    "operations_per_byte": "operations per byte",
    "attention_share": "attention",
}


class SweepSummary(Entry):
    """The content of `summary.json`."""

    text: str  # what was measured: "held_out", or "training" where no text is held out
    params: SweepParams  # the model that the costs are for
    cells: list[dict[str, Any]]
    """The rows of `sweep_cells`, by family, temperature and size; those that lose text come last."""
    recommended: str | None  # the recommended cell's label; None if there is none
    reason: str
    changes: list[str]  # what would change the recommendation

    @classmethod
    def open(cls, path: Path) -> "SweepSummary":
        """Read the summary in the directory `path`."""
        return read_model(path / SUMMARY_FILE, cls, "summary of a sweep")


class SweepStageParams(SweepParams):
    """The model, and whether the measured text was held out."""

    held_out: bool


def run(params: SweepStageParams, *, out: Path, cells: Sequence[Path]) -> Outcome:
    """Write the tables and the summary into `out`."""
    found = sorted((Cell.open(path) for path in cells), key=_order)
    model = SweepParams.model_validate(params.model_dump(exclude={"held_out"}))
    chosen, at_knee = recommend(model, found), set(knees(model, found).values())
    summary = SweepSummary(
        text="held_out" if params.held_out else "training",
        params=model,
        cells=[_row(model, cell, at_knee, chosen.cell) for cell in found],
        recommended=chosen.cell,
        reason=chosen.reason,
        changes=list(chosen.changes),
    )
    _write_tables(out, summary, found)
    write_model(out / SUMMARY_FILE, summary)
    (out / "summary.md").write_text(to_markdown(summary), "utf-8")
    return Outcome(metrics=_metrics(summary))


def to_markdown(summary: SweepSummary) -> str:
    """Return the summary for people."""
    text = "held-out text" if summary.text == "held_out" else "the text that was trained on: none is held out"
    parts = [
        "# Sweep",
        f"{len(summary.cells)} tokenizers, measured on {text}.",
        "\n".join(table(*as_table(summary), left=(0, 1))),
        f"Costs are those of {summary.params.words}.",
        LOSSY if any(row["lossy"] for row in summary.cells) else "",
        "## Recommendation",
        f"**{summary.recommended}**" if summary.recommended else "",
        summary.reason,
        "\n".join(f"- {change}" for change in summary.changes),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def as_table(
    summary: SweepSummary, columns: Mapping[str, str] = _IN_FULL
) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows for people, without columns that have no value in any cell.

    Marks say whether a cell loses text, is a knee, and is recommended.
    """
    rows = [
        {**row, "marks": ", ".join(mark for mark in ("lossy", "knee", "recommended") if row[mark])}
        for row in summary.cells
    ]
    shown = {name: head for name, head in columns.items() if any(row[name] is not None for row in rows)}
    return [*shown.values()], [[_text_of(name, row) for name in shown] for row in rows]


def _text_of(name: str, row: Mapping[str, Any]) -> str:
    value = row[name]
    if value is None:
        return "–"
    if name.endswith("_share"):
        return percent(value, 2 if name == "unknown_share" else 1)
    if name == "max_premium":
        return f"{value:.2f} ({row['dearest']})"
    if name == "embedding_parameters":
        return f"{value / 1e6:,.1f} M" if value >= 1e6 else f"{value / 1e6:.3f} M"
    if name == "operations_per_byte":
        return operations_text(value)
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _order(cell: Cell) -> tuple[bool, str, float, int]:
    """Those that lose text come last: what they lose costs nothing, so their figures do not compare."""
    return cell.lossy, cell.family, cell.temperature or 0, cell.vocab_size


def _row(params: SweepParams, cell: Cell, knees: set[str], recommended: str | None) -> dict[str, Any]:
    columns = cell.model_dump(exclude={"sources", "languages", "reference", "keeps_text"})
    return {
        "cell": cell.label,
        **columns,
        **{name: getattr(cell, name) for name in ("min_bytes_per_token", "max_premium", "dearest")},
        **cost_of(params, cell.num_ids, cell.bytes_per_token)._asdict(),
        "lossy": cell.lossy,
        "knee": cell.label in knees,
        "recommended": cell.label == recommended,
    }


def _write_tables(out: Path, summary: SweepSummary, cells: Sequence[Cell]) -> None:
    sources = [{"cell": cell.label, **one.model_dump()} for cell in cells for one in cell.sources]
    languages = [{"cell": cell.label, **one.model_dump()} for cell in cells for one in cell.languages]
    tables = {
        "sweep_cells": pa.Table.from_pylist(summary.cells, CELLS),
        "sweep_sources": pa.Table.from_pylist(sources, SOURCES),
        "sweep_languages": pa.Table.from_pylist(languages, LANGUAGES),
    }
    write_catalog(out, tables)


def _metrics(summary: SweepSummary) -> dict[str, Scalar]:
    best: Mapping[str, Any] = next((row for row in summary.cells if row["recommended"]), {})
    found = {name: best.get(name) for name in ("bytes_per_token", "max_premium")}
    return {
        "num_cells": len(summary.cells),
        "text": summary.text,
        "recommended": summary.recommended or "none",
        **{name: value for name, value in found.items() if value is not None},
    }


SWEEP = Stage(verb="sweep", task="sweep", kind="sweep", version=4, params=SweepStageParams, run=run)
