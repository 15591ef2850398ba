"""What the page's JavaScript works with: the tokens as columns, compressed, 200,000 of them in about 2 MB."""

import base64
import zlib
from collections.abc import Sequence
from typing import Any

import orjson

from tokmill.tasks.audit.report.reading import Tables

_PLAIN = ("token_id", "text", "num_bytes", "num_training", "rank", "left", "right")
_NAMED = ("kind", "scripts")
_FLAGS = ("reachable", "redundant")


def columns_of(tables: Tables) -> dict[str, Any]:
    """Return the columns of the tokens that the page shows; texts that repeat are numbered."""
    found: dict[str, Any] = {name: list(tables.column("vocab_tokens", name)) for name in (*_PLAIN, *_FLAGS)}
    for name in _NAMED:
        found[name] = _numbered(tables.column("vocab_tokens", name))
    return found


def _numbered(values: Sequence[str]) -> dict[str, Any]:
    names = sorted(set(values))
    places = {name: place for place, name in enumerate(names)}
    return {"names": names, "places": [places[value] for value in values]}


def packed(data: Any) -> str:
    """Return JSON-able data as compressed text, which needs no escaping in HTML."""
    return base64.b64encode(zlib.compress(orjson.dumps(data), 6)).decode("ascii")
