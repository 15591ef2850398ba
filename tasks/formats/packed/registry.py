"""Writes packed shards in any of the formats, and what a folder of shards needs besides."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from tokmill.tasks.formats.packed.block import Append, SequenceBlock, ShardShape
from tokmill.tasks.formats.packed.columnar import STATE_FILES, write_arrow, write_dataset_state, write_parquet
from tokmill.tasks.formats.packed.hub import CARD_FILE, write_dataset_card
from tokmill.tasks.formats.packed.jsonl import write_jsonl
from tokmill.tasks.formats.packed.layout import (
    PROVENANCE_SCHEMA,
    WITH_BOUNDARIES,
    PackedFormat,
    PackedManifest,
    ShardFiles,
)
from tokmill.tasks.formats.packed.mds import INDEX_FILE, write_mds, write_mds_index
from tokmill.tasks.formats.packed.megatron import write_megatron
from tokmill.tasks.formats.packed.memmap import write_boundaries, write_label_mask, write_memmap, write_npy

_Writer: TypeAlias = Callable[[ShardFiles, ShardShape], AbstractContextManager[Append]]

_WRITERS: Mapping[PackedFormat, _Writer] = {
    "arrow": write_arrow,
    "jsonl": write_jsonl,
    "mds": write_mds,
    "megatron": write_megatron,
    "memmap": write_memmap,
    "npy": write_npy,
    "parquet": write_parquet,
}


@contextmanager
def write_sequences(
    files: ShardFiles, shape: ShardShape, formats: Sequence[PackedFormat]
) -> Iterator[Append]:
    """A writer of one shard in all of `formats`; the files are whole once the context is left.

    The same sequences give the same bytes, whatever the blocks that they come in, if each block but the last
    has a multiple of `group_rows` sequences.
    """
    kinds = [_WRITERS[name] for name in formats]
    if WITH_BOUNDARIES & set(formats):
        kinds += [write_boundaries, write_label_mask] if shape.labels else [write_boundaries]
    with ExitStack() as stack:
        appends = [stack.enter_context(kind(files, shape)) for kind in kinds]

        def append(block: SequenceBlock) -> None:
            for each in appends:
                each(block)

        yield append


@contextmanager
def write_pieces(files: ShardFiles) -> Iterator[Callable[[pa.Table], None]]:
    """A writer of a shard's table of pieces, whose rows come in order."""
    files.pieces.parent.mkdir(exist_ok=True)
    with pq.ParquetWriter(files.pieces, PROVENANCE_SCHEMA, compression="zstd") as writer:
        yield writer.write_table


def write_folder_files(out: Path, manifest: PackedManifest) -> None:
    """Write into `out`, where all shards lie, what a format has once a folder, and `packed.json`."""
    if "mds" in manifest.formats:
        write_mds_index(out, manifest)
    if "arrow" in manifest.formats:
        write_dataset_state(out, manifest)
    write_dataset_card(out, manifest)
    manifest.save(out)


def folder_files(formats: Sequence[PackedFormat]) -> list[str]:
    """The names of what `write_folder_files` writes besides `packed.json`."""
    names = [CARD_FILE, INDEX_FILE] if "mds" in formats else [CARD_FILE]
    return [*names, *STATE_FILES] if "arrow" in formats else names
