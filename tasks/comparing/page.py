"""Write a comparison of runs, or of two artifacts, as one HTML file that needs no network.

Without JavaScript the page has all tables. With it the table of runs can be sorted, and two pictures show all
of them: a scatter of any two figures, and parallel coordinates of those that are chosen.
"""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from tokmill.tasks.comparing.causes import Cause, value_text
from tokmill.tasks.comparing.runs import Comparison, Explanation, Line, SideBySide, change_text
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


def write_page(comparison: Comparison, path: Path) -> None:
    """Write the page of a comparison; raises StoreError if the file cannot be written."""
    write_document(path, page_of(comparison))


def page_of(comparison: Comparison) -> str:
    """Return the page of a comparison; the same comparison gives the same bytes."""
    heads, package = comparison.heads, "tokmill.tasks.comparing"
    runs, scatter, coordinates, script = (
        static(name, package) for name in ("runs.html", "scatter.html", "coordinates.html", "compare.js")
    )
    shown = [sheet for sheet in comparison.tables if sheet.title != "inputs"]
    parts = {
        "Runs": [_runs(comparison, heads), runs],
        "Why they differ": _reasons(comparison, heads),
        "Scatter": [scatter],
        "Parallel coordinates": [coordinates],
        **{sheet.title.capitalize(): [_side_by_side(sheet, heads)] for sheet in shown},
    }
    return _page(f"{len(heads)} runs compared", parts, data=data_of(comparison), scripts=[script])


def _page(title: str, parts: Mapping[str, Sequence[str]], **more: Any) -> str:
    ids = {"Why they differ": "why", "Parallel coordinates": "coordinates"}
    contents = {ids.get(heading, heading.lower()): heading for heading in parts}
    sections = [section(name, heading, *parts[heading]) for name, heading in contents.items()]
    return document(title, contents, sections, **more)


def data_of(comparison: Comparison) -> dict[str, Any]:
    """Return what the page's JavaScript works with: the runs, and columns of numbers and texts."""
    parameters = {line.name: line for line in comparison.parameters}
    metrics = [line for line in comparison.metrics if line.name not in parameters]
    every = [("parameter", line) for line in parameters.values()] + [("metric", line) for line in metrics]
    first = [name for name in _FIRST_SHOWN if any(line.name == name for _, line in every)]
    return {
        "runs": [
            {"id": head, "name": run.name or run.profile, "state": run.state, "started": run.started[:16]}
            for head, run in zip(comparison.heads, comparison.runs, strict=True)
        ],
        "columns": [_column(of, line) for of, line in every],
        "chosen": [*_telling(comparison.parameters), *first],
    }


def _column(of: str, line: Line) -> dict[str, Any]:
    """Return a column, with the digits of integers that JavaScript's numbers do not tell apart."""
    exact = [f"{each:,}" if isinstance(each, int) and abs(each) > _SAFE else None for each in line.values]
    column = {"name": line.name, "of": of, "values": list(map(_plain, line.values))}
    return column | {"exact": exact} if any(exact) else column


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
    every = {place: comparison.reasons(place) for place in range(1, len(heads))}
    of_first = [
        line
        for line in every[1].endings
        if line.startswith(f"{heads[0]} ") and all(line in each.endings for each in every.values())
    ]
    parts = [
        note(f"Each run against the first, {heads[0]}: the first causes in the lineage of their artifacts."),
        *(note(f"{line}.") for line in of_first),
    ]
    for place, reasons in every.items():
        run = comparison.runs[place]
        title = f"{escape(heads[place])} · {escape(run.name or run.profile)}"
        endings = [line for line in reasons.endings if line not in of_first]
        first, *rest = (f"{line[0].upper()}{line[1:]}." for line in reasons.words)
        shown = _causes(reasons.causes) + "".join(
            [note(first) if reasons.causes else gap(first), *(note(line) for line in (*endings, *rest))]
        )
        if len(heads) <= _MANY:
            parts.append(f"<h3>{title}</h3>{shown}")
            continue
        num, state = len(reasons.causes), "" if run.state == "completed" else f", {run.state}"
        number = f"{num} {'cause' if num == 1 else 'causes'}" if num else "no artifact differs"
        parts.append(f"<details><summary>{title}: {number}{state}</summary>{shown}</details>")
    return parts


def _causes(causes: Sequence[Cause]) -> str:
    items = []
    for cause in causes:
        details = "".join(f"<li>{escape(line)}</li>" for line in cause.details)
        more = f"<details open><summary>more</summary><ul>{details}</ul></details>" if details else ""
        way = escape(" → ".join([cause.artifact, *cause.through]))
        through = f"<p>Through {way}.</p>" if cause.through else ""
        where = f'<span class="remark">({escape(cause.artifact)})</span>'
        items.append(f"<li><strong>{escape(cause.text)}</strong> {where}{more}{through}</li>")
    return f"<ul>{''.join(items)}</ul>" if items else ""


def _side_by_side(sheet: SideBySide, heads: Sequence[str]) -> str:
    """Return a table of all runs; on paper, tables of a few, each beside the first."""
    if not sheet.lines:
        return gap("Nothing differs.")
    every = range(len(heads))
    if len(every) <= 1 + _ON_PAPER:
        return _table(sheet, heads, every)
    groups = [every[start : start + _ON_PAPER] for start in range(1, len(every), _ON_PAPER)]
    paper = "".join(_table(sheet, heads, [0, *group]) for group in groups)
    return f'<div class="screen">{_table(sheet, heads, every)}</div><div class="paper">{paper}</div>'


def _table(sheet: SideBySide, heads: Sequence[str], places: Sequence[int]) -> str:
    columns = {"": sheet.first}
    for place in places:
        columns[str(place)] = heads[place]
        if sheet.changes and place:
            columns[f"{place} change"] = "change"
    rows = []
    for line in sheet.lines:
        cells: dict[str, Any] = {"": line.name}
        for place in places:
            cells[str(place)] = _plain(line.values[place])
            cells[f"{place} change"] = change_text(line.values[0], line.values[place])
        rows.append(cells)
    return table(f"{sheet.title.capitalize()} side by side", rows, columns)


def write_page_of_two(found: Explanation, path: Path) -> None:
    """Write the page of two artifacts; raises StoreError if the file cannot be written."""
    heads = (found.a.reference, found.b.reference)
    rows = [
        {
            "artifact": record.reference,
            "content": record.content_digest[:12],
            "recipe": record.fingerprint[:12],
            "made": record.timings.started[:16].replace("T", " "),
            "by": record.provenance.user,
        }
        for record in (found.a, found.b)
    ]
    caption = "The artifacts; the second is measured against the first"
    why = [note("The first causes in the lineage of the two."), _causes(found.causes)]
    if found.same_content:
        idle = _causes(found.without_effect)
        why = [gap("The contents are equal."), note("Without effect on the content:") if idle else "", idle]
    parts = {
        "Artifacts": [table(caption, rows, {name: name for name in rows[0]})],
        "Why they differ": why,
        **{sheet.title.capitalize(): [_side_by_side(sheet, heads)] for sheet in found.tables},
    }
    write_document(path, _page(f"{heads[0]} and {heads[1]} compared", parts))
