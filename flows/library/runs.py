"""The runs of a store: filtered, sorted, with metrics and parameters as columns."""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from tokmill.flows.errors import UsageError
from tokmill.flows.library.table import Table
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Scalar
from tokmill.tasks.store import Store
from tokmill.tasks.store.references import Column, Order, RunFilter, find_columns, list_runs
from tokmill.tasks.store.rows import as_json
from tokmill.tasks.store.snapshot import Row

_AGO = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LOWER: Final = re.compile(
    "fertility|premium|gini|bits_per_byte|perplexity|seconds|peak_bytes|unknown_share|unused_share|"
    "never_encoded_share|padding_share|changed_share|num_padding_tokens|num_suspects|truncated_share|"
    "num_unmet_probes|num_unreachable|dropped_share|num_quarantined"
)
_HIGHER: Final = ("bytes_per_token", "renyi_efficiency", "whole_share", "chars_per_token", "words_per_token")
_OF_COMPRESSION: Final = ("bytes_per_token", "chars_per_token", "fertility", "premium")
"""Of tokenizers that lose text these do not compare: what is lost costs no tokens."""
_TYPES: Final = {
    **{"run_id": "string", "attempt": "int64", "name": "string", "profile": "string", "experiment": "string"},
    **{"tags": "list", "state": "string", "message": "string", "started": "timestamp[s]"},
    **{"ended": "timestamp[s]", "seconds": "float64", "num_made": "int64", "num_cached": "int64"},
    **{"num_waited": "int64", "peak_bytes": "int64", "started_by": "string", "user_name": "string"},
    **{"host": "string", "tokmill": "string", "git_commit": "string", "git_dirty": "bool", "url": "string"},
}
"""The columns that every table has, by name, with their types in Arrow."""


class RunList(NamedTuple):
    """Runs, the columns that were asked for, and the order, by the first of these."""

    rows: list[Row]
    columns: list[Column]
    order: Order


def find_runs(
    store: Store,
    where: RunFilter,
    sort: str = "started",
    show: Sequence[str] = (),
    *,
    best: int | None = None,
    lowest: bool | None = None,
    most: int | None = None,
) -> RunList:
    """List runs with further metrics and parameters (`show`): the `best`, or the first `most`."""
    try:
        columns = list(dict.fromkeys(find_columns(store.catalog, [sort, *show])))
    except StoreError as error:
        raise UsageError(f"runs: {error}") from error
    where = replace(where, since=moment_since(where.since))
    order = order_by(columns[0], lowest=lowest, best=best is not None)
    rows = list_runs(store.catalog, where, columns, order, best or most, complete=best is not None)
    return RunList(rows, columns, order)


def moment_since(text: str | None) -> str | None:
    """Return the moment that `7d` ago, or a date or time in UTC, means."""
    if text is None:
        return None
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            back = timedelta(**{_UNITS[ago["unit"]]: float(ago["number"])})
            return (datetime.now(UTC) - back).replace(tzinfo=None).isoformat()
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--since {text!r} is not a time: use e.g. 7d, 12h or 2026-11-24") from error
    return (moment.astimezone(UTC) if moment.tzinfo else moment).replace(tzinfo=None).isoformat()


def order_by(column: Column, *, lowest: bool | None, best: bool) -> Order:
    """Return how a list is sorted by a column: the best first where it is known what is better.

    Of the best by compression, runs whose tokenizer loses text come last.
    """
    kind, _, name = column.name.rpartition(".")
    compares = best and column.of == "metric" and any(word in name for word in _OF_COMPRESSION)
    lost = Column("metric", f"{kind}.unknown_share") if compares else None
    if lowest is not None:
        return Order(column, not lowest, lost)
    if _LOWER.search(name):
        return Order(column, not best, lost)
    if best and not any(word in name for word in _HIGHER):
        raise UsageError(
            f"--best: whether a high or a low {column.name} is better is not known; add --highest or --lowest"
        )
    return Order(column, column.name not in {"name", "profile", "state"}, lost)


def table_of(runs: RunList, title: str) -> Table:
    """Return one row per run."""
    import pyarrow as pa  # noqa: PLC0415 - `import tokmill` stays quick

    columns = {
        name: pa.array(
            [_moment(row[name]) if kind == "timestamp[s]" else row[name] for row in runs.rows],
            pa.list_(pa.string()) if kind == "list" else pa.type_for_alias(kind),
        )
        for name, kind in _TYPES.items()
    }
    values = {
        column.label: _values([row["values"][column.label] for row in runs.rows])
        for column in runs.columns
        if column.of != "field"
    }
    return Table(pa.table({**columns, **values}), title)


def _values(values: Sequence[Scalar | None]) -> Any:
    """Return metrics or parameters as a column: of one type if that loses nothing, else as texts.

    Seeds may have all of 64 bits, which neither int64 nor a float holds, and a setting may be a number in one
    run and a word or a table in another.
    """
    import pyarrow as pa  # noqa: PLC0415

    with suppress(pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return pa.array(values)
    if all(isinstance(value, int) and value >= 0 for value in values if value is not None):
        return pa.array(values, pa.uint64())
    texts = (value if value is None or isinstance(value, str) else as_json(value) for value in values)
    return pa.array(texts, pa.string())


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).replace(tzinfo=None)
