"""Exports packed sequences: the shards through the store, one by one, then a copy outside of the store."""

import shutil
import typing
from collections.abc import Sequence
from pathlib import Path

from tokmill.flows.errors import UsageError
from tokmill.flows.profile.nearest import suggestion
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef, Request
from tokmill.tasks.export.stage import EXPORT, EXPORT_SHARD, ExportParams, ExportShardParams
from tokmill.tasks.formats.packed.layout import PackedFormat, PackedManifest
from tokmill.tasks.store import Store
from tokmill.tasks.store.digest import digest_file

CHECKSUMS_FILE = "checksums.txt"


def parse_formats(names: Sequence[str]) -> tuple[PackedFormat, ...]:
    """Return formats by their names.

    Raises:
        UsageError: there is no such format.
    """
    known: tuple[PackedFormat, ...] = typing.get_args(PackedFormat)
    for name in names:
        if name not in known:
            raise UsageError(
                f"export: --format {name} is not known{suggestion(name, known, known_as='formats')}"
            )
    return tuple(name for name in known if name in names)


def export_packed(
    store: Store, packed: ArtifactRef, formats: tuple[PackedFormat, ...], *, labels: bool = False
) -> ArtifactRef:
    """Publish the sequences of `packed` in other formats; earlier exports are reused from the store.

    With `labels`, the labels that trainers compute the loss on are written as well.

    Raises:
        StoreError: the artifact's files are not those that were published.
        PackingError: a shard does not fit into a format.
    """
    if problems := store.verify([packed], full=True):
        raise StoreError(f"export: {problems[0]}; run its profile again, which makes it anew")
    name = f"{packed.name}.{'+'.join(formats)}"
    shards = []
    for entry in PackedManifest.open(store.path(packed)).shards:
        params = ExportShardParams(index=entry.index, formats=formats, labels=labels)
        request = Request(EXPORT_SHARD, f"{name}.shard/{entry.index}", params, {"packed": packed})
        shards.append(store.realize(request).ref)
    request = Request(
        EXPORT, name, ExportParams(formats=formats, labels=labels), {"packed": packed, "shards": shards}
    )
    return store.realize(request).ref


def copy_out(store: Store, packed: ArtifactRef, out: Path) -> Path:
    """Copy an artifact's files into the new folder `out`, with `checksums.txt`; whole, or not at all.

    The checksums are as `b2sum --length=256 --check` takes them.

    Raises:
        StoreError: a copy is not what was published.
    """
    record = store.record(packed)
    temporary = out.with_name(f".{out.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        for entry in record.files:
            (temporary / entry.path).parent.mkdir(exist_ok=True)
            shutil.copyfile(store.path(packed) / entry.path, temporary / entry.path)
            if digest_file(temporary / entry.path) != entry.digest:
                raise StoreError(f"export: the copy of {entry.path} is not what was published; try again")
        lines = "".join(f"{entry.digest}  {entry.path}\n" for entry in record.files)
        (temporary / CHECKSUMS_FILE).write_text(lines, encoding="utf-8")
        temporary.rename(out)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return out
