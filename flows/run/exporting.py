"""Exports packed sequences: publishes the shards in the store, then copies them to a folder."""

import shutil
import typing
from collections.abc import Sequence
from pathlib import Path

from tokmill.flows.errors import UsageError
from tokmill.flows.nearest import suggestion
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef, Request
from tokmill.tasks.export.stage import EXPORT, EXPORT_SHARD, ExportParams, ExportShardParams
from tokmill.tasks.formats.packed.layout import PackedFormat, PackedManifest
from tokmill.tasks.store import Store
from tokmill.tasks.store.digest import digest_file
from tokmill.tasks.store.disk import whole_folder

CHECKSUMS_FILE = "checksums.txt"


def parse_formats(names: Sequence[str]) -> tuple[PackedFormat, ...]:
    """Check the names of formats, and return them once each in a fixed order.

    Raises:
        UsageError: a name is not a format.
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
    """Publish the sequences of `packed` in other formats; earlier exports are reused.

    With `labels`, also write the labels that trainers compute the loss on.

    Raises:
        StoreError: the artifact's files differ from the published ones.
        PackingError: a format cannot represent a shard.
    """
    with store.at_work("export"):
        if problems := store.verify([packed], full=True):
            raise StoreError(f"export: {problems[0]}; run its profile again to repair it")
        name = f"{packed.name}.{'+'.join(formats)}"
        shards = []
        for entry in PackedManifest.open(store.place(packed)).shards:
            params = ExportShardParams(index=entry.index, formats=formats, labels=labels)
            request = Request(EXPORT_SHARD, f"{name}.shard/{entry.index}", params, {"packed": packed})
            shards.append(store.realize(request).ref)
        request = Request(
            EXPORT, name, ExportParams(formats=formats, labels=labels), {"packed": packed, "shards": shards}
        )
        return store.realize(request).ref


def copy_out(store: Store, packed: ArtifactRef, out: Path) -> Path:
    """Copy an artifact's files to the new folder `out`, with `checksums.txt`; all of them or none.

    `b2sum --length=256 --check` reads the checksums.

    Raises:
        StoreError: a copy differs from the published file.
    """
    record = store.record(packed)
    with whole_folder(out) as temporary:
        for entry in record.files:
            (temporary / entry.path).parent.mkdir(exist_ok=True)
            shutil.copyfile(store.path(packed, [entry.path]) / entry.path, temporary / entry.path)
            if digest_file(temporary / entry.path) != entry.digest:
                raise StoreError(
                    f"export: the copy of {entry.path} differs from the published file; try again"
                )
        lines = "".join(f"{entry.digest}  {entry.path}\n" for entry in record.files)
        (temporary / CHECKSUMS_FILE).write_text(lines, encoding="utf-8")
    return out
