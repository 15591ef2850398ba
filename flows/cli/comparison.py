"""The output of `tokmill compare`, of runs and of artifacts."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from rich.text import Text

from tokmill.flows.cli.output import PlainTable, draw, results, say, table
from tokmill.flows.figures import counted
from tokmill.tasks.comparing.causes import Cause, value_text
from tokmill.tasks.comparing.explaining import Explanation
from tokmill.tasks.comparing.runs import Comparison, Line, change_text
from tokmill.tasks.core.markdown import number

_SHOWN: Final = 12
_WIDE: Final = 100  # columns, from which on words are shown whole beside numbers,
_ROOMY: Final = 2  # if no more than so many runs are compared
_MOST_OF_A_WORD: Final = 12


def print_comparison(comparison: Comparison, *, every_metric: bool) -> None:
    """Print runs side by side; metrics that do not differ only if `every_metric`."""
    heads = comparison.heads
    lines = [
        (head, run.name or run.profile, run.state, run.started[:16].replace("T", " "), run.experiment)
        for head, run in zip(heads, comparison.runs, strict=True)
    ]
    draw(table(("run", "name", "state", "began (UTC)", "experiment"), lines))
    _section("parameters", heads, partial(_side_by_side, heads, comparison.parameters))
    _section("inputs", heads, partial(_side_by_side, heads, comparison.inputs))
    for place in range(1, len(comparison.runs)):
        say(f"\nwhy {heads[place]} differs from {heads[0]}")
        for line in why(comparison, place):
            say(line)
    _section("artifacts", heads, partial(_artifacts_table, heads, comparison))
    shown = [line for line in comparison.metrics if every_metric or (line.differs and line.is_shared)]
    _section("metrics", heads, partial(_metrics_table, heads, shown))
    alone = sum(not line.is_shared for line in comparison.metrics)
    if alone and not every_metric:
        say(f"and {counted(alone, 'metric')} that only one of the runs has (--all shows them)")


def why(comparison: Comparison, place: int) -> list[str]:
    """Return why a run differs from the first, as lines: causes, how it ended, what changed no artifact."""
    causes, num = comparison.causes(place), comparison.num_differing(place)
    reached = [line.task for line in comparison.artifacts if line.causes[place]]
    lines = [part for cause in causes for part in cause_lines(cause)]
    if num:
        differ = "differs" if num == 1 else "differ"
        lines.append(f"  so {counted(num, 'artifact')} {differ}: {', '.join(reached)}")
    else:
        lines.append(f"  no artifact {'that both have ' if comparison.num_missing(place) else ''}differs")
    lines += [f"  {line}" for line in comparison.endings(place)]
    named = {cause.field for cause in causes}
    idle = [each for each in comparison.environments[place] if each.name not in named]
    if idle:
        more = [f"{len(idle) - _SHOWN} more"] if len(idle) > _SHOWN else []
        words = ", ".join([*(each.text for each in idle[:_SHOWN]), *more])
        lines.append(f"  {words}; no artifact differs because of that")
    return lines


def cause_lines(cause: Cause) -> list[str]:
    """Return a cause as lines."""
    return [f"  {cause.text} ({cause.artifact})", *(f"    {line}" for line in cause.details)]


def print_explanation(found: Explanation, *, fields: bool) -> None:
    """Print how and why two artifacts differ, for people."""
    a, b = found.a, found.b
    if found.same_content:
        say(f"{a.reference} and {b.reference} have the same content {a.content_digest[:12]}")
        for cause in found.without_effect:
            say(f"  {cause.text}: without effect on the content")
    else:
        say(f"{b.reference} differs from {a.reference} because of")
        for cause in found.causes:
            for line in cause_lines(cause):
                say(line)
            if cause.through:
                say(f"    through {' → '.join([cause.artifact, *cause.through])}")
    lines = [Line(name, pair) for name, pair in found.metrics.items()]
    _section("metrics", ["a", "b"], partial(_metrics_table, ["a", "b"], lines))
    if fields:
        say("\nfields of the recipes")
        for each in found.fields:
            say(f"{each.field}\n  a  {each.a}\n  b  {each.b}")


def _section(title: str, heads: Sequence[str], of: Callable[[Sequence[int]], PlainTable]) -> None:
    """Write a table of the runs at some places; below each other if they have no room side by side."""
    if not of(range(len(heads))).row_count:
        return
    draw(Text(f"\n{title}", style="bold"))
    begin, end, room = 1, 2, results().width
    while begin < len(heads):  # as many as have room, each time after the first
        while end < len(heads) and of([0, *range(begin, end + 1)]).num_columns <= room:
            end += 1
        draw(of([0, *range(begin, end)]))
        begin, end = end, end + 1
        if begin < len(heads):
            say("")


def _side_by_side(heads: Sequence[str], lines: Sequence[Line], places: Sequence[int]) -> PlainTable:
    rows = [(line.name, *(value_text(line.values[place]) for place in places)) for line in lines]
    return table(("", *(heads[place] for place in places)), rows)


def _artifacts_table(heads: Sequence[str], comparison: Comparison, places: Sequence[int]) -> PlainTable:
    rows = []
    for line in comparison.artifacts:
        first = line.refs[0]
        cells = [
            "–"
            if ref is None
            else f"{label} {ref.content_digest[:8]}"
            if place == 0 or first is None or ref.content_digest != first.content_digest
            else "the same"
            for place, (ref, label) in enumerate(zip(line.refs, line.labels, strict=True))
        ]
        rows.append((line.task, *(cells[place] for place in places)))
    return table(("stage", *(heads[place] for place in places)), rows)


def _metrics_table(heads: Sequence[str], lines: Sequence[Line], places: Sequence[int]) -> PlainTable:
    first, *others = [heads[place] for place in places]
    columns = [first, *(part for head in others for part in (head, "change"))]
    most = _MOST_OF_A_WORD if len(heads) > _ROOMY or results().width < _WIDE else None
    rows = []
    for line in lines:
        cells = [_shown(line.values[places[0]], most)]
        for value in (line.values[place] for place in places[1:]):
            cells += [_shown(value, most), change_text(line.values[places[0]], value)]
        rows.append((line.name, *cells))
    return table(("", *columns), rows, right=columns)


def _shown(value: Any, most: int | None) -> str:
    """Return a metric; of words, and only of words, at most so many characters."""
    text = "–" if value is None else number(value)
    cut = most is not None and isinstance(value, str) and len(text) > most
    return f"{text[: most - 1]}…" if most and cut else text
