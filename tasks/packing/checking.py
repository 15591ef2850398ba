"""Checks of the inputs of packing, before planning."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tokmill.tasks.core.errors import PackingError
from tokmill.tasks.formats.encoded import Encoded, ShardEntry
from tokmill.tasks.store.digest import FileEntry, content_digest, digest_file
from tokmill.tasks.store.layout import RECORD_FILE


def check_same_sources(mixed: Sequence[str], encoded: Sequence[str]) -> None:
    """Reject a mixture whose sources differ from the encoding's.

    Raises:
        PackingError: their names differ.
    """
    if list(mixed) != list(encoded):
        raise PackingError(
            f"pack: the mixture has the sources {', '.join(mixed)}, the encoding {', '.join(encoded)}; "
            "pack the encoding that was mixed"
        )


def check_digests(encoded: Encoded, shards: Sequence[Path]) -> None:
    """Read every encoded shard once and compare its digest with the one in `encoded.json`.

    Raises:
        PackingError: a shard's files have changed since it was encoded.
        StoreError: there are more or fewer shards than `encoded.json` lists.
    """
    pairs = [(source, entry, path) for source, entry, path in encoded.pair(shards)]
    with ThreadPoolExecutor() as pool:  # hashing lets other threads run
        found = pool.map(lambda pair: _digest(pair[2]), pairs)
        for (source, entry, path), digest in zip(pairs, found, strict=True):
            if digest != entry.digest:
                raise PackingError(_other_digest(source, entry, path, digest))


def _digest(folder: Path) -> str:
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.name != RECORD_FILE)
    return content_digest(
        FileEntry(
            path=file.relative_to(folder).as_posix(), size_bytes=file.stat().st_size, digest=digest_file(file)
        )
        for file in files
    )


def _other_digest(source: str, entry: ShardEntry, path: Path, digest: str) -> str:
    return (
        f"pack: shard {entry.index} of source '{source}' ({path}) has the content digest {digest} but was "
        f"encoded with {entry.digest}; it has been changed or damaged: `tokmill verify` names the file, and "
        "a run with execution.verify='full' sets it aside and encodes it again"
    )
