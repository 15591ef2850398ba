"""Numbers, names, tables of accounts and front matter as cards write them.

Front matter is what model and dataset hubs read of a card: YAML between two lines of dashes at its beginning.
It has what the card's own bytes may depend on. Name, version and date are the artifact's, and not part of it:
`published` adds them where the card is handed out.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

from tokmill.tasks.card.conservation import AccountTable, Column
from tokmill.tasks.core.markdown import table

_BAR_WIDTH = 12
_EIGHTHS = " ▏▎▍▌▋▊▉█"
# How the accounts' ends read in a table's head; the others read as they are called.
_WORDS = {
    "begin_of_document": "begin tokens",
    "end_of_document": "end tokens",
    "repetition": "read again",
    "dropped:min_tokens": "too short",
    "dropped:too_long": "too long",
    "truncated": "cut off",
}


_LICENSE = re.compile(
    r"afl-3\.0|(a|l)?gpl(-[23]\.[01])?|apache-2\.0|artistic-2\.0|bsd(-[23]-clause)?|bsl-1\.0|cc0-1\.0"
    r"|cc-by(-nc)?(-sa|-nd)?-[234]\.[05]|cdla-(permissive|sharing)-[12]\.0|e[cp]l-[12]\.0|etalab-2\.0|isc|mit"
    r"|eupl-1\.[12]|gfdl|mpl-2\.0|ms-pl|ncsa|od(c-by|bl)|ofl-1\.1|pddl|postgresql|un(known|license)|wtfpl|zlib"
)
"""Identifiers that hubs know; any other license is `other` there, with its name."""
_NOT_IN_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def front_matter(fields: Mapping[str, str | Sequence[str]], text_license: str) -> list[str]:
    """Return the lines of front matter: the license and the fields that have a value.

    Every text is a double-quoted scalar, so none is taken for a number or a truth value (`no`).
    """
    slug = re.sub(r"[^a-z0-9.+]+", "-", text_license.lower()).strip("-")
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


def license_line(text_license: str, setting: str) -> str:
    """Return the card's line on the license, also where none is stated."""
    return f"License: {text_license or f'**not stated**; `{setting}` in the profile is the place for it'}"


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


_SIZES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")


def size_category(number: int) -> str:
    """Return the class of a number of rows as hubs name it: `10K<n<100K`."""
    place = sum(number >= 1000 * 10**power for power in range(len(_SIZES)))
    if place == 0:
        return f"n<{_SIZES[0]}"
    return f"n>{_SIZES[-1]}" if place == len(_SIZES) else f"{_SIZES[place - 1]}<n<{_SIZES[place]}"


def account_lines(accounts: AccountTable) -> list[str]:
    """A table of accounts: a row per source, and their sum."""
    head = [accounts.unit, *(_column(column) for column in accounts.columns)]
    rows = [[source, *_amounts(accounts.columns, row)] for source, row in accounts.rows.items()]
    rows.append(["**all**", *(f"**{cell}**" for cell in _amounts(accounts.columns, accounts.total))])
    return table(head, rows)


def _column(column: Column) -> str:
    name = _WORDS.get(column.name, column.name.split(":")[-1].replace("_", " "))
    return {"in": "in", "+": f"+ {name}", "-": f"− {name}", "=": f"= {name}"}[column.sign]


def _amounts(columns: Sequence[Column], amounts: Sequence[int]) -> Iterable[str]:
    for column, amount in zip(columns, amounts, strict=True):
        yield f"{amount:,}" if amount or column.sign in {"in", "="} else "·"


def code(text: str) -> str:
    """`text` as code, fenced by more backticks than it has in a row."""
    longest = longest_run(text)
    fence = "`" * (longest + 1)
    space = " " if longest else ""
    return f"{fence}{space}{text}{space}{fence}"


def longest_run(text: str) -> int:
    """The most backticks in a row."""
    return max((len(run) for run in "".join(c if c == "`" else " " for c in text).split()), default=0)


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
