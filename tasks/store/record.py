"""The record of an artifact: `record.json`, the truth about what it is and where it came from.

What follows from the request (payload, parameters, metrics, accounts, files) stands apart from what is only
history (timings, provenance). A record that this version cannot read is an error, never a guess.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from tasks.errors import StoreError
from tasks.stage import Account, ArtifactRef, External, Inputs, Scalar
from tasks.store.digest import FileEntry
from tasks.store.layout import RECORD_FILE
from tasks.store.provenance import Provenance

FORMAT_VERSION = 1


class InputEntry(BaseModel):
    """One input of an artifact.

    Attributes:
        role: the keyword that the run function got it by.
        position: its place where the role takes several inputs, else None.
        digest: the content digest that bore identity.
        kind, name, fingerprint: of the artifact handed over; None for something outside of the store.
        origin: where something outside of the store lay, as far as its value says so.
    """

    model_config = ConfigDict(frozen=True)

    role: str
    position: int | None = None
    digest: str
    kind: str | None = None
    name: str | None = None
    fingerprint: str | None = None
    origin: str | None = None

    @property
    def ref(self) -> ArtifactRef | None:
        """The artifact that was handed over; None for something outside of the store."""
        if self.kind is None or self.name is None or self.fingerprint is None:
            return None
        return ArtifactRef(
            kind=self.kind, name=self.name, fingerprint=self.fingerprint, content_digest=self.digest
        )


class Timings(BaseModel):
    """When an artifact was made: UTC, ISO 8601, and how long it took in seconds."""

    model_config = ConfigDict(frozen=True)

    started: str
    ended: str
    seconds: float


class Record(BaseModel):
    """All that is known of one artifact."""

    model_config = ConfigDict(frozen=True)

    format_version: int = FORMAT_VERSION
    kind: str
    name: str
    label: str
    fingerprint: str
    payload: dict[str, Any]
    content_digest: str
    files: list[FileEntry]
    inputs: list[InputEntry]
    params: dict[str, Any]
    metrics: dict[str, Scalar]
    accounts: list[Account]
    timings: Timings
    provenance: Provenance

    @property
    def ref(self) -> ArtifactRef:
        """The small reference that tasks pass to each other."""
        return ArtifactRef(
            kind=self.kind, name=self.name, fingerprint=self.fingerprint, content_digest=self.content_digest
        )

    @property
    def reference(self) -> str:
        """How a person calls it: `kind/name@label`."""
        return f"{self.kind}/{self.name}@{self.label}"

    def refs(self, role: str) -> list[ArtifactRef]:
        """The artifacts that it was made from in a role, in order."""
        return [entry.ref for entry in self.inputs if entry.role == role and entry.ref is not None]

    @property
    def num_bytes(self) -> int:
        """Bytes of all files together, the record left out."""
        return sum(entry.size_bytes for entry in self.files)


def read_record(directory: Path) -> Record:
    """Read the record of the artifact that lies in `directory`.

    Raises:
        StoreError: there is no record, it cannot be read, or a newer tokmill wrote it.
    """
    path = directory / RECORD_FILE
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise StoreError(f"{directory} has no {RECORD_FILE}, so it is no published artifact") from error
    try:
        record = Record.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        raise StoreError(f"{path}: {field} cannot be read ({first['msg']}); the record is damaged") from error
    if record.format_version > FORMAT_VERSION:
        raise StoreError(
            f"{path}: format_version={record.format_version} is newer than {FORMAT_VERSION}, the newest that "
            "this tokmill reads; use the tokmill that wrote it"
        )
    return record


def input_entries(inputs: Inputs) -> list[InputEntry]:
    """Return one entry an input, in order of role and position."""
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
        return InputEntry(role=role, position=position, digest=given.digest, origin=_origin(given.value))
    return InputEntry(
        role=role,
        position=position,
        digest=given.content_digest,
        kind=given.kind,
        name=given.name,
        fingerprint=given.fingerprint,
    )


def _origin(value: object) -> str | None:
    """The place that an external input's value names: itself if it is text, or its `path`."""
    place = value.get("path") if isinstance(value, Mapping) else value
    return str(place) if isinstance(place, str | Path) else None
