"""Finds the store, the artifact or the tokenizer that a command's arguments name.

A name without a match is wrong usage (exit code 2), not a failure.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from tokmill.flows.errors import UsageError
from tokmill.flows.run.machine import open_store, store_url
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.store import Store
from tokmill.tokenizer.core.errors import TokenizerError

if TYPE_CHECKING:
    from tokmill.tokenizer import Tokenizer


def existing_store(option: str | None) -> Store:
    """Open a store that must exist.

    Raises:
        UsageError: there is none at the location.
    """
    location = store_url(option)
    store = open_store(location)
    if not store.root.is_dir():
        raise UsageError(
            f"there is no store at {location}; make one with `tokmill run quickstart`, or set --store or "
            "TOKMILL_STORE to the folder of one"
        )
    return store


def find_artifact(store: Store, reference: str, *, removed: bool = False) -> ArtifactRef:
    """Return the artifact that a reference names; one that was removed only if `removed`.

    Raises:
        UsageError: no artifact, or more than one, has that name.
    """
    try:
        return store.resolve(reference, removed=removed)
    except StoreError as error:
        raise UsageError(str(error)) from error


def load_tokenizer(reference: str, store: str | None) -> "Tokenizer":
    """Load a tokenizer from a path, or from the store (`tokenizer/quickstart@v1`, or just `quickstart`).

    Raises:
        UsageError: there is no such path and no such artifact, or the artifact is not a tokenizer.
        TokenizerError: the file is broken.
        StoreError: the artifact is damaged, or encodes its probes differently than when it was made.
    """
    from tokmill import tokenizer

    if Path(reference).exists():
        return tokenizer.load(reference)
    opened = existing_store(store)
    called = reference if is_reference(reference) else f"tokenizer/{reference}"
    ref = find_artifact(opened, called)
    if ref.kind != "tokenizer":
        raise UsageError(
            f"{reference} is a {ref.kind}, not a tokenizer; tokenizers are called tokenizer/NAME"
        )
    try:
        return open_tokenizer(opened.path(ref))
    except (StoreError, TokenizerError) as error:
        raise StoreError(
            f"{called} is damaged: {error}; `tokmill verify {called}` lists the damage, and the next run "
            "makes it again"
        ) from error


def is_reference(text: str) -> bool:
    """Whether a text is a complete reference; a bare name lacks its kind."""
    is_prefix = len(text) >= 6 and not set(text.lower()) - set("0123456789abcdef")
    return "/" in text or is_prefix
