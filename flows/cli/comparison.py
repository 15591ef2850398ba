"""The output of `tokmill compare`, of runs and of artifacts."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from rich.text import Text

from tokmill.flows.cli.output import Part, PlainTable, results, table
from tokmill.flows.figures import counted
from tokmill.tasks.comparing.artifacts import Explanation, SideBySide, change_text
from tokmill.tasks.comparing.causes import Cause, value_text
from tokmill.tasks.comparing.runs import Comparison
from tokmill.tasks.core.markdown import number

_WIDE: Final = 100  # columns, from which on words are shown whole beside numbers,
_ROOMY: Final = 2  # if no more than so many runs are compared
_MOST_OF_A_WORD: Final = 12


def comparison_parts(comparison: Comparison, *, every_metric: bool) -> Iterator[Part]:
    """Yield runs side by side; metrics that do not differ only if `every_metric`."""
    heads, (parameters, inputs, artifacts, metrics) = comparison.heads, comparison.tables
    lines = [
        (head, run.name or run.profile, run.state, run.started[:16].replace("T", " "), run.experiment)
        for head, run in zip(heads, comparison.runs, strict=True)
    ]
    yield table(("run", "name", "state", "began (UTC)", "experiment"), lines)
    yield from side_by_side(parameters, heads)
    yield from side_by_side(inputs, heads)
    for place in range(1, len(comparison.runs)):
        yield f"\nwhy {heads[place]} differs from {heads[0]}"
        reasons = comparison.reasons(place)
        for cause in reasons.causes:
            yield from cause_lines(cause)
        first, *rest = reasons.words
        yield from (f"  {line}" for line in (first, *reasons.endings, *rest))
    yield from side_by_side(artifacts, heads)
    shown = [line for line in metrics.lines if every_metric or (line.differs and line.is_shared)]
    yield from side_by_side(metrics._replace(lines=shown), heads)
    alone = sum(not line.is_shared for line in metrics.lines)
    if alone and not every_metric:
        yield f"and {counted(alone, 'metric')} that only one of the runs has (--all shows them)"


def cause_lines(cause: Cause) -> list[str]:
    """Return a cause as lines."""
    return [f"  {cause.text} ({cause.artifact})", *(f"    {line}" for line in cause.details)]


def explanation_parts(found: Explanation, *, fields: bool) -> Iterator[Part]:
    """Yield how and why two artifacts differ, for people."""
    a, b = found.a, found.b
    if found.same_content:
        yield f"{a.reference} and {b.reference} have the same content {a.content_digest[:12]}"
        yield from (f"  {cause.text}: without effect on the content" for cause in found.without_effect)
    else:
        yield f"{b.reference} differs from {a.reference} because of"
    for cause in found.causes:
        yield from cause_lines(cause)
        if cause.through:
            yield f"    through {' → '.join([cause.artifact, *cause.through])}"
    yield from side_by_side(found.tables[-1], ["a", "b"])
    if fields:
        yield "\nfields of the recipes"
        yield from (f"{each.field}\n  a  {each.a}\n  b  {each.b}" for each in found.fields)


def side_by_side(sheet: SideBySide, heads: Sequence[str]) -> Iterator[Part]:
    """Yield a table of all runs; as tables of a few, each beside the first, if they have no room together."""
    if not sheet.lines:
        return
    yield Text(f"\n{sheet.title}", style="bold")
    begin, end, room = 1, 2, results().width
    while begin < len(heads):
        while end < len(heads) and _table(sheet, heads, [0, *range(begin, end + 1)]).num_columns <= room:
            end += 1
        yield _table(sheet, heads, [0, *range(begin, end)])
        begin, end = end, end + 1
        if begin < len(heads):
            yield ""


def _table(sheet: SideBySide, heads: Sequence[str], places: Sequence[int]) -> PlainTable:
    first = "stage" if sheet.title == "artifacts" else ""
    if not sheet.changes:
        rows = [(line.name, *(_text(sheet, line.values[place]) for place in places)) for line in sheet.lines]
        return table((first, *(heads[place] for place in places)), rows)
    columns = [heads[0], *(part for place in places[1:] for part in (heads[place], "change"))]
    most = _MOST_OF_A_WORD if len(heads) > _ROOMY or results().width < _WIDE else None
    rows = []
    for line in sheet.lines:
        cells = [_metric(line.values[0], most)]
        for value in (line.values[place] for place in places[1:]):
            cells += [_metric(value, most), change_text(line.values[0], value)]
        rows.append((line.name, *cells))
    return table((first, *columns), rows, right=columns)


def _text(sheet: SideBySide, value: Any) -> str:
    return (value or "–") if sheet.title == "artifacts" else value_text(value)


def _metric(value: Any, most: int | None) -> str:
    """Return a metric; of words, and only of words, at most so many characters."""
    cut = most is not None and isinstance(value, str) and len(value) > most
    return f"{value[: most - 1]}…" if most and cut else number(value)
