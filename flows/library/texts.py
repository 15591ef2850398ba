"""Columns of text as Arrow files in `.texts` of a store, which a profile's sources can name.

A file's name is that of its content, so that what was made from equal texts is found again, whatever
library they came from. With a store in a bucket they are objects beside its artifacts.
"""

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.flows.errors import UsageError
from tokmill.flows.library.columns import OnError, arrays_of
from tokmill.flows.run.machine import writable_store
from tokmill.tasks.store.digest import digest_file
from tokmill.tasks.store.disk import reported_as

if TYPE_CHECKING:
    import pyarrow as pa

    from tokmill.tasks.store import Store

_NAME_CHARS = 24


def sources_of(columns: Mapping[str, Any], store: "Store", on_error: OnError) -> dict[str, Any]:
    """Write columns beside a store, and return the table `sources` of a profile for them.

    Args:
        columns: source → column; see `columns.arrays_of`.
        store: where the artifacts will be.
        on_error: what becomes of rows that are null or not UTF-8: an error, or quarantine.

    Raises:
        UsageError: a column is not of texts, or has a bad row while `on_error` is "fail"; the store cannot be
            written to.
        StoreError: the disk is full.
    """
    writable_store(store.location)
    return {
        source: {
            "files": [_written(column, f"texts[{source!r}]", store, on_error)],
            "format": "arrow",
            "text_column": "text",
            "on_error": on_error,
        }
        for source, column in columns.items()
    }


def _written(column: Any, where: str, store: "Store", on_error: OnError) -> str:
    """Write a column, unless its file is there; return its path, or its URL."""
    folder = store.layout.texts
    unfinished = folder / f".{uuid.uuid4().hex}.unfinished"
    try:
        with reported_as(f"{where} cannot be written beside the store {store.location}"):
            folder.mkdir(parents=True, exist_ok=True)
            _write(column, where, unfinished, on_error)
            place = folder / f"{digest_file(unfinished)[:_NAME_CHARS]}.arrow"
            unfinished.replace(place)
    finally:
        unfinished.unlink(missing_ok=True)
    return _shared(place, store)


def _write(column: Any, where: str, file: Path, on_error: OnError) -> None:
    import pyarrow as pa  # noqa: PLC0415 - `import tokmill` stays quick

    schema = pa.schema({"text": pa.large_string()})
    first = num_rows = num_null = 0
    with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for array in arrays_of(column, where, on_error):
            if array.null_count and not num_null:
                first = num_rows + _first_null(array)
            num_null += array.null_count
            num_rows += len(array)
            writer.write_batch(pa.record_batch([array], schema=schema))
    if not num_rows:
        raise UsageError(f"{where} is empty; give at least one text")
    if num_null and on_error == "fail":
        raise UsageError(
            f"{where}: row {first} is null ({num_null:,} of {num_rows:,} rows); drop these rows, fill them "
            "with '', or pass on_error='quarantine' to leave them out"
        )


def _first_null(array: "pa.Array") -> int:
    import pyarrow.compute as pc  # noqa: PLC0415

    return int(pc.index(pc.is_null(array), True).as_py())


def _shared(place: Path, store: "Store") -> str:
    """Return where all machines that use the store find a file."""
    if "://" not in store.location:
        return str(place)
    from tokmill.tasks.remote import location, objects  # noqa: PLC0415 - only for stores behind a URL

    url = location.joined(store.location, f"{place.parent.name}/{place.name}")
    try:
        objects.stat(url)
    except FileNotFoundError:
        objects.upload(place, url)
    return url
