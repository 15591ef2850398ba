"""Numbers, names, tables and front matter as cards write them.

Front matter is what model and dataset hubs read of a card: YAML between two lines of dashes at its beginning.
It has what the card's own bytes may depend on. Name, version and date are the artifact's, and not part of it:
`published` adds them where the card is handed out.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from tokmill.tasks.core.markdown import percent, table

Facts: TypeAlias = dict[str, Any]
"""A part of `card.json`."""
Column: TypeAlias = str | Callable[[Mapping[str, Any]], str]
_BAR_WIDTH = 12
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_RATIOS = ("bytes_per_token", "chars_per_token", "renyi_efficiency", "fertility")
_LICENSE = re.compile(
    r"afl-3\.0|(a|l)?gpl(-[23]\.[01])?|apache-2\.0|artistic-2\.0|bsd(-[23]-clause)?|bsl-1\.0|cc0-1\.0"
    r"|cc-by(-nc)?(-sa|-nd)?-[234]\.[05]|cdla-(permissive|sharing)-[12]\.0|e[cp]l-[12]\.0|etalab-2\.0|isc|mit"
    r"|eupl-1\.[12]|gfdl|mpl-2\.0|ms-pl|ncsa|od(c-by|bl)|ofl-1\.1|pddl|postgresql|un(known|license)|wtfpl|zlib"
)
"""Identifiers that hubs know; any other license is `other` there, with its name."""
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def document(front: Mapping[str, str | Sequence[str]], facts: Facts, sections: Iterable[list[str]]) -> str:
    """Return a card as Markdown: front matter, and the sections that have lines."""
    lines = front_matter({"pretty_name": facts["title"], "language": facts["languages"], **front}, facts)
    lines += [line for section in sections if section for line in [*section, ""]]
    return "\n".join(lines).rstrip("\n") + "\n"


def section(title: str, *parts: str | Sequence[str]) -> list[str]:
    """Return the lines of a section: its heading, and paragraphs or blocks of lines, without empty ones."""
    blocks = [[part] if isinstance(part, str) else part for part in (f"## {title}", *parts) if part]
    return [line for block in blocks for line in [*block, ""]][:-1]


def opening(facts: Facts, glance: str, setting: str) -> list[str]:
    """Return a card's title, its glance, the description, and the license, also where none is stated."""
    described = ["", facts["description"]] if facts["description"] else []
    stated = facts["license"] or f"**not stated**; `{setting}` in the profile is the place for it"
    return [f"# {facts['title']}", "", glance, *described, "", f"License: {stated}"]


def front_matter(fields: Mapping[str, str | Sequence[str]], facts: Facts) -> list[str]:
    """Return the lines of front matter: the license and the fields that have a value.

    Every text is a double-quoted scalar, so none is taken for a number or a truth value (`no`).
    """
    slug = re.sub(r"[^a-z0-9.+]+", "-", facts["license"].lower()).strip("-")
    slug = {"cc0": "cc0-1.0", "": "unknown"}.get(slug, slug)
    known = {"license": slug} if _LICENSE.fullmatch(slug) else {"license": "other", "license_name": slug[:64]}
    lines = ["---"]
    for name, value in {**known, **fields}.items():
        if isinstance(value, str):
            lines += [f"{name}: {_quoted(value)}"] if value else []
        elif value:
            lines += [f"{name}:", *(f"- {_quoted(item)}" for item in value)]
    return [*lines, "---", ""]


def _quoted(text: str) -> str:
    quoted = json.dumps(text, ensure_ascii=False)
    return _NOT_IN_YAML.sub(lambda found: f"\\u{ord(found[0]):04x}", quoted)


def without_front_matter(card: str) -> str:
    """Return a card's text from its title on."""
    return card.split("\n---\n\n", 1)[-1] if card.startswith("---\n") else card


def published(card: str, name: str, version: str, date: str) -> str:
    """Return a card as it is handed out: with the artifact's name and version, and the day it was made."""
    body = without_front_matter(card)
    front = card.removesuffix(body)
    title, _, rest = body.partition("\n")
    about = f"version: {_quoted(version)}\ndate: {_quoted(date)}\n"
    front = front.replace("\n---\n", f"\n{about}---\n", 1) if front else ""
    return f"{front}{title}\n\n{name}, version {version}, made on {date}.\n{rest}"


def listed(
    rows: Iterable[Mapping[str, Any]],
    columns: Mapping[str, Column],
    left: Sequence[int] = (0,),
    total: Mapping[str, Any] | None = None,
) -> list[str]:
    """Return facts as a table, with columns of text `left`, and a last row in bold.

    A column is by its heading the name of a fact, which says how it is written, or a function of the row.
    """

    def cells(row: Mapping[str, Any]) -> list[str]:
        return [one(row) if callable(one) else _said(one, row[one]) for one in columns.values()]

    last = [] if total is None else [[f"**{text}**" for text in cells(total)]]
    return table(list(columns), [*map(cells, rows), *last], left)


def _said(name: str, value: Any) -> str:
    if value is None:
        return "–"
    if name.endswith("share"):
        return percent(value)
    if name in ("num_bytes", "size_bytes"):
        return size(value)
    if name in _RATIOS:
        return ratio(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def artifact_lines(artifacts: Iterable[Facts]) -> list[str]:
    """Return a table of artifacts by their content."""
    content = {"content digest": lambda one: f"`{one['content_digest']}`"}
    return listed(artifacts, {"artifact": "kind", "files": "num_files", **content}, (0, 2))


def code(text: str) -> str:
    """`text` as code, fenced by more backticks than it has in a row."""
    longest = longest_run(text)
    fence = "`" * (longest + 1)
    space = " " if longest else ""
    return f"{fence}{space}{text}{space}{fence}"


def longest_run(text: str) -> int:
    """The most backticks in a row."""
    return max(map(len, re.findall("`+", text)), default=0)


def first_of(names: Sequence[str], most: int) -> str:
    """The first names, and how many more there are; `none` if there are none."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return (", ".join(names[:most]) or "none") + more


def rule(method: str, temperature: float | None) -> str:
    """How something is weighted: `temperature 2`."""
    return method if temperature is None else f"{method} {temperature:g}"


def weighting(balance: Mapping[str, Any]) -> str:
    """How a balance weights sources, in a few words."""
    most = balance["max_repetition"]
    limit = "" if most is None else f", at most {most:g} times"
    return f"{rule(balance['method'], balance['temperature'])} over {balance['unit']}{limit}"


def figures_text(figures: Mapping[str, int]) -> str:
    """The counts that describe the family's models: `, 743 merges`."""
    return "".join(f", {value:,} {name.removeprefix('num_')}" for name, value in figures.items())


def bar(share: float, largest: float) -> str:
    """A bar in eighths of a character: how long `share` is beside `largest`; none but 0 is empty."""
    eighths = round(share / largest * _BAR_WIDTH * 8) if largest else 0
    full, rest = divmod(max(int(share > 0), eighths), 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def ratio(value: float | None) -> str:
    """A ratio with three digits; a dash for none."""
    return "–" if value is None else f"{value:.3f}"


def number_of(number: int, thing: str) -> str:
    """A number of things: `1 source`, `2 sources`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def size(num_bytes: int) -> str:
    """Bytes in the largest decimal unit that gives at least 1."""
    for power, unit in ((4, "TB"), (3, "GB"), (2, "MB"), (1, "kB")):
        if num_bytes >= 1000**power:
            return f"{num_bytes / 1000**power:.1f} {unit}"
    return f"{num_bytes} B"
