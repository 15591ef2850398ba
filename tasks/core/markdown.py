"""Markdown tables for summaries and the data card."""

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Return the lines of a table; columns in `left` are aligned left, the others right, for numbers."""
    rule = [":---" if column in left else "---:" for column in range(len(head))]
    return [f"| {' | '.join(row)} |" for row in (head, rule, *([cell(text) for text in row] for row in rows))]


def cell(text: str) -> str:
    """Return `text` with the characters escaped that would end a cell or a row."""
    return text.replace("|", "\\|").replace("\n", " ")
