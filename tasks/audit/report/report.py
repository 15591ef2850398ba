"""Write a report: one HTML file that needs no network, and its charts as files beside it.

The page works without JavaScript as far as charts and tables go. With it there are a table of all tokens, and
the merge tree of each.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokmill.tasks.audit.learned import Learned
from tokmill.tasks.audit.report import sections
from tokmill.tasks.audit.report.tables import Row, Tables, source_name
from tokmill.tasks.audit.sources import ALL
from tokmill.tasks.audit.summary import read_summary
from tokmill.tasks.core.markdown import number
from tokmill.tasks.pages.charts import Bar, Bars, Chart, Curves, svg_of, write_charts
from tokmill.tasks.pages.page import document, section, static
from tokmill.tokenizer import Tokenizer

OWN = "this tokenizer"
REPORT_FILE = "report.html"
CHARTS_FOLDER = "charts"
MAX_LINES = 20
_MAX_SCRIPTS = 20
_PACKAGE = "tokmill.tasks.audit.report"
_PLAIN = ("token_id", "text", "num_bytes", "num_training", "rank", "left", "right", "reachable", "redundant")
_NAMED = ("kind", "scripts")
_CONTENTS = {
    "gate": "Gate",
    "scripts": "Scripts",
    "sources": "Sources",
    "premium": "Premium",
    "curves": "Distributions",
    "suspects": "Suspects",
    "probes": "Probes",
    "compared": "Compared",
    "tokens": "Tokens",
}


def write_report(
    folder: Path,
    out: Path,
    *,
    tokenizer: Tokenizer,
    compared: Mapping[str, Tokenizer] | None = None,
    usage: Path | None = None,
    learned: Learned | None = None,
) -> Path:
    """Write the report of an audit.

    Args:
        folder: the audit.
        out: the folder that gets `report.html` and `charts/NAME.svg`; with matplotlib also `charts/NAME.png`.
        tokenizer: the tokenizer that was audited.
        compared: other tokenizers by name, which are shown side by side with it.
        usage: the folder of the usage artifact that was made with this audit, for the suspects.
        learned: what a model has learned of the suspects of `usage`.

    Returns:
        The path of the HTML file.

    Raises:
        AuditError, StoreError: the folder is not an audit, or a file is broken or of another version.
    """
    gate, tables = read_summary(folder).gate, Tables(folder, usage, learned)
    charts = charts_of(tables)
    write_charts(charts, out / CHARTS_FOLDER)
    path = out / REPORT_FILE
    path.write_text(_page(gate, tables, charts, {OWN: tokenizer, **(compared or {})}), "utf-8")
    return path


def _page(gate: str, tables: Tables, charts: Sequence[Chart], tokenizers: Mapping[str, Tokenizer]) -> str:
    tok = tokenizers[OWN]
    pictures = {chart.name: svg_of(chart) for chart in charts}
    return document(
        f"Audit of a {tok.family} tokenizer with {number(tok.vocab_size)} tokens",
        {name: text for name, text in _CONTENTS.items() if name != "compared" or len(tokenizers) > 1},
        [
            sections.overview(gate, tables),
            sections.vocabulary(tables, pictures),
            sections.sources(tables, pictures),
            sections.parity(tables, pictures),
            sections.curves(tables, pictures),
            sections.suspects(tables),
            sections.probes(tables),
            sections.comparison(tokenizers) if len(tokenizers) > 1 else "",
            section("tokens", "All tokens", static("tokens.html", _PACKAGE)),
        ],
        data=_columns(tables),
        scripts=[static("tokens.js", _PACKAGE)],
    )


def _columns(tables: Tables) -> dict[str, Any]:
    """Return the columns of the tokens that the page shows; texts that repeat are numbered."""
    columns: dict[str, Any] = {name: list(tables.column("vocab_tokens", name)) for name in _PLAIN}
    for name in _NAMED:
        values = tables.column("vocab_tokens", name)
        names = sorted(set(values))
        numbers = {name: k for k, name in enumerate(names)}
        columns[name] = {"names": names, "places": [numbers[value] for value in values]}
    return columns


def charts_of(tables: Tables) -> list[Chart]:
    """Return the charts that the tables of an audit have rows for."""
    sources = tables.rows("vocab_sources")
    made: list[Chart] = [
        _scripts(tables),
        _by_source("fertility", "Tokens per word", "tokens per word", sources),
        _by_source("bytes-per-token", "Bytes per token", "bytes per token", sources),
        _premium(tables.rows("vocab_parity")),
        _curves(tables, "vocab_lengths", "lengths", "num_bytes", "bytes of a token"),
        _curves(tables, "vocab_frequencies", "frequencies", "rank", "rank"),
    ]
    return [chart for chart in made if (chart.bars if isinstance(chart, Bars) else chart.lines)]


def _scripts(tables: Tables) -> Bars:
    column = tables.column("vocab_tokens", "scripts")
    counted = Counter(value for value in column if value)
    bars = [Bar(script, number) for script, number in counted.most_common(_MAX_SCRIPTS)]
    title = f"Tokens by script{_first_of(len(bars), len(counted))}"
    return Bars("scripts", title, "tokens", tuple(bars))


def _by_source(name: str, title: str, unit: str, rows: Iterable[Row]) -> Bars:
    column = name.replace("-", "_")
    bars = [Bar(source_name(row["source"]), row[column]) for row in rows if row.get(column) is not None]
    return Bars(name, title, unit, _sorted(bars))


def _premium(rows: Sequence[Row]) -> Bars:
    bars = [
        Bar(row["language"], row["premium"], row.get("premium_low"), row.get("premium_high"))
        for row in rows
        if row.get("premium") is not None
    ]
    reference = rows[0]["reference"] if rows else ""
    title = f"Premium against {reference}, with 95 % intervals"
    return Bars("premium", title, f"tokens over those of {reference}", _sorted(bars), 1.0)


def _sorted(bars: Iterable[Bar]) -> tuple[Bar, ...]:
    return tuple(sorted(bars, key=lambda bar: (-bar.value, bar.label)))


def _curves(tables: Tables, table: str, name: str, column: str, across: str) -> Curves:
    """Return the curve of all sources, and those of the sources that come first."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in tables.rows(table):
        if row[column] > 0 and row["num_occurrences"] > 0:
            found.setdefault(row["source"], []).append((row[column], row["num_occurrences"]))
    order = sorted(found, key=lambda source: source != ALL)[:MAX_LINES]
    lines = {source_name(source): sorted(found[source]) for source in order}
    titles = {"lengths": "Occurrences by length of token", "frequencies": "Occurrences by rank"}
    title = f"{titles[name]}{_first_of(len(lines), len(found))}"
    return Curves(name, title, across, "occurrences", lines)


def _first_of(shown: int, number_of: int) -> str:
    return f" (the first {shown} of {number_of})" if shown < number_of else ""
