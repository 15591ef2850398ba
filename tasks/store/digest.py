"""Digests: BLAKE2b-256, in hexadecimal (64 characters), of bytes, of files and of whole artifacts.

The content digest of an artifact is a two-level Merkle digest: the digest of the canonical JSON of the list
of [relative posix path, size in bytes, file digest], sorted by path. `record.json`, which holds time and
place, is left out, so the digest depends only on the names and contents of the files. Of a Parquet file it
covers [path, digest of the values] (`tasks.store.values`), since other versions of the library that wrote it
give other bytes. The stored digest is the same over the files' bytes alone.

Canonical JSON is the one form in which a value enters a fingerprint or a digest. Two values are the same
recipe exactly when their canonical bytes are equal. The laws:

- objects are sorted by key (by code point), without spaces; text is UTF-8, not escaped and not normalized (no
  NFC);
- 1, 1.0 and True are three different values; floats are written as their shortest round-trip form;
- enums are written as their value, tuples as lists, pydantic models as objects (a tag field tells the members
  of a union of models apart, as everywhere in pydantic). Fields declared with `NOT_IN_FINGERPRINT` are left
  out;
- a value without a single form raises `FingerprintError`, which names its place: sets (they have no order),
  NaN and infinities, bytes, paths, dates, keys that are not text, lone surrogates, any other object.
"""

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from tokmill.tasks.core.errors import FingerprintError, SourceError
from tokmill.tasks.remote.location import Info
from tokmill.tasks.store.names import Digest, InsidePath

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


DIGEST_BYTES = 32
_BLOCK_BYTES = 1 << 20

ByteCount: TypeAlias = Annotated[int, Field(ge=0, lt=2**63)]
"""A size that a file can have."""


class FileEntry(BaseModel):
    """One file of an artifact.

    Attributes:
        path: its posix path below the artifact's directory.
        size_bytes: its size.
        digest: of its bytes.
        values_digest: of the values that a Parquet file holds; None for any other file.
    """

    model_config = ConfigDict(frozen=True)

    path: InsidePath
    size_bytes: ByteCount
    digest: Digest
    values_digest: Digest | None = None

    @property
    def content(self) -> tuple[str | int, ...]:
        """What the content digest of an artifact covers of the file."""
        if self.values_digest is not None:
            return (self.path, self.values_digest)
        return (self.path, self.size_bytes, self.digest)

    @model_serializer(mode="wrap")
    def _without_absent_values(self, standard: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Write `values_digest` only where there is one: an artifact may have a hundred thousand files."""
        written: dict[str, Any] = standard(self)
        if self.values_digest is None:
            del written["values_digest"]
        return written


def is_utf8(path: Path) -> bool:
    """Whether a path can be written in UTF-8."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def digest_bytes(data: bytes) -> str:
    """Return the BLAKE2b-256 digest of `data` in hexadecimal."""
    return hashlib.blake2b(data, digest_size=DIGEST_BYTES).hexdigest()


def digest_file(path: Path) -> str:
    """Return the BLAKE2b-256 digest of a file's bytes in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, new_hash).hexdigest()


def digest_object(state: Info) -> str:
    """Return the BLAKE2b-256 digest of an object's bytes in hexadecimal."""
    from tokmill.tasks.remote.objects import streamed

    digest = new_hash()
    with streamed(state) as stream:
        while block := stream.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def digest_folder(folder: Path, digest: Callable[[Path], str] = digest_file) -> str:
    """Return the content digest of all files below `folder`, each digested by `digest`."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    for file in files:
        if not is_utf8(file):
            raise SourceError(f"the name of {os.fsencode(file)!r} is not UTF-8; rename the file")
    return content_digest(
        FileEntry(
            path=file.relative_to(folder).as_posix(), size_bytes=file.stat().st_size, digest=digest(file)
        )
        for file in files
    )


def content_digest(files: Iterable[FileEntry]) -> str:
    """Return the Merkle digest over what an artifact's files hold, given in any order."""
    rows = [entry.content for entry in sorted(files, key=lambda entry: entry.path)]
    return digest_bytes(canonical_json(rows))


def stored_digest(files: Iterable[FileEntry]) -> str:
    """Return the Merkle digest over the bytes of an artifact's files, given in any order.

    Artifacts of equal content have the same one, except if Parquet files of theirs were written by libraries
    of different versions.
    """
    rows = sorted((entry.path, entry.size_bytes, entry.digest) for entry in files)
    return digest_bytes(canonical_json(rows))


def new_hash() -> "hashlib.blake2b":
    """Return an empty BLAKE2b-256 hash."""
    return hashlib.blake2b(digest_size=DIGEST_BYTES)
