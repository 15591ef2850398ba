"""Fingerprints: BLAKE2b-256 of the canonical JSON of {stage, version, params, inputs' content digests}.

Canonical: sorted keys, no spaces, UTF-8 as it is; 1, 1.0 and True are three values; floats in their shortest
form. A value without a single form (a set, NaN, a path, a date) raises `FingerprintError` with its place.
"""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from pydantic import BaseModel

from tokmill.tasks.core.errors import FingerprintError
from tokmill.tasks.core.stage import ArtifactRef, External, Input, Request
from tokmill.tasks.store.names import is_utf8

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None

NOT_IN_FINGERPRINT: Final[dict[str, Any]] = {"identity": False}
"""Leave a parameter out of the fingerprint: `Field(json_schema_extra=NOT_IN_FINGERPRINT)`."""

UNLESS_DEFAULT: Final[dict[str, Any]] = {"unless_default": True}
"""Leave a parameter out while it has its default."""

_MAX_DEPTH = 64
_RESERVED_ROLES = frozenset({"params", "out"})


def new_hash() -> "hashlib.blake2b":
    """Return an empty BLAKE2b-256 hash."""
    return hashlib.blake2b(digest_size=32)


def digest_bytes(data: bytes) -> str:
    """Return the BLAKE2b-256 digest of `data` in hexadecimal (64 characters)."""
    return hashlib.blake2b(data, digest_size=32).hexdigest()


def only_with(field: str, *values: str | bool) -> dict[str, Any]:
    """Leave a parameter out unless another one has one of some values: `json_schema_extra=only_with(…)`.

    The stage must not read it otherwise. With its own name, it is left out unless it has one of them itself.
    """
    return {"only_with": {"field": field, "values": list(values)}}


def either(*conditions: dict[str, Any]) -> dict[str, Any]:
    """Leave a parameter out unless one of several conditions of `only_with` is met."""
    return {"either": [condition["only_with"] for condition in conditions]}


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
    raise FingerprintError(
        f"{where}={value!r} is a {type(value).__qualname__}, which has no canonical form; use text, numbers, "
        "booleans, lists, objects or pydantic models of these"
    )


def _scalar(value: str | int | float, where: str) -> Json:
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, int):
        return int(value)
    if not math.isfinite(value):
        raise FingerprintError(f"{where}={value!r} has no JSON form; use a finite number, or null for none")
    return float(value)


def _text(value: str, where: str) -> str:
    if not is_utf8(value):
        raise FingerprintError(f"{where}={value!r} holds a lone surrogate, which UTF-8 cannot express")
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


def fingerprint_payload(request: Request) -> dict[str, Json]:
    """Return what a request's fingerprint covers: stage, version, parameters and the inputs' digests."""
    stage = request.stage
    return {
        "stage": stage.verb,
        "version": stage.version + stage.revision(request.params),
        "params": plain(request.params, f"{stage.verb}: params"),
        "inputs": {role: _digests(stage.verb, role, given) for role, given in request.inputs.items()},
    }


def fingerprint(payload: Mapping[str, Any]) -> str:
    """Return the fingerprint of a payload: 64 hexadecimal characters."""
    return digest_bytes(canonical_json(payload))


def _digests(verb: str, role: str, given: Input | Sequence[Input]) -> Json:
    if role in _RESERVED_ROLES:
        raise FingerprintError(
            f"{verb}: an input cannot be called {role!r}; the run function has a parameter of that name"
        )
    if not isinstance(given, ArtifactRef | External):
        return [_digests(verb, f"{role}[{index}]", item) for index, item in enumerate(given)]
    digest = given.content_digest if isinstance(given, ArtifactRef) else given.digest
    if not digest:
        raise FingerprintError(f"{verb}: input {role} has an empty digest; give the digest of its content")
    return digest


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
    """Return the fields whose canonical forms differ: those of `a` in its order, then those only in `b`.

    A payload is flattened to dotted fields (`params.vocab_size`, `inputs.shards[3]`). No difference means
    equal fingerprints.
    """
    left, right = dict(_leaves(plain(a), ())), dict(_leaves(plain(b), ()))
    absent = Absent.ABSENT
    differences = []
    for path in [*left, *(path for path in right if path not in left)]:
        values = left.get(path, absent), right.get(path, absent)
        # one that is empty on one side, and has fields of its own on the other, is not listed: these are
        filled = absent in values and any(
            len(other) > len(path) and other[: len(path)] == path for other in (*left, *right)
        )
        if not filled and len({None if value is absent else canonical_json(value) for value in values}) > 1:
            parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
            differences.append(Difference("".join(parts).removeprefix("."), *values))
    return differences


def _leaves(value: Json, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], Json]]:
    """The leaves of a value; an empty object or list is one."""
    if isinstance(value, dict | list) and value:
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _leaves(item, (*path, key))
    else:
        yield path, value
