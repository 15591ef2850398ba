"""Write packed shards in any of the formats, and the common files of a folder of shards."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tokmill.tasks.formats.packed.block import Append, SequenceBlock, ShardShape
from tokmill.tasks.formats.packed.layout import PROVENANCE_SCHEMA, PackedFormat, PackedManifest, ShardFiles
from tokmill.tasks.formats.packed.shard_format import format_of


@contextmanager
def write_sequences(
    files: ShardFiles, shape: ShardShape, formats: Sequence[PackedFormat]
) -> Iterator[Append]:
    """A writer of one shard in all of `formats`; the files are whole once the context is left.

    The same sequences give the same bytes, whatever the blocks that they come in, if each block but the last
    has a multiple of `group_rows` sequences.
    """
    writers = [writer for name in formats for writer in format_of(name).writers(shape.labels)]
    with ExitStack() as stack:
        appends = [stack.enter_context(writer(files, shape)) for writer in dict.fromkeys(writers)]

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


def shard_files(files: ShardFiles, manifest: PackedManifest) -> list[Path]:
    """All files of a shard in the formats of its packing, each once, and its table of pieces."""
    found = [file for name in manifest.formats for file in format_of(name).all_files(files, manifest.labels)]
    return [*dict.fromkeys(found), files.pieces]


def write_folder_files(out: Path, manifest: PackedManifest) -> None:
    """Write `packed.json`, and the files that the format has once per folder, into the folder `out`."""
    for name in manifest.formats:
        write = format_of(name).write_folder
        if write is not None:
            write(out, manifest)
    _write_dataset_card(out, manifest)
    manifest.save(out)


def _write_dataset_card(out: Path, manifest: PackedManifest) -> None:
    """Write the `README.md` that tells Hugging Face's `datasets` which files of a folder are data.

    Without it `load_dataset(folder)` loads any file that it can read, such as manifests or a record. The
    README's header lists the data files, even if `datasets` cannot read their format, so that the library
    fails instead of loading something else.
    """
    pattern = min(map(format_of, manifest.formats), key=lambda known: known.hub_order).pattern
    lines = [
        "---",
        "configs:",
        "- config_name: default",
        "  data_files:",
        "  - split: train",
        f'    path: "{pattern}"',
        "---",
        "",
        f"{manifest.num_sequences:,} packed sequences of {manifest.sequence_length:,} tokens, as "
        f"{', '.join(manifest.formats)}. `packed.json` says how they were packed.",
    ]
    (out / "README.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
