"""Which packed artifact this is, and whether its files are what was published."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tasks.errors import StoreError
from tasks.formats.packed_files import MANIFEST_FILE, PackedManifest, ShardFiles
from tasks.store.integrity import Verify, file_damages
from tasks.store.layout import RECORD_FILE
from tasks.store.record import read_record


@dataclass(frozen=True)
class Identity:
    """Which artifact it is.

    Attributes:
        digest: the content digest, or where the artifact has no record one of its manifest and the beginning
            of every shard.
        predecessors: digests of artifacts whose sequences had the same numbers.
    """

    digest: str
    predecessors: frozenset[str] = frozenset()


def checked_identity(path: Path, manifest: PackedManifest, verify: Verify) -> Identity:
    """Compare an artifact's files with its record, and say which artifact it is.

    The directory may lie anywhere and be called anything, and what `packed.json` needs may have been copied
    without `record.json`; then sizes are compared with the manifest, and digests cannot be.

    Raises:
        StoreError: a file is missing, or has another size or digest; or digests are to be compared and there
            is no record.
    """
    if not (path / RECORD_FILE).is_file():
        if verify == "full":
            raise StoreError(
                f"{path}: there is no {RECORD_FILE} to compare digests with; copy it too, or say "
                "verify='sizes'"
            )
        return Identity(_unrecorded(path, manifest))
    record = read_record(path)
    for name, message in file_damages(path, record, full=verify == "full"):
        raise StoreError(f"{path / name}: {message}; copy the artifact again, or have it made again")
    return Identity(record.content_digest)


def _unrecorded(path: Path, manifest: PackedManifest) -> str:
    row_bytes = manifest.sequence_length * (2 if manifest.dtype == "uint16" else 4)
    found = hashlib.blake2b((path / MANIFEST_FILE).read_bytes(), digest_size=32)
    for shard in manifest.shards:
        file = ShardFiles(path, shard.index).tokens
        size = file.stat().st_size if file.is_file() else None
        if size != shard.num_sequences * row_bytes:
            expected = shard.num_sequences * row_bytes
            raise StoreError(f"{file}: {size} bytes must be {expected}; copy the artifact again")
        with file.open("rb") as tokens:
            found.update(tokens.read(min(row_bytes, 1 << 16)))
    return found.hexdigest()
