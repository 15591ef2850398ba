"""The frame and the parts of our HTML pages: audit, sweep, comparison, lineage.

A page is one file that needs no network, since it holds its styles, data and scripts; the same arguments give
the same bytes. Without JavaScript, it has everything as tables.
"""

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

import orjson

from tokmill.tasks.core.markdown import number
from tokmill.tasks.pages.charts import STYLE
from tokmill.tasks.store.disk import reported_as

Row = Mapping[str, Any]


def document(
    title: str,
    contents: Mapping[str, str],
    sections: Sequence[str],
    *,
    data: Any = None,
    scripts: Sequence[str] = (),
) -> str:
    """Return a page with a list of contents (ids of sections, and names) and sections of HTML.

    Scripts read the data with `unpacked("data")`; `page.js` goes before them.
    """
    links = "".join(f'<li><a href="#{name}">{escape(text)}</a></li>' for name, text in contents.items())
    packed = base64.b64encode(zlib.compress(orjson.dumps(data), 6)).decode("ascii")
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title><style>{static('page.css')}{STYLE}</style></head><body>",
            f"<header><h1>{escape(title)}</h1>",
            f'<nav aria-label="Contents"><ul>{links}</ul></nav></header><main>',
            *sections,
            f'</main><script type="text/plain" id="data">{packed}</script>',
            *(f"<script>{script}</script>" for script in (static("page.js"), *scripts)),
            "</body></html>\n",
        ]
    )


def write_document(path: Path, text: str) -> None:
    """Write a page to where a person asked for it; raises StoreError if that fails."""
    with reported_as(f"{path} cannot be written"):
        path.write_text(text, encoding="utf-8")


def static(name: str, package: str = "tokmill.tasks.pages") -> str:
    """Return the text of a file in a package's folder `static`."""
    return resources.files(package).joinpath("static", name).read_text("utf-8")


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
    """Return rows as a table, with the headings of the columns that are shown; the first heads the rows."""
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
