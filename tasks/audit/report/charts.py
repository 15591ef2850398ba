"""The charts of a report, as data: which rows become bars and curves.

`svg` draws a chart for the page, and as PNG. Values that are NULL are left out.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tokmill.tasks.audit.report.tables import Row, Tables
from tokmill.tasks.audit.sources import ALL

MAX_LINES = 20
_MAX_SCRIPTS = 20


@dataclass(frozen=True)
class Bar:
    """A labelled value, with the ends of its interval if it has one."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Bars:
    """Horizontal bars, the greatest first.

    Attributes:
        name: of the chart's file.
        title: a short text.
        unit: what the values are.
        bars: in the order in which they are drawn.
        reference: a value that a line is drawn at.
    """

    name: str
    title: str
    unit: str
    bars: tuple[Bar, ...]
    reference: float | None = None


@dataclass(frozen=True)
class Curves:
    """Lines through points, both axes logarithmic.

    Attributes:
        name: of the chart's file.
        title: a short text.
        across: what the horizontal axis is.
        up: what the vertical axis is.
        lines: points by name; all coordinates are above 0.
        marks: points that stand out, each with what it is.
    """

    name: str
    title: str
    across: str
    up: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    marks: Sequence[tuple[float, float, str]] = ()


Chart = Bars | Curves


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


def source_name(source: str) -> str:
    """Return how a source is called in the report."""
    return "all sources" if source == ALL else source


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
