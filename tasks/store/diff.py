"""What differs between two recipes, field by field.

A payload is flattened to dotted fields (`params.vocab_size`, `inputs.shards[3]`); two payloads differ in the
fields whose canonical forms differ. So 1 and 1.0 differ, as they do in the fingerprint. No difference means
equal fingerprints.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, NamedTuple

from tasks.stage import ArtifactRef
from tasks.store.canonical import Json, canonical_json, plain
from tasks.store.store import Store


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
    """Return the fields in which two payloads differ, in the order of `a`, then what only `b` has."""
    left, right = dict(_fields(plain(a), "")), dict(_fields(plain(b), ""))
    fields = [*left, *(field for field in right if field not in left)]
    absent = Absent.ABSENT
    pairs = [Difference(field, left.get(field, absent), right.get(field, absent)) for field in fields]
    return [pair for pair in pairs if _form(pair.a) != _form(pair.b)]


def diff(store: Store, a: ArtifactRef, b: ArtifactRef) -> list[Difference]:
    """Return the fields in which the recipes of two published artifacts differ.

    Raises:
        StoreError: one of them is not in the store.
    """
    return payload_differences(store.record(a).payload, store.record(b).payload)


def _fields(value: Json, where: str) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _fields(item, f"{where}.{key}" if where else key)
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _fields(item, f"{where}[{index}]")
    else:
        yield where, value


def _form(value: Json | Absent) -> bytes | None:
    return None if isinstance(value, Absent) else canonical_json(value)
