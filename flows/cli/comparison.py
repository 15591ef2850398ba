"""The output of `tokmill compare` of runs, and of `tokmill diff`."""

from collections.abc import Sequence
from typing import Any, Final

from rich.table import Table
from rich.text import Text

from tokmill.flows.cli.output import draw, say, table
from tokmill.flows.cli.run_sheet import SHORT
from tokmill.flows.figures import counted, number
from tokmill.tasks.comparing.causes import Cause, value_text
from tokmill.tasks.comparing.environments import Changed
from tokmill.tasks.comparing.explaining import Explanation
from tokmill.tasks.comparing.runs import Comparison, Line, change

_SHOWN: Final = 12


def print_comparison(comparison: Comparison, *, every_metric: bool) -> None:
    """Print runs side by side, for people.

    Args:
        comparison: of the runs.
        every_metric: whether metrics that do not differ are printed, too.
    """
    heads = [run.run_id[:SHORT] for run in comparison.runs]
    draw(_runs_table(comparison))
    _section("parameters", _side_by_side(heads, comparison.parameters))
    _section("inputs", _side_by_side(heads, comparison.inputs))
    for place in range(1, len(comparison.runs)):
        say(f"\nwhy {heads[place]} differs from {heads[0]}")
        for line in why(comparison, place):
            say(line)
    _section("artifacts", _artifacts_table(heads, comparison))
    shown = [line for line in comparison.metrics if every_metric or line.differs]
    _section("metrics", _metrics_table(heads, shown))


def why(comparison: Comparison, place: int) -> list[str]:
    """Return why a run differs from the first, as lines: the causes, and what changed no artifact."""
    causes, num = comparison.causes(place), comparison.num_differing(place)
    reached = [line.task for line in comparison.artifacts if line.causes[place]]
    lines = [part for cause in causes for part in cause_lines(cause)]
    if num:
        differ = "differs" if num == 1 else "differ"
        lines.append(f"  so {counted(num, 'artifact')} {differ}: {', '.join(reached)}")
    else:
        lines.append("  no artifact differs")
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
    _section("metrics", _metrics_table(["a", "b"], lines))
    if fields:
        say("\nfields of the recipes")
        for each in found.fields:
            say(f"{each.field}\n  a  {each.a}\n  b  {each.b}")


def _section(title: str, part: Table) -> None:
    if part.row_count:
        draw(Text(f"\n{title}", style="bold"))
        draw(part)


def _runs_table(comparison: Comparison) -> Table:
    lines = [
        (
            run.run_id[:SHORT],
            run.name or run.profile,
            run.state,
            run.started[:16].replace("T", " "),
            run.experiment,
        )
        for run in comparison.runs
    ]
    return table(("run", "name", "state", "began (UTC)", "experiment"), lines)


def _side_by_side(heads: Sequence[str], lines: Sequence[Line]) -> Table:
    rows = [(line.name, *(value_text(value) for value in line.values)) for line in lines]
    return table(("", *heads), rows)


def _artifacts_table(heads: Sequence[str], comparison: Comparison) -> Table:
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
        rows.append((line.task, *cells))
    return table(("stage", *heads), rows)


def _metrics_table(heads: Sequence[str], lines: Sequence[Line]) -> Table:
    columns = [heads[0], *(part for head in heads[1:] for part in (head, "change"))]
    rows = [(line.name, *_cells(line.values)) for line in lines]
    return table(("", *columns), rows, right=columns)


def _cells(values: Sequence[Any]) -> list[str]:
    cells = [_shown(values[0])]
    for value in values[1:]:
        cells += [_shown(value), change_text(values[0], value)]
    return cells


def _shown(value: Any) -> str:
    return "–" if value is None else number(value)


def change_text(a: Any, b: Any) -> str:
    """Return the change from one value to another: `+1.2 %`, or the difference from 0."""
    found = change(a, b)
    if found is None or found[0] == 0:
        return ""
    difference, share = found
    return f"{share:+.1%}".replace("%", " %") if share is not None else f"{difference:+.4g}"
