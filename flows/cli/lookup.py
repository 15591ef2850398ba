"""Finds the store, the artifact, the tokenizer or the run that a command's arguments name.

A name without a match is wrong usage (exit code 2), not a failure. Modules of the store are imported when
they are needed, so that `tokmill --help` starts quickly.
"""

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from tokmill.flows.errors import UsageError
from tokmill.tasks.core.errors import StoreError
from tokmill.tokenizer.core.errors import TokenizerError

if TYPE_CHECKING:
    from tokmill.tasks.core.stage import ArtifactRef
    from tokmill.tasks.store import Run, Store
    from tokmill.tasks.store.references import Column, Order
    from tokmill.tokenizer import Tokenizer

_T = TypeVar("_T")
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
    store: "Store", reference: str, *kinds: str, bare: bool = True, removed: bool = False
) -> "ArtifactRef":
    """Return the artifact that a reference names.

    Args:
        store: the store.
        reference: `kind/name`, with a version or an alias; a fingerprint's first digits.
        kinds: the kinds that it may have; all if there are none.
        bare: whether a name without a kind has the first of them.
        removed: whether it may have been removed.

    Raises:
        UsageError: no artifact, more than one, or one of another kind has that name.
    """
    try:
        ref = store.resolve(_complete(reference, kinds[0] if kinds and bare else None), removed=removed)
    except StoreError as error:
        raise UsageError(str(error)) from error
    if kinds and ref.kind not in kinds:
        names = " or ".join(f"{kind}/NAME" for kind in kinds)
        raise UsageError(f"{reference} is of kind {ref.kind}, not {' or '.join(kinds)}; name {names}")
    return ref


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
    ref = find_artifact(opened, reference, "tokenizer")
    try:
        return open_tokenizer(opened.path(ref))
    except (StoreError, TokenizerError) as error:
        name = _complete(reference, "tokenizer")
        raise StoreError(
            f"{name} is damaged: {error}; `tokmill store verify {name}` lists the damage, and the next run "
            "makes it again"
        ) from error


def load_tokenizers(references: Sequence[str], store: str | None) -> "dict[str, Tokenizer]":
    """Load tokenizers by their short names, or by their paths if files have the same name.

    A file that does not say how text is split may be named with a pattern, as FILE:PATTERN.
    """
    from tokmill import tokenizer

    places = [_place(reference) for reference in references]
    short = [
        Path(place).name if Path(place).exists() else reference.removeprefix("tokenizer/")
        for (place, _), reference in zip(places, references, strict=True)
    ]
    names = [one if short.count(one) == 1 else ref for one, ref in zip(short, references, strict=True)]
    return {
        name: load_tokenizer(place, store)
        if pattern is None
        else tokenizer.load(place, split_pattern=pattern)
        for name, (place, pattern) in once_each("tokenizers", zip(names, places, strict=True)).items()
    }


def _place(reference: str) -> tuple[str, str | None]:
    """Return a path or reference, and a split pattern if it has one."""
    path, colon, pattern = reference.rpartition(":")
    has_pattern = colon and not Path(reference).exists() and Path(path).exists()
    return (path, pattern) if has_pattern else (reference, None)


def once_each(what: str, named: Iterable[tuple[str, _T]]) -> dict[str, _T]:
    """Return values by name; raises UsageError for a name that stands for two of them, or for all."""
    values: dict[str, _T] = {}
    for name, value in named:
        if name in values:
            raise UsageError(f"compare: {what}: {name!r} is named twice; name each once")
        if name in ("all", "*"):
            raise UsageError(f"compare: {what}: {name!r} is what all together are called; use another name")
        values[name] = value
    return values


def find_run(store: "Store", reference: str) -> "Run":
    """Return the run that a reference names; raises UsageError unless exactly one has that name."""
    from tokmill.tasks.store.references import find_run as run_in

    try:
        return run_in(store, reference)
    except StoreError as error:
        raise UsageError(str(error)) from error


def columns_named(store: "Store", names: Iterable[str]) -> "list[Column]":
    """Return the metrics and parameters of these names; raises UsageError for unknown or ambiguous ones."""
    from tokmill.tasks.store.references import find_columns

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
    from tokmill.tasks.store.references import Column, Order

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
