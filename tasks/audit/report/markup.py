"""Pieces of HTML: tables, sections, gaps. Everything that comes from data is escaped here."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from tokmill.tasks.audit.report.reading import Row
from tokmill.tasks.core.markdown import number


def section(name: str, title: str, *parts: str) -> str:
    """Return a section with a heading, which the page's list of contents links to."""
    return f'<section id="{name}"><h2>{escape(title)}</h2>{"".join(parts)}</section>'


def gap(text: str) -> str:
    """Return a note that something is not there."""
    return f'<p class="gap">{escape(text)}</p>'


def note(text: str) -> str:
    """Return a paragraph that explains what is shown."""
    return f'<p class="note">{escape(text)}</p>'


def table(caption: str, rows: Iterable[Row], columns: Mapping[str, str]) -> str:
    """Return rows as a table.

    Args:
        caption: what it shows.
        rows: the rows.
        columns: heading of each column that is shown; the first one heads the rows.
    """
    shown = [[row.get(name) for name in columns] for row in rows]
    kinds = [next(filter(None, map(_kind, column)), "") for column in zip(*shown, strict=True)]
    head = "".join(
        f'<th scope="col"{kind}>{escape(title)}</th>'
        for title, kind in zip(columns.values(), kinds, strict=True)
    )
    body = "".join(f"<tr>{_cells(values)}</tr>" for values in shown)
    return (
        f'<div class="wide" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cells(values: Sequence[Any]) -> str:
    first, *others = values
    head = f'<th scope="row">{_value(first)}</th>'
    return head + "".join(f"<td{_kind(value)}>{_value(value)}</td>" for value in others)


def _kind(value: Any) -> str:
    return ' class="n"' if isinstance(value, int | float) and not isinstance(value, bool) else ""


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or isinstance(value, int | float):
        return number(value)
    return escape(str(value))


def pieces(tokens: Sequence[str], ids: Sequence[int]) -> str:
    """Return tokens in colours, each with its id as a tooltip."""
    return (
        '<span class="tokens">'
        + "".join(
            f'<span class="t t{place % 6}" title="{token}">{escape(text) or "∅"}</span>'
            for place, (text, token) in enumerate(zip(tokens, ids, strict=True))
        )
        + "</span>"
    )
