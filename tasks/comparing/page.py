"""Write a comparison of runs as one HTML file that needs no network.

Without JavaScript the page has all tables: the runs, why they differ, parameters, artifacts, metrics. With it
the table of runs can be sorted, and two pictures show all of them: a scatter of any two figures, and parallel
coordinates of those that are chosen. Marks are reached with the keyboard, and say in words what they show.
"""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from tokmill.tasks.comparing.causes import Cause, value_text
from tokmill.tasks.comparing.runs import Comparison, Line, change_text
from tokmill.tasks.pages.page import document, gap, note, section, static, table, write_document

_FIRST_SHOWN: Final = (
    "audit.bytes_per_token",
    "audit.fertility",
    "packed.padding_share",
    "audit.max_premium",
)
"""The figures that are chosen when the page opens, as far as runs have them."""
_MOST_PARAMETERS: Final = 6
"""So many of the parameters that differ are chosen when the page opens; more axes are not told apart."""
_SAFE: Final = 2**53 - 1
_MANY: Final = 8
"""With more runs than these, the reasons of each are folded."""
_ON_PAPER: Final = 4
"""So many runs stand beside the first one on paper, where a table cannot be scrolled."""
_CONTENTS: Final = {
    "runs": "Runs",
    "why": "Why they differ",
    "scatter": "Scatter",
    "coordinates": "Parallel coordinates",
    "parameters": "Parameters",
    "artifacts": "Artifacts",
    "metrics": "Metrics",
}


def write_page(comparison: Comparison, path: Path) -> None:
    """Write the page of a comparison.

    Raises:
        StoreError: the file cannot be written.
    """
    write_document(path, page_of(comparison))


def page_of(comparison: Comparison) -> str:
    """Return the page of a comparison; the same comparison gives the same bytes."""
    heads = comparison.heads
    title = f"{len(heads)} runs compared"
    return document(
        title,
        _CONTENTS,
        [
            section("runs", "Runs", _runs(comparison, heads), _own("runs.html")),
            section("why", "Why they differ", *_reasons(comparison, heads)),
            section("scatter", "Scatter", _own("scatter.html")),
            section("coordinates", "Parallel coordinates", _own("coordinates.html")),
            section("parameters", "Parameters", _side_by_side("Parameters", heads, comparison.parameters)),
            section("artifacts", "Artifacts", _artifacts(comparison, heads)),
            section("metrics", "Metrics", _metrics(comparison, heads)),
        ],
        data=data_of(comparison),
        scripts=[_own("compare.js")],
    )


def data_of(comparison: Comparison) -> dict[str, Any]:
    """Return what the page's JavaScript works with: the runs, and columns of numbers and texts."""
    given = {line.name for line in comparison.parameters}
    figures = [("parameter", line) for line in comparison.parameters]
    figures += [("metric", line) for line in comparison.metrics if line.name not in given]
    columns: list[dict[str, Any]] = [
        {"name": line.name, "of": of, "values": list(line.values)} for of, line in figures
    ]
    names = [column["name"] for column in columns]
    chosen = [
        *_telling(comparison.parameters),
        *(name for name in _FIRST_SHOWN if name in names),
    ]
    return {
        "runs": [
            {"id": head, "name": run.name or run.profile, "state": run.state, "started": run.started[:16]}
            for head, run in zip(comparison.heads, comparison.runs, strict=True)
        ],
        "columns": [
            {**column, "values": [_plain(value) for value in column["values"]], **_exact(column["values"])}
            for column in columns
        ],
        "chosen": chosen,
    }


def _telling(parameters: Sequence[Line]) -> list[str]:
    """Return the parameters that are chosen first: those that most runs have, in their order."""
    own = [line for line in parameters if not line.name.startswith("execution.")]
    kept = sorted(own, key=lambda line: sum(value is None for value in line.values))[:_MOST_PARAMETERS]
    return [line.name for line in own if line in kept]


def _plain(value: Any) -> float | int | str | None:
    """Return a number, or a text, for the page."""
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    return value_text(value)


def _exact(values: Sequence[Any]) -> dict[str, list[str | None]]:
    """Return the digits of integers that JavaScript's numbers do not tell apart, such as seeds."""
    texts = [f"{value:,}" if isinstance(value, int) and abs(value) > _SAFE else None for value in values]
    return {"exact": texts} if any(texts) else {}


def _runs(comparison: Comparison, heads: Sequence[str]) -> str:
    rows = [
        {
            "run": head,
            "name": run.name or run.profile,
            "state": run.state,
            "began": run.started[:16].replace("T", " "),
            "experiment": run.experiment,
            "made": run.num("made"),
            "cached": run.num("cached"),
        }
        for head, run in zip(heads, comparison.runs, strict=True)
    ]
    caption = "The runs; the first is what the others are measured against"
    return f'<div class="without">{table(caption, rows, {name: name for name in rows[0]})}</div>'


def _reasons(comparison: Comparison, heads: Sequence[str]) -> list[str]:
    first = f"{heads[0]} "
    places = range(1, len(heads))
    ends = [comparison.endings(place) for place in places]
    of_first = [line for line in ends[0] if line.startswith(first) and all(line in each for each in ends)]
    parts = [
        note(f"Each run against the first, {heads[0]}: the first causes in the lineage of their artifacts."),
        *(note(f"{line}.") for line in of_first),
    ]
    for place, ended in zip(places, ends, strict=True):
        own = [note(f"{line}.") for line in ended if line not in of_first]
        parts += _reasons_of(comparison, heads, place, own)
    return parts


def _reasons_of(
    comparison: Comparison, heads: Sequence[str], place: int, ended: Sequence[str]
) -> Iterator[str]:
    """Yield why one run differs; folded, with the number of causes, where there are many runs."""
    run, causes = comparison.runs[place], comparison.causes(place)
    items = "".join(f"<li>{cause_item(cause)}</li>" for cause in causes)
    both = " that both have" if comparison.num_missing(place) else ""
    found = f"<ul>{items}</ul>" if items else gap(f"No artifact{both} differs.")
    parts = "".join([found, _reached(comparison, place), *ended, _idle(comparison, place, causes)])
    title = f"{escape(heads[place])} · {escape(run.name or run.profile)}"
    if len(heads) <= _MANY:
        yield f"<h3>{title}</h3>{parts}"
        return
    number = f"{len(causes)} {'cause' if len(causes) == 1 else 'causes'}" if causes else "no artifact differs"
    state = "" if run.state == "completed" else f", {run.state}"
    yield f"<details><summary>{title}: {number}{state}</summary>{parts}</details>"


def _reached(comparison: Comparison, place: int) -> str:
    reached = [line.task for line in comparison.artifacts if line.causes[place]]
    if not reached:
        return ""
    return f"<p>Because of that differ: {escape(', '.join(reached))}.</p>"


def cause_item(cause: Cause) -> str:
    """Return a cause as HTML."""
    details = "".join(f"<li>{escape(line)}</li>" for line in cause.details)
    more = f"<details open><summary>more</summary><ul>{details}</ul></details>" if details else ""
    return (
        f'<strong>{escape(cause.text)}</strong> <span class="remark">({escape(cause.artifact)})</span>{more}'
    )


def _idle(comparison: Comparison, place: int, causes: Sequence[Cause]) -> str:
    named = {cause.field for cause in causes}
    idle = [each.text for each in comparison.environments[place] if each.name not in named]
    return note(f"Without effect on any artifact: {', '.join(idle)}.") if idle else ""


def _abreast(heads: Sequence[str], of: Callable[[Sequence[int]], str]) -> str:
    """Return a table of all runs; on paper, tables of a few, each beside the first."""
    every = range(len(heads))
    if len(every) <= 1 + _ON_PAPER:
        return of(every)
    groups = [every[start : start + _ON_PAPER] for start in range(1, len(every), _ON_PAPER)]
    paper = "".join(of([0, *group]) for group in groups)
    return f'<div class="screen">{of(every)}</div><div class="paper">{paper}</div>'


def _side_by_side(caption: str, heads: Sequence[str], lines: Sequence[Line]) -> str:
    if not lines:
        return gap("Nothing differs.")
    rows = [{"": line.name, **_cells(heads, line)} for line in lines]

    def of(places: Sequence[int]) -> str:
        return table(f"{caption} that differ", rows, {"": "name", **{heads[k]: heads[k] for k in places}})

    return _abreast(heads, of)


def _cells(heads: Sequence[str], line: Line) -> dict[str, Any]:
    return {head: _plain(value) for head, value in zip(heads, line.values, strict=True)}


def _artifacts(comparison: Comparison, heads: Sequence[str]) -> str:
    rows = []
    for line in comparison.artifacts:
        cells: dict[str, Any] = {"": line.task}
        for place, (head, ref, label) in enumerate(zip(heads, line.refs, line.labels, strict=True)):
            first = line.refs[0]
            same = (
                place > 0
                and ref is not None
                and first is not None
                and ref.content_digest == first.content_digest
            )
            cells[head] = None if ref is None else "the same" if same else f"{label} {ref.content_digest[:8]}"
        rows.append(cells)

    def of(places: Sequence[int]) -> str:
        return table(
            "The artifact of each stage", rows, {"": "stage", **{heads[k]: heads[k] for k in places}}
        )

    return _abreast(heads, of)


def _metrics(comparison: Comparison, heads: Sequence[str]) -> str:
    rows = []
    for line in comparison.metrics:
        row: dict[str, Any] = {"": line.name, **_cells(heads, line)}
        for head, value in zip(heads[1:], line.values[1:], strict=True):
            row[f"{head} change"] = change_text(line.values[0], value)
        rows.append(row)

    def of(places: Sequence[int]) -> str:
        columns: dict[str, str] = {"": "metric", heads[0]: heads[0]}
        for place in places[1:]:
            columns |= {heads[place]: heads[place], f"{heads[place]} change": "change"}
        return table("Metrics, and their change against the first run", rows, columns)

    return _abreast(heads, of)


def _own(name: str) -> str:
    return static(name, "tokmill.tasks.comparing")
