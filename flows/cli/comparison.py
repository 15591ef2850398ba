"""The output of `tokmill compare` of runs, and of `tokmill diff`."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from rich.text import Text

from tokmill.flows.cli.output import PlainTable, draw, results, say, table
from tokmill.flows.figures import counted
from tokmill.tasks.comparing.causes import Cause, Changed, value_text
from tokmill.tasks.comparing.explaining import Explanation
from tokmill.tasks.comparing.runs import Comparison, Line, change_text
from tokmill.tasks.core.markdown import number

_SHOWN: Final = 12
_WIDE: Final = 100  # columns, from which on words are shown whole beside numbers,
_ROOMY: Final = 2  # if no more than so many runs are compared
_MOST_OF_A_WORD: Final = 12


def print_comparison(comparison: Comparison, *, every_metric: bool) -> None:
    """Print runs side by side, for people.

    Args:
        comparison: of the runs.
        every_metric: whether metrics that do not differ are printed, too.
    """
    heads = comparison.heads
    draw(_runs_table(comparison))
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
    """Return why a run differs from the first, as lines: the causes, and what changed no artifact.

    A run that did not complete has no artifacts of its own that could differ: how it ended is told, too.
    """
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
        lines.append(f"  {_environment_words(idle)}; no artifact differs because of that")
    return lines


def cause_lines(cause: Cause) -> list[str]:
    """Return a cause as lines."""
    return [f"  {cause.text} ({cause.artifact})", *(f"    {line}" for line in cause.details)]


def _environment_words(changed: Sequence[Changed]) -> str:
    named = [each.text for each in changed[:_SHOWN]]
    more = [f"{len(changed) - _SHOWN} more"] if len(changed) > _SHOWN else []
    return ", ".join([*named, *more])


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
    every = range(len(heads))
    if not of(every).row_count:
        return
    draw(Text(f"\n{title}", style="bold"))
    for places in _abreast(every, of, results().width):
        if places[1] > 1:
            say("")
        draw(of(places))


def _abreast(
    places: Sequence[int], of: Callable[[Sequence[int]], PlainTable], room: int
) -> Iterator[Sequence[int]]:
    """Yield as many places as have room in one table, each time after the first, which is in all."""
    first, left = places[0], list(places[1:])
    while left:
        taken = 1
        while taken < len(left) and of([first, *left[: taken + 1]]).num_columns <= room:
            taken += 1
        yield [first, *left[:taken]]
        left = left[taken:]


def _runs_table(comparison: Comparison) -> PlainTable:
    lines = [
        (
            head,
            run.name or run.profile,
            run.state,
            run.started[:16].replace("T", " "),
            run.experiment,
        )
        for head, run in zip(comparison.heads, comparison.runs, strict=True)
    ]
    return table(("run", "name", "state", "began (UTC)", "experiment"), lines)


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
    rows = [(line.name, *_cells([line.values[place] for place in places], most)) for line in lines]
    return table(("", *columns), rows, right=columns)


def _cells(values: Sequence[Any], most: int | None) -> list[str]:
    cells = [_shown(values[0], most)]
    for value in values[1:]:
        cells += [_shown(value, most), change_text(values[0], value)]
    return cells


def _shown(value: Any, most: int | None) -> str:
    """Return a metric; of words, and only of words, at most so many characters."""
    text = "–" if value is None else number(value)
    cut = most is not None and isinstance(value, str) and len(text) > most
    return f"{text[: most - 1]}…" if most and cut else text
