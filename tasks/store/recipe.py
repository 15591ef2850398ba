"""The fingerprint: the digest of an artifact's recipe.

    fingerprint = BLAKE2b-256(canonical JSON of {stage, version, params, inputs})

`inputs` holds the content digest of each input (a list of them where the role takes several, in the order
given), so an input that is made again to the same bytes changes nothing downstream (early cut-off). Names,
paths, `External.value` and parameters declared with `NOT_IN_FINGERPRINT` stay out.

The differences between two recipes are found field by field. A payload is flattened to dotted fields
(`params.vocab_size`, `inputs.shards[3]`); two payloads differ in the fields whose canonical forms differ. So
1 and 1.0 differ, as they do in the fingerprint. No difference means equal fingerprints.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from tokmill.tasks.core.errors import FingerprintError
from tokmill.tasks.core.stage import ArtifactRef, External, Input, Request
from tokmill.tasks.store.digest import Json, canonical_json, digest_bytes, plain

_RESERVED_ROLES = frozenset({"params", "out"})


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
    if isinstance(given, ArtifactRef | External):
        return _digest(verb, role, given)
    return [_digest(verb, f"{role}[{index}]", item) for index, item in enumerate(given)]


def _digest(verb: str, role: str, given: Input) -> str:
    digest = given.content_digest if isinstance(given, ArtifactRef) else given.digest
    if not digest:
        raise FingerprintError(f"{verb}: input {role} has an empty digest; give the digest of its content")
    return digest


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
