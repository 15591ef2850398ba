"""The differences between two recipes, field by field.

A payload is flattened to dotted fields (`params.vocab_size`, `inputs.shards[3]`); two payloads differ in the
fields whose canonical forms differ. So 1 and 1.0 differ, as they do in the fingerprint. No difference means
equal fingerprints.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store.canonical import Json, canonical_json, plain
from tokmill.tasks.store.store import Store

_Path: TypeAlias = tuple[str | int, ...]


class Absent(Enum):
    """The value of a field that one of two payloads does not have; null is a value."""

    ABSENT = "(absent)"

    def __str__(self) -> str:
        return self.value


class Difference(NamedTuple):
    """One field that differs: its dotted path and both values (`Absent.ABSENT` where it has none)."""

    field: str
    a: Json | Absent
    b: Json | Absent


def payload_differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[Difference]:
    """Return the fields in which two payloads differ: those of `a` in its order, then those only in `b`."""
    left, right = dict(_fields(plain(a), ())), dict(_fields(plain(b), ()))
    absent = Absent.ABSENT
    differences = []
    for path in [*left, *(path for path in right if path not in left)]:
        pair = left.get(path, absent), right.get(path, absent)
        if _form(pair[0]) != _form(pair[1]) and not _is_filled(path, pair, left, right):
            differences.append(Difference(_dotted(path), *pair))
    return differences


def diff(store: Store, a: ArtifactRef, b: ArtifactRef) -> list[Difference]:
    """Return the fields in which the recipes of two published artifacts differ.

    Raises:
        StoreError: one of them is not in the store.
    """
    return payload_differences(store.record(a).payload, store.record(b).payload)


def _fields(value: Json, path: _Path) -> Iterator[tuple[_Path, Json]]:
    """The leaves of a value; an empty object or list is one."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _fields(item, (*path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _fields(item, (*path, index))
    else:
        yield path, value


def _is_filled(path: _Path, pair: tuple[object, object], *sides: Mapping[_Path, Json]) -> bool:
    """Whether a field is empty on one side and has fields of its own on the other; these are listed."""
    return Absent.ABSENT in pair and any(
        len(other) > len(path) and other[: len(path)] == path for side in sides for other in side
    )


def _dotted(path: _Path) -> str:
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _form(value: Json | Absent) -> bytes | None:
    return None if isinstance(value, Absent) else canonical_json(value)
