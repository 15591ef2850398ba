"""Markdown tables for summaries and the data card, and numbers and shares as people read them anywhere."""

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

_MOST_DIGITS = 12
_LINE_END = re.compile(r"\r\n?|\n")


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Return the lines of a table; columns in `left` are aligned left, the others right, for numbers."""
    rule = [":---" if column in left else "---:" for column in range(len(head))]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *([cell(text) for text in row] for row in rows))]


def cell(text: str) -> str:
    """Return `text` with the characters escaped that would end a cell or a row."""
    return on_one_line(text).replace("|", "\\|")


def on_one_line(text: str) -> str:
    r"""Return `text` with a blank for each line end that Markdown knows: `\n`, `\r\n` and `\r`."""
    return _LINE_END.sub(" ", text)


def number(value: Any) -> str:
    """Return a value: whole numbers with separators, others with four significant digits, – for None."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        text = f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:.4g}"
        return f"{Decimal(text):f}" if "e" in text else text
    return f"{value:,}" if isinstance(value, int) else str(value)


def percent(share: float | None, digits: int = 2) -> str:
    """Return a share in percent; a dash for none.

    One that is neither nothing nor all has as many digits as it takes to show that: of 3 in a million, and of
    all but 3, a table says 0.0003% and 99.9997%.
    """
    if share is None:
        return "–"
    text = f"{share:.{digits}%}"
    while float(text[:-1]) in (0, 100, -100) and share not in (0, 1, -1) and digits < _MOST_DIGITS:
        digits += 1
        text = f"{share:.{digits}%}"
    return text
