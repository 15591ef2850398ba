"""Check that the files of a packed artifact are those that were published, and read its digests."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.packed.layout import MANIFEST_FILE, PackedManifest, ShardFiles
from tokmill.tasks.formats.packed.takedown import TakedownManifest
from tokmill.tasks.store.layout import RECORD_FILE
from tokmill.tasks.store.record import read_record
from tokmill.tasks.store.verify import file_damages

_WIDTH = {"uint16": 2, "uint32": 4}


@dataclass(frozen=True)
class CheckedArtifact:
    """The digests by which a loader's place recognizes a packed artifact.

    Attributes:
        digest: the content digest, or without a record a digest of its manifest and the beginning
            of every shard.
        predecessors: digests of artifacts whose sequences had the same numbers.
        origin: digest of the artifact that it was exported from, whose sequences are the same.
    """

    digest: str
    predecessors: frozenset[str] = frozenset()
    origin: str | None = None


def checked_artifact(path: Path, manifest: PackedManifest) -> CheckedArtifact:
    """Compare the sizes of an artifact's files with its record, and return its digests.

    The directory may have any path and name, and may have been copied without `record.json`. Then sizes are
    compared with the manifest, and digests cannot be checked.

    Raises:
        StoreError: a file is missing, or has another size.
    """
    if not (path / RECORD_FILE).is_file():
        return CheckedArtifact(_unrecorded(path, manifest), frozenset(manifest.predecessors), manifest.origin)
    record = read_record(path)
    for name, message in file_damages(path, record, full=False):
        raise StoreError(f"{path / name}: {message}; copy the artifact again, or make it again")
    takedown = TakedownManifest.of(path)
    earlier = {*manifest.predecessors, *(takedown.predecessors if takedown else ())}
    return CheckedArtifact(record.content_digest, frozenset(earlier), manifest.origin)


def _unrecorded(path: Path, manifest: PackedManifest) -> str:
    found = hashlib.blake2b((path / MANIFEST_FILE).read_bytes(), digest_size=32)
    for shard in manifest.shards:
        files = ShardFiles(path, shard.index)
        is_plain = "memmap" in manifest.formats
        file = files.tokens if is_plain else files.rows
        _check_size(file, shard.num_sequences * manifest.sequence_length * _WIDTH[manifest.dtype], is_plain)
        with file.open("rb") as tokens:
            found.update(tokens.read(1 << 12))
    return found.hexdigest()


def _check_size(file: Path, expected: int, is_plain: bool) -> None:
    """Reject a file whose size does not match its tokens; a file that is not plain also has a header."""
    size = file.stat().st_size if file.is_file() else 0
    if size < expected or (is_plain and size > expected):
        raise StoreError(f"{file}: {size} bytes must be {expected}; copy the artifact again")
