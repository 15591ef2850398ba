"""Numbers, names and tables of accounts as a data card writes them."""

from collections.abc import Iterable, Sequence

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


def percent(share: float | None, digits: int = 2) -> str:
    """A share in percent; a dash for none."""
    return "–" if share is None else f"{share:.{digits}%}"


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
