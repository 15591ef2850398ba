"""HTML for notebooks: a title, figures, and a table, escaped and self-contained.

No colour is set but by transparency, so that the text has those of the page, dark or light. Nothing is loaded
from elsewhere, and no script runs. Where a page drops the style, the tables stay readable.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

_STYLE = (
    "<style>.tokmill{font:13px/1.45 system-ui,sans-serif;color:inherit;overflow-x:auto}"
    ".tokmill table{border-collapse:collapse;margin:.3em 0;color:inherit;background:transparent}"
    ".tokmill th,.tokmill td{padding:.15em .9em .15em 0!important;text-align:left!important;"
    "vertical-align:top;border:0;border-bottom:1px solid rgba(128,128,128,.25);"
    "white-space:nowrap;color:inherit;"
    "background:transparent}.tokmill tr{background:transparent!important}"
    ".tokmill th{font-weight:600;opacity:.75}"
    ".tokmill td.n,.tokmill th.n{text-align:right!important;font-variant-numeric:tabular-nums}"
    ".tokmill td.w{white-space:normal;max-width:48em;overflow-wrap:anywhere}"
    ".tokmill .t{font-weight:600}.tokmill .d{opacity:.65}"
    ".tokmill code{font:12px/1.4 ui-monospace,monospace;background:rgba(128,128,128,.14);"
    "padding:0 .25em;border-radius:3px;color:inherit}</style>"
)
_MOST_CHARS = 400


def sheet(title: str, *parts: str, detail: str = "") -> str:
    """Return what a notebook shows of an object."""
    behind = f' <span class="d">{escape(detail)}</span>' if detail else ""
    head = f'<div><span class="t">{escape(title)}</span>{behind}</div>'
    return f'<div class="tokmill">{_STYLE}{head}{"".join(parts)}</div>'


def figures(pairs: Mapping[str, object]) -> str:
    """Return names with their values, one pair per line."""
    rows = "".join(
        f"<tr><th>{escape(name)}</th>{_cell(str(value), wrap=True)}</tr>" for name, value in pairs.items()
    )
    return f"<table><tbody>{rows}</tbody></table>" if rows else ""


def grid(columns: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[str] = ()) -> str:
    """Return a table of text."""
    right = [column in set(numbers) for column in columns]
    head = "".join(
        f'<th class="n">{escape(name)}</th>' if number else f"<th>{escape(name)}</th>"
        for name, number in zip(columns, right, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(_cell(cell, number=number) for cell, number in zip(row, right, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def note(text: str) -> str:
    """Return a line of less prominent text."""
    return f'<div class="d">{escape(text)}</div>'


def _cell(text: str, *, number: bool = False, wrap: bool = False) -> str:
    shown = text if len(text) <= _MOST_CHARS else f"{text[: _MOST_CHARS - 1]}…"
    kind = ' class="n"' if number else ' class="w"' if wrap else ""
    return f"<td{kind}>{escape(shown)}</td>"
