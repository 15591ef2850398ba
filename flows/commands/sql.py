"""`tokmill sql`: questions to the catalog in SQL, answered as a table, JSON or CSV."""

import csv
import math
import sys
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

from typer import Argument, Option

from tokmill.flows.cli.app import app, command
from tokmill.flows.cli.options import DEFAULT, ExistingStore, JsonOption
from tokmill.flows.cli.output import Table, aside, print_json, print_parts
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted
from tokmill.tasks.core.faults import read_named


@command(
    app,
    'tokmill sql "FROM artifacts SELECT kind, count(*) GROUP BY kind"',
    "tokmill sql \"FROM metrics WHERE name = 'bytes_per_token'\" --csv",
    'tokmill sql "SHOW TABLES"',
    "tokmill sql --file worst.sql --json",
)
def sql(
    query: str | None = Argument(None, metavar="QUERY", help="One SELECT statement of DuckDB; - reads it."),
    file: Path | None = Option(None, "--file", "-f", help="A file with the query."),
    limit: int = Option(100, min=1, help="Rows of the table that are shown."),
    as_csv: bool = Option(False, "--csv", help="Write all rows as CSV."),
    store: ExistingStore = DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Query the catalog in SQL, read-only."""
    if as_csv and as_json:
        raise UsageError("sql: --csv and --json exclude each other; leave one out")
    answer = store.catalog.ask(_question(query, file))
    if as_json:
        names = list(_names(answer.columns))
        print_json([dict(zip(names, map(_json, row), strict=True)) for row in answer.rows])
    elif as_csv:
        writer = csv.writer(sys.stdout)  # with \r\n, so that fields with either of the two are quoted
        writer.writerow(answer.columns)
        writer.writerows(["" if value is None else _json(value) for value in row] for row in answer.rows)
    else:
        shown = answer.rows[:limit]
        columns = zip(answer.columns, zip(*shown, strict=True), strict=True) if shown else ()
        kinds = int | float | Decimal | None
        numbers = [name for name, values in columns if all(isinstance(value, kinds) for value in values)]
        print_parts([Table(answer.columns, [list(map(_text, row)) for row in shown], right=numbers)])
        if len(answer.rows) > limit:
            more = counted(len(answer.rows) - limit, "more row")
            aside(f"{more}; --limit shows more, --csv and --json write all")


def _question(query: str | None, file: Path | None) -> str:
    """Return the query: an argument, a file's content, or standard input."""
    if (query is None) == (file is None):
        raise UsageError("sql: give a query or --file FILE, one of the two; - reads standard input")
    from tokmill.tasks.store.snapshot import MOST_CHARS

    if query is not None:
        return sys.stdin.read(MOST_CHARS + 1) if query == "-" else query
    try:
        return read_named(Path(str(file))).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"sql: {file} cannot be read: {error}") from error


def _text(value: object) -> str:
    """Return a value as one line."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(_json(value) if not isinstance(value, str) else value.replace("\n", "⏎"))


def _names(columns: Sequence[str]) -> Iterator[str]:
    """Yield the columns' names; a repeated one with a number, since a JSON object has each once."""
    used = set[str]()
    for place, name in enumerate(columns):
        later = {*columns[place + 1 :]}
        numbered = (f"{name}_{number}" for number in count(2))
        free = name if name not in used else next(each for each in numbered if each not in used | later)
        used.add(free)
        yield free


def _json(value: Any) -> Any:
    """Return a value of DuckDB as JSON; bytes that are not UTF-8 are escaped, infinities and NaN null."""
    if isinstance(value, list | tuple):
        return [_json(inner) for inner in value]
    if isinstance(value, dict):
        return {str(key): _json(inner) for key, inner in value.items()}
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str | int | None):
        return value
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
