"""The report of a sweep: one HTML page, and its charts as files."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from tokmill.tasks.audit.report.report import CHARTS_FOLDER, REPORT_FILE
from tokmill.tasks.pages.charts import Chart, Curves, svg_of, write_charts
from tokmill.tasks.pages.page import document, note, section, table
from tokmill.tasks.sweep.cell import curve_of
from tokmill.tasks.sweep.stage import SweepSummary, as_table

_UNITS = {
    "embedding_parameters": "embedding parameters",
    "bytes_per_token": "bytes per token",
    "operations_per_byte": "operations per byte",
    "max_premium": "greatest premium",
}


def write_sweep_report(folder: Path, out: Path) -> Path:
    """Write the report of the sweep in `folder`, and its charts; returns the path of the HTML file."""
    summary = SweepSummary.open(folder)
    charts = sweep_charts(summary)
    write_charts(charts, out / CHARTS_FOLDER)
    path = out / REPORT_FILE
    path.write_text(_page(summary, charts), "utf-8")
    return path


def sweep_charts(summary: SweepSummary) -> list[Chart]:
    """Return compression and cost over the size of the embedding, and premium against compression."""
    charts = [
        _curves(summary.cells, "compression", "Compression", "embedding_parameters", "bytes_per_token"),
        _curves(summary.cells, "cost", "Cost of text", "embedding_parameters", "operations_per_byte"),
        _curves(summary.cells, "premium", "Premium against compression", "bytes_per_token", "max_premium"),
    ]
    return [chart for chart in charts if chart.lines]


def _curves(rows: Sequence[Mapping[str, Any]], name: str, title: str, across: str, up: str) -> Curves:
    """Return a line for each family and temperature; knees and the recommended cell are marked."""
    lines: dict[str, list[tuple[float, float]]] = {}
    marks = []
    for row in (row for row in rows if row[across] and row[up]):
        point = (float(row[across]), float(row[up]))
        lossy = " (lossy)" if row["lossy"] else ""
        lines.setdefault(curve_of(row["family"], row["temperature"]) + lossy, []).append(point)
        if row["recommended"] or row["knee"]:
            marks.append((*point, f"{row['cell']}: {'recommended' if row['recommended'] else 'knee'}"))
    ordered = {name: sorted(line) for name, line in lines.items()}
    return Curves(name, title, _UNITS[across], _UNITS[up], ordered, marks)


def _page(summary: SweepSummary, charts: Iterable[Chart]) -> str:
    title = f"Sweep of {len(summary.cells)} tokenizers"
    heads, shown = as_table(summary)
    rows = [dict(zip(heads, row, strict=True)) for row in shown]
    changes = "".join(f"<li>{escape(change)}</li>" for change in summary.changes)
    pictures = "".join(svg_of(chart) for chart in charts)
    text = "held-out text" if summary.text == "held_out" else "the text that they were trained on"
    return document(
        title,
        {"recommended": "Recommended", "curves": "Curves", "cells": "Tokenizers", "costs": "Costs"},
        [
            section(
                "recommended",
                f"Recommended: {summary.recommended or 'none'}",
                note(summary.reason),
                f"<p>Other settings would recommend:</p><ul>{changes}</ul>" if changes else "",
            ),
            section("curves", "Curves", note("Circles are knees and the recommended one."), pictures),
            section(
                "cells", "Tokenizers", table(f"Measured on {text}", rows, {head: head for head in heads})
            ),
            _more(summary),
        ],
    )


def _more(summary: SweepSummary) -> str:
    columns = {
        "cell": "tokenizer",
        "num_ids": "ids",
        "num_used": "ids that occur",
        "num_tokens": "tokens",
        "min_bytes_per_token": "bytes per token of the least compressed source",
        "gini": "Gini of languages",
        "operations_per_token": "operations per token",
        "output_share": "output layer",
        "attention_share": "attention",
        "context_bytes": "bytes of text in the context",
    }
    shown = {
        name: head for name, head in columns.items() if any(row[name] is not None for row in summary.cells)
    }
    caption = f"A{summary.params.words[1:]}"
    return section("costs", "Costs", table(caption, summary.cells, shown))
