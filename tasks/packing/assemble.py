"""Put packed shards together in one folder, without copying them."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokmill.tasks.core.errors import PackingError
from tokmill.tasks.formats.packed.manifest import PackedManifest, PackedShardEntry
from tokmill.tasks.formats.packed.shard_format import shard_files, write_folder_files
from tokmill.tokenizer.core.stopping import raise_if_stopped


def assembled(
    shards: Sequence[Path],
    wanted: Sequence[PackedShardEntry],
    out: Path,
    said: Mapping[str, Any] | None = None,
) -> PackedManifest:
    """Hard-link the files of packed shards into `out`, and write the files of the whole folder."""
    parts = [PackedManifest.open(path) for path in shards]
    entries = tuple(entry for part in parts for entry in part.shards)
    if entries != tuple(wanted):
        raise PackingError(
            f"pack: the packed shards {[entry.index for entry in entries]} are not the plan's "
            f"{len(wanted)} shards in order; write every shard of this plan"
        )
    names = ("num_sequences", "num_tokens", "num_padding_tokens")
    figures = {name: sum(getattr(part, name) for part in parts) for name in names}
    whole, *others = [part.model_copy(update={**figures, "shards": entries}) for part in parts]
    if any(other != whole for other in others):
        raise PackingError(
            "pack: the packed shards belong to different packings; write all shards with the same parameters"
        )
    whole = whole.model_copy(update=said)
    for folder, part in zip(shards, parts, strict=True):
        raise_if_stopped()
        for file in shard_files(folder, part.shards[0].index, part):
            link(file, out / file.relative_to(folder))
    write_folder_files(out, whole)
    return whole


def link(file: Path, place: Path) -> None:
    """Hard-link a file; copy it if the file system cannot link it."""
    place.parent.mkdir(exist_ok=True)
    try:
        os.link(file, place)
    except OSError:
        shutil.copyfile(file, place)
