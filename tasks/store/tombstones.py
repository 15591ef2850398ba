"""Tombstones: what is left of a removed artifact, its record among it.

    <store>/removed/<kind>/<fingerprint prefix>.json    its record, when it was removed, by whom, and why

One stays when its artifact is made again: it tells of the removal. The catalog's table `removed` has them.
A tombstone carries a seal as records do (`tasks.store.record`).
"""

from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import disk, shared
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.provenance import Moment, Provenance, utc_now
from tokmill.tasks.store.record import Record, broken_seal, contradictions, sealed

MOST_REASON_CHARS: Final = 2000
"""The longest reason for a takedown or a removal."""

_FORMAT_VERSION: Final = 2
_SEAL: Final = "tombstone_digest"
_MOST_BYTES = 256 << 20
_SUFFIX = ".json"


class Tombstone(BaseModel):
    """The remains of a removed artifact: its record, when and by whom it was removed, and why, if known."""

    model_config = ConfigDict(frozen=True)

    format_version: int = Field(default=_FORMAT_VERSION, ge=1, lt=2**31)
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


def tombstone(layout: Layout, kind: str, fingerprint: str) -> Tombstone | None:
    """Return the tombstone of a removed artifact, or None if there is none for this fingerprint."""
    path = tombstone_path(layout, kind, fingerprint)
    shared.bring(path)
    try:
        return read_tombstone(path)
    except FileNotFoundError:
        return None


def read_tombstone(path: Path) -> Tombstone:
    """Read the tombstone in a file."""
    try:
        data = disk.read(path, _MOST_BYTES)
        left = Tombstone.model_validate_json(data)
    except FileNotFoundError:
        raise
    except ValidationError as error:  # its own words would quote the file, which a link may have led to
        said = error.errors()[0]["msg"]
        raise StoreError(f"{path} cannot be read as a tombstone: {said}") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read as a tombstone: {error}") from error
    if left.format_version != _FORMAT_VERSION:
        raise StoreError(
            f"{path}: format_version={left.format_version} is not {_FORMAT_VERSION}, which this tokmill "
            "reads; use the tokmill that wrote it"
        )
    if problem := next(contradictions(left.record), None) or broken_seal(_SEAL, data):
        raise StoreError(f"{path}: {problem}; the tombstone is damaged; restore it from a backup")
    return left


def tombstones(layout: Layout, prefix: str) -> list[Path]:
    """Return the files of the tombstones of all artifacts whose fingerprint begins with `prefix`."""
    return [
        layout.removed / kind.name / entry.name
        for kind in disk.entries(layout.removed)
        for entry in disk.entries(layout.removed / kind.name)
        if entry.name.startswith(prefix) and entry.name.endswith(_SUFFIX)
    ]


def write_tombstone(layout: Layout, record: Record, reason: str) -> None:
    """Leave a tombstone of an artifact that is about to be removed."""
    made = Provenance.collect()
    left = Tombstone(
        removed=utc_now(),
        by=made.user,
        command=made.command,
        reason=reason,
        record=record,
    )
    path = tombstone_path(layout, record.kind, record.fingerprint)
    shared.replace(path, sealed(_SEAL, left.model_dump_json(indent=1).encode("utf-8") + b"\n"))


def tombstone_path(layout: Layout, kind: str, fingerprint: str) -> Path:
    """Return where the tombstone of an artifact is, if it has one."""
    place = layout.artifact(kind, fingerprint)
    return layout.removed / kind / f"{place.name}{_SUFFIX}"
