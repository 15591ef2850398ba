"""Canonical JSON: the one form in which a value enters a fingerprint.

Two values are the same recipe exactly when their canonical bytes are equal. The laws:

- objects are sorted by key (by code point), without spaces; text is UTF-8, not escaped and not normalized (no
  NFC);
- 1, 1.0 and True are three different values; floats are written as their shortest round-trip form;
- enums are written as their value, tuples as lists, pydantic models as objects (a tag field tells the members
  of a union of models apart, as everywhere in pydantic). Fields declared with `NOT_IN_FINGERPRINT` are left
  out;
- a value without a single form raises `FingerprintError`, which names its place: sets (they have no order),
  NaN and infinities, bytes, paths, dates, keys that are not text, lone surrogates, any other object.
"""

import json
import math
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, TypeAlias

from pydantic import BaseModel

from tokmill.tasks.core.errors import FingerprintError

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

NOT_IN_FINGERPRINT: Final[dict[str, Any]] = {"identity": False}
"""Leave a parameter out of the fingerprint: `Field(json_schema_extra=NOT_IN_FINGERPRINT)`."""


UNLESS_DEFAULT: Final[dict[str, Any]] = {"unless_default": True}
"""Leave a parameter out while it has its default, so that it leaves the artifacts alone that there are."""


def only_with(field: str, *values: str | bool) -> dict[str, Any]:
    """Leave a parameter out unless another one has one of some values: `json_schema_extra=only_with(…)`.

    With its own name it is left out unless it has one of them itself, so that a new parameter need not touch
    the fingerprints that there are.

    The stage must not read it otherwise.
    """
    return {"only_with": {"field": field, "values": list(values)}}


def either(*conditions: dict[str, Any]) -> dict[str, Any]:
    """Leave a parameter out unless one of several conditions of `only_with` is met."""
    return {"either": [condition["only_with"] for condition in conditions]}


_MAX_DEPTH = 64
_ADVICE: Final[tuple[tuple[type | tuple[type, ...], str], ...]] = (
    ((set, frozenset), "a set has no order of its own; use a sorted tuple"),
    ((bytes, bytearray, memoryview), "bytes have no JSON form; use their hexadecimal text or a digest"),
)


def canonical_json(value: object) -> bytes:
    """Return the canonical UTF-8 bytes of `value`."""
    text = json.dumps(
        plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode("utf-8")


def plain(value: object, where: str = "value") -> Json:
    """Return `value` as nothing but dict, list, str, int, float, bool and None."""
    return _plain(value, where, 0)


def in_fingerprint(model: type[BaseModel], field: str) -> bool:
    """Whether `field` of `model` is part of the fingerprint: not declared with `NOT_IN_FINGERPRINT`."""
    extra = model.model_fields[field].json_schema_extra
    return not (isinstance(extra, dict) and extra.get("identity") is False)


def _in_force(model: BaseModel, field: str) -> bool:
    """Whether the condition is met that a field is declared with, if any."""
    declared = type(model).model_fields[field]
    extra = declared.json_schema_extra
    if isinstance(extra, dict) and extra.get("unless_default"):
        return bool(getattr(model, field) != declared.default)
    if not isinstance(extra, dict) or not {"only_with", "either"} & extra.keys():
        return True
    conditions: Any = extra.get("either", [extra.get("only_with")])
    return any(getattr(model, condition["field"]) in condition["values"] for condition in conditions)


def _plain(value: object, where: str, depth: int) -> Json:
    if depth > _MAX_DEPTH:
        raise FingerprintError(f"{where}: nested deeper than {_MAX_DEPTH} levels; flatten it")
    if isinstance(value, Enum):
        return _plain(value.value, where, depth + 1)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str | int | float):
        return _scalar(value, where)
    if isinstance(value, BaseModel):
        return {name: _plain(item, f"{where}.{name}", depth + 1) for name, item in _fingerprint_items(value)}
    if isinstance(value, Mapping):
        return {_key(key, where): _plain(item, f"{where}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise FingerprintError(f"{where}={value!r} is a {type(value).__qualname__}: {_advice(value)}")


def _scalar(value: str | int | float, where: str) -> Json:
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, int):
        return int(value)
    if not math.isfinite(value):
        raise FingerprintError(f"{where}={value!r} has no JSON form; use a finite number, or null for none")
    return float(value)


def _text(value: str, where: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FingerprintError(
            f"{where}={value!r} holds a lone surrogate, which UTF-8 cannot express"
        ) from error
    return str.__str__(value)  # a subclass's own __str__ must not change the fingerprint


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise FingerprintError(f"{where} has the key {key!r} ({type(key).__qualname__}); keys must be text")
    return _text(key, f"{where} (key)")


def _fingerprint_items(model: BaseModel) -> list[tuple[str, Any]]:
    kind = type(model)
    names = [name for name in kind.model_fields if in_fingerprint(kind, name) and _in_force(model, name)]
    items = [(name, getattr(model, name)) for name in names]
    return items + list((model.__pydantic_extra__ or {}).items())


def _advice(value: object) -> str:
    for kinds, advice in _ADVICE:
        if isinstance(value, kinds):
            return advice
    return "it has no canonical form; use text, numbers, booleans, lists, objects or pydantic models of these"
