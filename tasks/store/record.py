"""Records of artifacts (`record.json`, the truth) and, of those that were removed, tombstones.

The second line of either is the digest of all the others. A file that this version cannot read is an error,
never a guess. A tombstone stays when its artifact is made again.
"""

import errno
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from tokmill.tasks.core.errors import FingerprintError, MachineError, StoreError
from tokmill.tasks.core.faults import unreadable
from tokmill.tasks.core.stage import Account, ArtifactRef, External, Inputs, Scalar
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.digest import ByteCount, FileEntry, content_digest
from tokmill.tasks.store.fingerprint import digest_bytes, fingerprint, plain
from tokmill.tasks.store.layout import RECORD_FILE, Layout
from tokmill.tasks.store.names import Digest, Kind, Label, Name
from tokmill.tasks.store.provenance import Moment, Provenance, utc_now

FORMAT_VERSION: Final = 3
_TOMBSTONE_VERSION: Final = 2
MOST_REASON_CHARS: Final = 2000
"""The longest reason for a takedown or a removal."""
_KEPT_BYTES = 64 << 10
_SEAL: Final = "record_digest"
_TOMBSTONE_SEAL: Final = "tombstone_digest"


def sealed(field: str, body: bytes) -> bytes:
    """Return the bytes of a JSON object with its seal."""
    return b'{\n "%s": "%s",\n' % (field.encode(), digest_bytes(body).encode()) + body.removeprefix(b"{\n")


def _broken_seal(field: str, data: bytes) -> str | None:
    seal = re.match(rb'\{\n "%s": "([0-9a-f]{64})",\n' % field.encode(), data)
    if seal is None:
        return "the second line holds no digest of the others"
    if digest_bytes(b"{\n" + data[seal.end() :]) != seal[1].decode("ascii"):
        return "its lines do not have the digest in the second line; it was changed after it was written"
    return None


def _checked_payload(payload: dict[str, Any]) -> dict[str, Any]:
    stage, version = payload.get("stage"), payload.get("version")
    if not isinstance(stage, str) or not isinstance(version, int) or not 0 <= version < 2**31:
        raise ValueError(f"stage={stage!r} and version={version!r} are not a version of a stage")
    return payload


def _canonical(value: dict[str, Any]) -> dict[str, Any]:
    """Reject infinities and NaN, which Python's JSON reader accepts but no published record holds."""
    try:
        plain(value)
    except FingerprintError as error:
        raise ValueError(str(error)) from error
    return value


def _checked_metrics(metrics: dict[str, Scalar]) -> dict[str, Scalar]:
    if any(isinstance(value, int) and value >> 63 not in (-1, 0, 1) for value in metrics.values()):
        raise ValueError("a metric is an integer of more than 64 bits")
    return _canonical(metrics)


Canonical: TypeAlias = Annotated[dict[str, Any], AfterValidator(_canonical)]
Payload: TypeAlias = Annotated[Canonical, AfterValidator(_checked_payload)]
Metrics: TypeAlias = Annotated[dict[str, Scalar], AfterValidator(_checked_metrics)]


class InputEntry(BaseModel):
    """One input of an artifact: another one (kind, name, fingerprint), or from outside of the store."""

    model_config = ConfigDict(frozen=True)

    role: str  # the keyword of the run function's argument
    position: ByteCount | None = None  # its index if the role takes several inputs, else None
    digest: str  # the content digest that entered the fingerprint
    kind: Kind | None = None
    name: Name | None = None
    fingerprint: Digest | None = None
    origin: str | None = None  # the path of an input from outside of the store, if its value has one
    about: Any = None  # what is known of such an input beside its path (`External.about`), to find it again

    @property
    def ref(self) -> ArtifactRef | None:
        """The artifact; None for an input from outside of the store."""
        if self.kind is None or self.name is None or self.fingerprint is None:
            return None
        return ArtifactRef(
            kind=self.kind, name=self.name, fingerprint=self.fingerprint, content_digest=self.digest
        )


class Timings(BaseModel):
    """When an artifact was made, how long that took, and the most memory that the process held meanwhile."""

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
        data = disk.read(path, shared.MOST_BYTES)
    except FileNotFoundError as error:
        raise StoreError(f"{directory} has no {RECORD_FILE}, so it is not a published artifact") from error
    except OSError as error:
        fault = unreadable(path, error)
        if isinstance(fault, MachineError) and error.errno != errno.EINVAL:  # no verdict on the record
            raise fault from error
        raise StoreError(f"{path}: cannot be read: {error.strerror}; the record is damaged") from error
    return parse_record(path, data)


def parse_record(path: Path, data: bytes) -> Record:
    """Return the record that the bytes of its file hold; `path` names it in errors."""
    return _kept(path, data) if len(data) <= _KEPT_BYTES else _parsed(path, data)


@lru_cache(maxsize=256)
def _kept(path: Path, data: bytes) -> Record:  # a run reads the same record up to twenty times
    return _parsed(path, data)


def _parsed(path: Path, data: bytes) -> Record:
    try:
        record = Record.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        raise StoreError(f"{path}: {field} cannot be read ({first['msg']}); the record is damaged") from error
    if record.format_version != FORMAT_VERSION:
        raise StoreError(
            f"{path}: format_version={record.format_version} is not {FORMAT_VERSION}, which this tokmill "
            "reads; use the tokmill that wrote it, or make the artifact again"
        )
    if problem := _broken_seal(_SEAL, data):
        raise StoreError(f"{path}: {problem}; the record is damaged")
    return record


def contradictions(record: Record) -> Iterator[str]:
    """Yield the contradictions within a record."""
    try:
        if fingerprint(record.payload) != record.fingerprint:
            yield "the fingerprint is not that of the payload"
    except FingerprintError as error:
        yield f"the payload is not a recipe: {error}"
    roles = record.payload.get("inputs")
    empty = [role for role in roles if roles[role] == []] if isinstance(roles, dict) else []
    digests: dict[str, Any] = {role: [] for role in empty}
    for entry in record.inputs:
        if entry.position is None:
            digests[entry.role] = entry.digest
        elif isinstance(several := digests.setdefault(entry.role, []), list):
            several.append(entry.digest)
    if digests != roles:
        yield "the inputs are not those of the payload"
    if content_digest(record.files) != record.content_digest:
        yield "the content digest is not that of the listed files"


def input_entries(inputs: Inputs) -> list[InputEntry]:
    """Return one entry per input, in order of role and position."""
    entries: list[InputEntry] = []
    for role in sorted(inputs):
        value = inputs[role]
        if isinstance(value, ArtifactRef | External):
            entries.append(_entry(role, None, value))
        else:
            entries.extend(_entry(role, position, item) for position, item in enumerate(value))
    return entries


def _entry(role: str, position: int | None, value: ArtifactRef | External) -> InputEntry:
    if isinstance(value, External):
        path = value.value.get("path") if isinstance(value.value, Mapping) else value.value
        origin = str(path) if isinstance(path, str | Path) else None
        return InputEntry(role=role, position=position, digest=value.digest, origin=origin, about=value.about)
    own = value.model_dump(include={"kind", "name", "fingerprint"})
    return InputEntry(role=role, position=position, digest=value.content_digest, **own)


class Tombstone(BaseModel):
    """The remains of a removed artifact: its record, when and by whom it was removed, and why, if known."""

    model_config = ConfigDict(frozen=True)

    format_version: int = Field(default=_TOMBSTONE_VERSION, ge=1, lt=2**31)
    removed: Moment
    by: str
    command: str
    reason: str = Field(default="", max_length=MOST_REASON_CHARS)
    record: Record

    @property
    def words(self) -> str:
        """When, by whom and why, for people: `removed on 2026-11-25 10:21 UTC by ada: asked for by …`."""
        moment = self.removed[:16].replace("T", " ")
        return f"removed on {moment} UTC by {self.by}{f': {self.reason}' if self.reason else ''}"


def check_reason(reason: str) -> str:
    """Return a reason that is short enough."""
    if len(reason) > MOST_REASON_CHARS:
        raise StoreError(
            f"the reason has {len(reason):,} characters and may have {MOST_REASON_CHARS:,}; shorten "
            "it, or refer to a document"
        )
    return reason


def tombstone_path(layout: Layout, kind: str, fingerprint: str) -> Path:
    """Return where the tombstone of an artifact is, if it has one."""
    return layout.removed / kind / f"{layout.artifact(kind, fingerprint).name}.json"


def tombstone(layout: Layout, kind: str, fingerprint: str) -> Tombstone | None:
    """Return the tombstone of a removed artifact, or None if there is none for this fingerprint."""
    path = tombstone_path(layout, kind, fingerprint)
    shared.bring(path)
    try:
        return read_tombstone(path)
    except FileNotFoundError:
        return None


def tombstones(layout: Layout, prefix: str) -> list[Path]:
    """Return the files of the tombstones of all artifacts whose fingerprint begins with `prefix`."""
    return [
        layout.removed / kind.name / entry.name
        for kind in disk.entries(layout.removed)
        for entry in disk.entries(layout.removed / kind.name)
        if entry.name.startswith(prefix) and entry.name.endswith(".json")
    ]


def read_tombstone(path: Path) -> Tombstone:
    """Read the tombstone in a file."""
    stone = shared.read_model(path, Tombstone, "a tombstone")
    if stone.format_version != _TOMBSTONE_VERSION:
        raise StoreError(
            f"{path}: format_version={stone.format_version} is not {_TOMBSTONE_VERSION}, which this tokmill "
            "reads; use the tokmill that wrote it"
        )
    problem = _broken_seal(_TOMBSTONE_SEAL, disk.read(path, shared.MOST_BYTES))
    if problem := next(contradictions(stone.record), None) or problem:
        raise StoreError(f"{path}: {problem}; the tombstone is damaged; restore it from a backup")
    return stone


def write_tombstone(layout: Layout, record: Record, reason: str) -> None:
    """Leave a tombstone of an artifact that is about to be removed."""
    own = Provenance.collect()
    stone = Tombstone(removed=utc_now(), by=own.user, command=own.command, reason=reason, record=record)
    data = sealed(_TOMBSTONE_SEAL, stone.model_dump_json(indent=1).encode("utf-8") + b"\n")
    shared.replace(tombstone_path(layout, record.kind, record.fingerprint), data)
