"""The record of an artifact: `record.json`, the authoritative description of it and its origin.

Fields that follow from the request (payload, parameters, metrics, accounts, files) are kept apart from
history (timings, provenance). A record that this version cannot read is an error, never a guess.

A record carries a digest of itself: the second line holds the digest of all the other lines, byte for byte,
so that no change goes unnoticed.

A record's names and numbers are checked when it is read: a path that leads out of the artifact, an impossible
file size or a time that does not exist makes it unreadable.
"""

import errno
import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from tokmill.tasks.core.errors import FingerprintError, MachineError, StoreError
from tokmill.tasks.core.faults import unreadable
from tokmill.tasks.core.stage import Account, ArtifactRef, External, Inputs, Scalar
from tokmill.tasks.store import disk
from tokmill.tasks.store.digest import ByteCount, FileEntry, content_digest, digest_bytes, plain
from tokmill.tasks.store.layout import RECORD_FILE
from tokmill.tasks.store.names import Digest, Kind, Label, Name
from tokmill.tasks.store.provenance import Moment, Provenance
from tokmill.tasks.store.recipe import fingerprint


def sealed(field: str, body: bytes) -> bytes:
    """Return the bytes of a JSON object with its seal."""
    return b'{\n "%s": "%s",\n' % (field.encode(), digest_bytes(body).encode()) + body.removeprefix(b"{\n")


def broken_seal(field: str, data: bytes) -> str | None:
    """Return what is wrong with the seal in a file's bytes; None if nothing is."""
    seal = re.match(rb'\{\n "%s": "([0-9a-f]{64})",\n' % field.encode(), data)
    if seal is None:
        return "the second line holds no digest of the others"
    if digest_bytes(b"{\n" + data[seal.end() :]) != seal[1].decode("ascii"):
        return "its lines do not have the digest in the second line; it was changed after it was written"
    return None


FORMAT_VERSION: Final = 3
_MOST_BYTES = 256 << 20
_KEPT_BYTES = 64 << 10
_SEAL: Final = "record_digest"


def _canonical(value: dict[str, Any]) -> dict[str, Any]:
    """Reject infinities and NaN, which Python's JSON reader accepts but no published record holds."""
    try:
        plain(value)
    except FingerprintError as error:
        raise ValueError(str(error)) from error
    return value


def _checked_payload(payload: dict[str, Any]) -> dict[str, Any]:
    stage, version = payload.get("stage"), payload.get("version")
    if not isinstance(stage, str) or not isinstance(version, int) or not 0 <= version < 2**31:
        raise ValueError(f"stage={stage!r} and version={version!r} are not a version of a stage")
    return payload


def _checked_metrics(metrics: dict[str, Scalar]) -> dict[str, Scalar]:
    for name, value in metrics.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"metric {name}={value} is not finite")
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise ValueError(f"metric {name} is not an integer of 64 bits")
    return metrics


Canonical: TypeAlias = Annotated[dict[str, Any], AfterValidator(_canonical)]
Payload: TypeAlias = Annotated[Canonical, AfterValidator(_checked_payload)]
Metrics: TypeAlias = Annotated[dict[str, Scalar], AfterValidator(_checked_metrics)]


class InputEntry(BaseModel):
    """One input of an artifact.

    Attributes:
        role: the keyword of the run function's argument.
        position: its index if the role takes several inputs, else None.
        digest: the content digest that entered the fingerprint.
        kind, name, fingerprint: of the artifact; None for an input from outside of the store.
        origin: the path of an input from outside of the store, if its value has one.
        about: what is known of such an input beside its path (`External.about`), to find it again.
    """

    model_config = ConfigDict(frozen=True)

    role: str
    position: ByteCount | None = None
    digest: str
    kind: Kind | None = None
    name: Name | None = None
    fingerprint: Digest | None = None
    origin: str | None = None
    about: Any = None

    @property
    def ref(self) -> ArtifactRef | None:
        """The artifact; None for an input from outside of the store."""
        if self.kind is None or self.name is None or self.fingerprint is None:
            return None
        return ArtifactRef(
            kind=self.kind, name=self.name, fingerprint=self.fingerprint, content_digest=self.digest
        )


class Timings(BaseModel):
    """When an artifact was made (UTC, ISO 8601), how long that took in seconds, and what memory it took.

    `peak_bytes` is the most that the process held meanwhile; None where that cannot be measured.
    """

    model_config = ConfigDict(frozen=True)

    started: Moment
    ended: Moment
    seconds: float = Field(ge=0, allow_inf_nan=False)
    peak_bytes: ByteCount | None = None


class Record(BaseModel):
    """Everything known about one artifact; `record_digest` is the digest of the other lines of its file."""

    model_config = ConfigDict(frozen=True)

    record_digest: Digest | None = None
    format_version: int = Field(default=FORMAT_VERSION, ge=1, lt=2**31)
    kind: Kind
    name: Name
    label: Label
    fingerprint: Digest
    payload: Payload
    content_digest: Digest
    files: list[FileEntry]
    inputs: list[InputEntry]
    params: Canonical
    metrics: Metrics
    accounts: list[Account]
    timings: Timings
    provenance: Provenance

    @property
    def ref(self) -> ArtifactRef:
        """The reference that tasks pass to each other."""
        return ArtifactRef(
            kind=self.kind, name=self.name, fingerprint=self.fingerprint, content_digest=self.content_digest
        )

    @property
    def reference(self) -> str:
        """Its name for people: `kind/name@label`."""
        return f"{self.kind}/{self.name}@{self.label}"

    def refs(self, role: str) -> list[ArtifactRef]:
        """The artifacts that it was made from in a role, in order."""
        return [entry.ref for entry in self.inputs if entry.role == role and entry.ref is not None]

    @property
    def num_bytes(self) -> int:
        """Bytes of all files together, the record left out."""
        return sum(entry.size_bytes for entry in self.files)


def encode_record(record: Record) -> bytes:
    """Return the bytes of a record's file, with the digest of all its other lines in the second one."""
    return sealed(_SEAL, record.model_dump_json(indent=1, exclude={_SEAL}).encode("utf-8") + b"\n")


def read_record(directory: Path) -> Record:
    """Read the record of the artifact that lies in `directory`."""
    path = directory / RECORD_FILE
    try:
        data = disk.read(path, _MOST_BYTES)
    except FileNotFoundError as error:
        raise StoreError(f"{directory} has no {RECORD_FILE}, so it is not a published artifact") from error
    except OSError as error:
        fault = unreadable(path, error)
        if isinstance(fault, MachineError) and error.errno != errno.EINVAL:  # no verdict on the record
            raise fault from error
        raise StoreError(f"{path}: cannot be read: {error.strerror}; the record is damaged") from error
    return parse_record(path, data)


def parse_record(path: Path, data: bytes) -> Record:
    """Return the record that the bytes of its file hold; `path` names it in errors.

    A run reads the same record up to twenty times, so those of one moment are kept: equal bytes are the same
    record.
    """
    return _kept(path, data) if len(data) <= _KEPT_BYTES else _checked(path, data)


@lru_cache(maxsize=256)
def _kept(path: Path, data: bytes) -> Record:
    return _checked(path, data)


def _checked(path: Path, data: bytes) -> Record:
    record = _parsed(path, data)
    if record.format_version != FORMAT_VERSION:
        raise StoreError(
            f"{path}: format_version={record.format_version} is not {FORMAT_VERSION}, which this tokmill "
            "reads; use the tokmill that wrote it, or make the artifact again"
        )
    if problem := broken_seal(_SEAL, data):
        raise StoreError(f"{path}: {problem}; the record is damaged")
    return record


def _parsed(path: Path, data: bytes) -> Record:
    try:
        return Record.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        raise StoreError(f"{path}: {field} cannot be read ({first['msg']}); the record is damaged") from error


def contradictions(record: Record) -> Iterator[str]:
    """Yield the contradictions within a record."""
    try:
        owner = fingerprint(record.payload)
    except FingerprintError as error:
        yield f"the payload is not a recipe: {error}"
    else:
        if owner != record.fingerprint:
            yield "the fingerprint is not that of the payload"
    if _given(record) != record.payload.get("inputs"):
        yield "the inputs are not those of the payload"
    if content_digest(record.files) != record.content_digest:
        yield "the content digest is not that of the listed files"


def _given(record: Record) -> dict[str, Any]:
    """Return the digests of a record's inputs by role, in the form that its payload has them in."""
    roles = record.payload.get("inputs")
    found: dict[str, Any] = (
        {role: [] for role in roles if roles[role] == []} if isinstance(roles, dict) else {}
    )
    for entry in record.inputs:
        if entry.position is None:
            found[entry.role] = entry.digest
        elif isinstance(several := found.setdefault(entry.role, []), list):
            several.append(entry.digest)
    return found


def input_entries(inputs: Inputs) -> list[InputEntry]:
    """Return one entry per input, in order of role and position."""
    entries: list[InputEntry] = []
    for role in sorted(inputs):
        given = inputs[role]
        if isinstance(given, ArtifactRef | External):
            entries.append(_entry(role, None, given))
        else:
            entries.extend(_entry(role, position, item) for position, item in enumerate(given))
    return entries


def _entry(role: str, position: int | None, given: ArtifactRef | External) -> InputEntry:
    if isinstance(given, External):
        return InputEntry(
            role=role,
            position=position,
            digest=given.digest,
            origin=_origin(given.value),
            about=given.about,
        )
    return InputEntry(
        role=role,
        position=position,
        digest=given.content_digest,
        kind=given.kind,
        name=given.name,
        fingerprint=given.fingerprint,
    )


def _origin(value: object) -> str | None:
    """Return the path in an external input's value: the value itself if it is text, or its `path`."""
    place = value.get("path") if isinstance(value, Mapping) else value
    return str(place) if isinstance(place, str | Path) else None
