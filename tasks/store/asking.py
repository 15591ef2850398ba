"""Questions to the catalog in the user's own SQL: one statement that only reads."""

import re
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tokmill.tasks.core.database import require_duckdb
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store.connection import answering

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


MOST_CHARS: Final = 1 << 20
"""The most characters of a query."""

_MOST_OPEN: Final = 200  # the parser's time grows with the square of what is open, and not closed
_NESTING: Final = re.compile(r"""'[^']*'|"[^"]*"|--.*|/\*.*?\*/|[(\[{]|[)\]}]""")


class Answer(NamedTuple):
    """The result of a query: the names of its columns, and its rows, in its order."""

    columns: Sequence[str]
    rows: Sequence[tuple[Any, ...]]


def ask(connection: "DuckDBPyConnection", sql: str) -> Answer:
    """Answer a query that was checked (`check_question`).

    Raises:
        BrokenCatalogError, StoreError: as `answering`.
    """
    with answering(connection):
        found = connection.execute(sql)
        return Answer([column[0] for column in found.description or ()], found.fetchall())


def check_question(sql: str) -> None:
    """Refuse SQL that is not one statement that reads.

    Raises:
        StoreError: it cannot be parsed, is empty, long or deeply nested, has several statements, or one of
            another kind.
    """
    if len(sql) > MOST_CHARS or _depth(sql) > _MOST_OPEN:
        raise StoreError(
            f"sql: a query has at most {MOST_CHARS:,} characters, and brackets {_MOST_OPEN} deep; shorten it"
        )
    require_duckdb()
    import duckdb

    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise StoreError(f"sql: {error}") from error
    if len(statements) != 1:
        raise StoreError(f"sql: {len(statements)} statements were given; give one SELECT")
    kind = statements[0].type.name
    if kind != "SELECT":
        raise StoreError(
            f"sql: {kind} is refused, since the catalog is made from the records and only read; use SELECT, "
            "FROM, DESCRIBE, SUMMARIZE or SHOW TABLES"
        )


def _depth(sql: str) -> int:
    """Return how many brackets are open at once, strings and comments left out."""
    steps = ((found in "([{") - (found in ")]}") for found in _NESTING.findall(sql))
    return max(accumulate(steps), default=0)
