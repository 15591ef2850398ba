"""Write a report: one HTML file that needs no network, and its charts as files beside it.

The page works without JavaScript as far as charts and tables go. With it there are a table of all tokens, the
merge tree of each, and a field that encodes what one types.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tokmill.tasks.audit.learned import Learned
from tokmill.tasks.audit.report import sections
from tokmill.tasks.audit.report.charts import Chart, charts_of
from tokmill.tasks.audit.report.encoding import encoder_of
from tokmill.tasks.audit.report.page import columns_of, document, section, static
from tokmill.tasks.audit.report.sections import comparison
from tokmill.tasks.audit.report.svg import can_draw, svg_of, write_png
from tokmill.tasks.audit.report.tables import Tables
from tokmill.tasks.core.markdown import number
from tokmill.tokenizer import Tokenizer

OWN = "this tokenizer"
REPORT_FILE = "report.html"
CHARTS_FOLDER = "charts"
_SCRIPTS = ("page.js", "encoder.js", "try.js")
_CONTENTS = {
    "gate": "Gate",
    "scripts": "Scripts",
    "sources": "Sources",
    "premium": "Premium",
    "curves": "Distributions",
    "suspects": "Suspects",
    "probes": "Probes",
    "compared": "Compared",
    "try": "Try it",
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
        folder: the audit: `catalog/*.parquet`, and `summary.json`. Missing tables are marked as gaps.
        out: the folder that gets `report.html` and `charts/NAME.svg`; with matplotlib also `charts/NAME.png`.
        tokenizer: the tokenizer that was audited.
        compared: other tokenizers by name, which are shown side by side with it.
        usage: the folder of the usage artifact that was made with this audit, for the suspects.
        learned: what a model has learned of the suspects of `usage`.

    Returns:
        The path of the HTML file.

    Raises:
        AuditError: the folder is not an audit, or a table is broken.
    """
    tables = Tables.read(folder) if usage is None else Tables.read(folder).with_tables_of(usage)
    tables = tables if learned is None else tables.with_learned(learned)
    charts = charts_of(tables)
    write_charts(charts, out / CHARTS_FOLDER)
    path = out / REPORT_FILE
    path.write_text(_page(tables, charts, {OWN: tokenizer, **(compared or {})}), "utf-8")
    return path


def write_charts(charts: Sequence[Chart], folder: Path) -> None:
    """Write charts as SVG, and as PNG if matplotlib is installed."""
    folder.mkdir(parents=True, exist_ok=True)
    for chart in charts:
        (folder / f"{chart.name}.svg").write_text(svg_of(chart, alone=True) + "\n", "utf-8")
        if can_draw():
            write_png(chart, folder / f"{chart.name}.png")


def _page(tables: Tables, charts: Sequence[Chart], tokenizers: Mapping[str, Tokenizer]) -> str:
    tok = tokenizers[OWN]
    pictures = {chart.name: svg_of(chart) for chart in charts}
    title = f"Audit of a {tok.family} tokenizer with {number(tok.vocab_size)} tokens"
    shown = {name: text for name, text in _CONTENTS.items() if name != "compared" or len(tokenizers) > 1}
    encoders = [{"name": name, "spec": encoder_of(one)} for name, one in tokenizers.items()]
    return document(
        title,
        shown,
        [
            sections.overview(tables),
            sections.vocabulary(tables, pictures),
            sections.sources(tables, pictures),
            sections.parity(tables, pictures),
            sections.curves(tables, pictures),
            sections.suspects(tables),
            sections.probes(tables),
            comparison(tokenizers) if len(tokenizers) > 1 else "",
            section("try", "Encode text", static("try.html")),
            section("tokens", "All tokens", static("tokens.html")),
        ],
        data={"columns": columns_of(tables), "encoders": encoders},
        scripts=[static(name) for name in _SCRIPTS],
    )
