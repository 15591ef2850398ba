"""The frame of our HTML pages: a file that needs no network, since it holds its styles, data and scripts."""

from collections.abc import Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from tokmill.tasks.audit.report.payload import packed
from tokmill.tasks.audit.report.svg import STYLE
from tokmill.tasks.store.disk import reported_as


def document(
    title: str,
    contents: Mapping[str, str],
    sections: Sequence[str],
    *,
    data: Any,
    scripts: Sequence[str],
    style: str = "",
) -> str:
    """Return a page; the same arguments give the same bytes.

    Args:
        title: of the page.
        contents: the ids of sections that the list of contents links to, with their names.
        sections: the page's body, as HTML.
        data: JSON-able, for the scripts, which read it with `unpacked("data")`.
        scripts: in their order; `shared.js` goes before them.
        style: added to that of all pages.
    """
    links = "".join(f'<li><a href="#{name}">{escape(text)}</a></li>' for name, text in contents.items())
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">',
            f"<title>{escape(title)}</title><style>{static('page.css')}{STYLE}{style}</style></head><body>",
            f"<header><h1>{escape(title)}</h1>",
            f'<nav aria-label="Contents"><ul>{links}</ul></nav></header><main>',
            *sections,
            f'</main><script type="text/plain" id="data">{packed(data)}</script>',
            *(f"<script>{script}</script>" for script in (static("shared.js"), *scripts)),
            "</body></html>\n",
        ]
    )


def write_document(path: Path, text: str) -> None:
    """Write a page to where a person asked for it.

    Raises:
        StoreError: the file cannot be written.
    """
    with reported_as(f"{path} cannot be written"):
        path.write_text(text, encoding="utf-8")


def static(name: str, package: str = "tokmill.tasks.audit.report") -> str:
    """Return the text of a file in a package's folder `static`."""
    return resources.files(package).joinpath("static", name).read_text("utf-8")
