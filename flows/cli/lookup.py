"""Finds the store, the artifact, the tokenizer or the run that a command's arguments name.

A name without a match is wrong usage (exit code 2), not a failure. Modules of the store are imported when
they are needed, so that `tokmill --help` starts quickly.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tokmill.flows.errors import UsageError
from tokmill.tasks.core.errors import StoreError
from tokmill.tokenizer.core.errors import TokenizerError

if TYPE_CHECKING:
    from tokmill.tasks.core.stage import ArtifactRef
    from tokmill.tasks.store import Run, Store
    from tokmill.tasks.store.run_queries import Column, Order
    from tokmill.tokenizer import Tokenizer

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


def existing_store(option: str | None) -> "Store":
    """Open a store; raises UsageError if there is none at the location."""
    from tokmill.flows.run.machine import open_store, store_url

    location = store_url(option)
    store = open_store(location)
    if not store.root.is_dir():
        raise UsageError(
            f"there is no store at {location}; make one with `tokmill run quickstart`, or set --store or "
            "TOKMILL_STORE to the folder of one"
        )
    return store


def find_artifact(
    store: "Store", reference: str, *, kind: str | None = None, removed: bool = False
) -> "ArtifactRef":
    """Return the artifact that a reference names.

    Args:
        store: the store.
        reference: the reference; a bare name if a kind is expected.
        kind: the kind of a bare name.
        removed: whether it may have been removed.

    Raises:
        UsageError: no artifact, or more than one, has that name.
    """
    try:
        return store.resolve(_complete(reference, kind), removed=removed)
    except StoreError as error:
        raise UsageError(str(error)) from error


def _complete(reference: str, kind: str | None) -> str:
    is_prefix = len(reference) >= 6 and not set(reference.lower()) - set("0123456789abcdef")
    return reference if kind is None or "/" in reference or is_prefix else f"{kind}/{reference}"


def load_tokenizer(reference: str, store: str | None) -> "Tokenizer":
    """Load a tokenizer from a path, or from the store (`tokenizer/quickstart@v1`, or just `quickstart`).

    Raises:
        UsageError: there is no such path and no such artifact, or the artifact is not a tokenizer.
        TokenizerError: the file is broken.
        StoreError: the artifact is damaged, or encodes its probes differently than when it was made.
    """
    from tokmill import tokenizer
    from tokmill.tasks.formats.tokenizer import open_tokenizer

    if Path(reference).exists():
        return tokenizer.load(reference)
    opened = existing_store(store)
    ref = find_artifact(opened, reference, kind="tokenizer")
    if ref.kind != "tokenizer":
        raise UsageError(
            f"{reference} is a {ref.kind}, not a tokenizer; tokenizers are called tokenizer/NAME"
        )
    try:
        return open_tokenizer(opened.path(ref))
    except (StoreError, TokenizerError) as error:
        name = _complete(reference, "tokenizer")
        raise StoreError(
            f"{name} is damaged: {error}; `tokmill store verify {name}` lists the damage, and the next run "
            "makes it again"
        ) from error


def find_run(store: "Store", reference: str) -> "Run":
    """Return the run that a reference names; raises UsageError unless exactly one has that name."""
    from tokmill.tasks.store.run_queries import find_run as run_in

    try:
        return run_in(store, reference)
    except StoreError as error:
        raise UsageError(str(error)) from error


def columns_named(store: "Store", names: Iterable[str]) -> "list[Column]":
    """Return the metrics and parameters of these names; raises UsageError for unknown or ambiguous ones."""
    from tokmill.tasks.store.run_queries import find_columns

    try:
        return find_columns(store.catalog, names)
    except StoreError as error:
        raise UsageError(f"runs: {error}") from error


def moment_since(text: str | None) -> str | None:
    """Return the moment that `--since` means: `7d` ago, or a date or time in UTC."""
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


def order_by(column: "Column", *, lowest: bool | None, best: bool) -> "Order":
    """Return how a list is sorted by a column: the best first where it is known what is better.

    Of the best by compression, runs whose tokenizer loses text come last.

    Args:
        column: the column.
        lowest: whether the lowest value comes first; None if unspecified.
        best: whether the best are requested.

    Raises:
        UsageError: the best are requested, and it is not known what is better.
    """
    from tokmill.tasks.store.run_queries import Column, Order

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


def distinct(runs: "Sequence[Run]") -> "Sequence[Run]":
    """Return the runs; raises UsageError if one is named twice."""
    ids = [run.run_id for run in runs]
    twice = [run for run in runs if ids.count(run.run_id) > 1]
    if twice:
        raise UsageError(f"compare: {twice[0].run_id} ({twice[0].name}) is named twice; name different runs")
    return runs
