"""Finds the runs that a command's arguments name, and reads the options that choose runs.

A name without a match is wrong usage (exit code 2), not a failure.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from tokmill.flows.errors import UsageError
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import Run, Store
from tokmill.tasks.store.run_queries import Column, Order, find_columns
from tokmill.tasks.store.run_queries import find_run as run_in

_AGO = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[mhdw])")
_UNITS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_LOWER: Final = (
    *(
        "fertility",
        "premium",
        "gini",
        "bits_per_byte",
        "perplexity",
        "seconds",
        "peak_bytes",
        "unknown_share",
    ),
    *(
        "unused_share",
        "never_encoded_share",
        "padding_share",
        "changed_share",
        "num_padding_tokens",
        "num_suspects",
        "truncated_share",
    ),
    *("num_unmet_probes", "num_unreachable", "dropped_share", "num_quarantined"),
)
_HIGHER: Final = ("bytes_per_token", "renyi_efficiency", "whole_share", "chars_per_token", "words_per_token")


def find_run(store: Store, reference: str) -> Run:
    """Return the run that a reference names; see `tasks.store.run_queries`.

    Raises:
        UsageError: no run, or more than one, has that name.
    """
    try:
        return run_in(store, reference)
    except StoreError as error:
        raise UsageError(str(error)) from error


def columns_named(store: Store, names: Iterable[str]) -> list[Column]:
    """Return the metrics and parameters of these names.

    Raises:
        UsageError: there is none of a name, or several fit it.
    """
    try:
        return find_columns(store.catalog, names)
    except StoreError as error:
        raise UsageError(f"runs: {error}") from error


def moment_since(text: str | None) -> str | None:
    """Return the moment that `--since` means: `7d` ago, or a date or time in UTC.

    Raises:
        UsageError: it is neither.
    """
    if text is None:
        return None
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            back = timedelta(**{_UNITS[ago["unit"]]: float(ago["number"])})
            return (datetime.now(UTC) - back).replace(tzinfo=None).isoformat()
        given = datetime.fromisoformat(text)
    except (ValueError, OverflowError) as error:
        raise UsageError(f"--since {text!r} is no time: use e.g. 7d, 12h or 2026-11-24") from error
    return (given.astimezone(UTC) if given.tzinfo else given).replace(tzinfo=None).isoformat()


def order_by(column: Column, *, lowest: bool | None, best: bool) -> Order:
    """Return how a list is sorted by a column: the best first where it is known what is better.

    Args:
        column: the column.
        lowest: whether the lowest value comes first; None where nobody says.
        best: whether the best are asked for.

    Raises:
        UsageError: the best are asked for, and it is not known what is better.
    """
    if lowest is not None:
        return Order(column, descending=not lowest)
    name = column.name.rpartition(".")[2]
    if any(word in name for word in _LOWER):
        return Order(column, descending=not best)
    if best and not any(word in name for word in _HIGHER):
        raise UsageError(
            f"--best: whether a high or a low {column.name} is better is not known; add --highest or --lowest"
        )
    return Order(column, descending=column.name not in {"name", "profile", "state"})


def distinct(runs: Sequence[Run]) -> Sequence[Run]:
    """Return the runs if they are different ones.

    Raises:
        UsageError: a run is named twice.
    """
    ids = [run.run_id for run in runs]
    twice = [run for run in runs if ids.count(run.run_id) > 1]
    if twice:
        raise UsageError(f"compare: {twice[0].run_id} ({twice[0].name}) is named twice; name different runs")
    return runs
