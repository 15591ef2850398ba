"""Finds an artifact's folder by what a user gives; `tokenizer.load` does, by an entry point (ADR 12)."""

import os
from pathlib import Path

from tokmill.tasks.core.errors import LoadingError
from tokmill.tasks.store.layout import DEFAULT_STORE
from tokmill.tasks.store.store import Store


def artifact_folder(kind: str, path: str | Path, store: str | Path | None) -> Path:
    """Return the folder of an artifact; of one behind a URL, its files are not fetched yet.

    Args:
        kind: `packed`, `tokenizer`, …
        path: the folder; or, if a store is given or there is no such folder, the artifact's name:
            `kind/name`, `kind/name@v3`, `kind/name@prod`; or that name after its store's URL:
            `s3://bucket/store/kind/name@v3`.
        store: the store of the name; by default TOKMILL_STORE, else `tokmill-store` in the working directory.

    Raises:
        LoadingError: there is no such store.
        StoreError: the store has no artifact of that name.
    """
    before, mark, after = str(path).rpartition(f"/{kind}/")
    if store is None and mark and "://" in before:
        store, path = before, f"{kind}/{after}"
    place, name = path if isinstance(path, Path) else Path(path), str(path)
    if store is None and (place.exists() or not name.startswith(f"{kind}/")):
        return place
    location = str(store or os.environ.get("TOKMILL_STORE") or DEFAULT_STORE)
    opened = Store.open(location)
    if not opened.root.is_dir():
        raise LoadingError(
            f"loading: {name} is not a folder, and there is no store at {location} to find it in; give the "
            "artifact's folder, or store='…'"
        )
    return opened.place(opened.resolve(name))
