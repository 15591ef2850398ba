"""Markdown tables for summaries and the data card, and the shares in them."""

from collections.abc import Iterable, Sequence

_MOST_DIGITS = 12


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Return the lines of a table; columns in `left` are aligned left, the others right, for numbers."""
    rule = [":---" if column in left else "---:" for column in range(len(head))]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *([cell(text) for text in row] for row in rows))]


def cell(text: str) -> str:
    """Return `text` with the characters escaped that would end a cell or a row."""
    return text.replace("|", "\\|").replace("\n", " ")


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
