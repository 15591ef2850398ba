"""Export: packed sequences in other formats, without encoding or packing again, shard by shard.

Except for the list of formats in `packed.json`, the files equal those that packing would have written.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pydantic import Field

from tokmill.tasks.core.errors import PackingError
from tokmill.tasks.core.stage import NO_SOURCE, Account, Outcome, Scalar, Stage
from tokmill.tasks.formats.files.manifests import readable
from tokmill.tasks.formats.packed.manifest import PackedManifest, PackedShardEntry, TakedownManifest
from tokmill.tasks.formats.packed.pieces import PieceRows, pieces_file
from tokmill.tasks.formats.packed.shard_format import (
    SequenceBlock,
    ShardShape,
    block_ranges,
    open_shard,
    write_sequences,
)
from tokmill.tasks.packing.params import FormatParams
from tokmill.tasks.packing.write import assembled, link, of_shards
from tokmill.tasks.store.layout import RECORD_FILE
from tokmill.tasks.store.record import read_record

_BLOCK_TOKENS = 1 << 24


class ExportParams(FormatParams):
    """The formats to write packed sequences in."""


class ExportShardParams(FormatParams):
    """The shard to write, and its formats."""

    index: int = Field(ge=0, description="Number of the shard, from 0.")


def run_shard(params: ExportShardParams, *, out: Path, packed: Path) -> Outcome:
    """Write one shard of a packed artifact in other formats; hard-link its table of pieces."""
    manifest, index = PackedManifest.open(packed), params.index
    entry = next((entry for entry in manifest.shards if entry.index == index), None)
    if entry is None:
        raise PackingError(
            f"export: shard index {index} must be below {len(manifest.shards)}, the number of shards"
        )
    shape = ShardShape(entry.num_sequences, manifest.sequence_length, manifest.token_dtype, params.labels)
    pieces = PieceRows.open(packed, index, manifest)
    with write_sequences(out, index, shape, params.formats) as append:
        for _, block in blocks_of(packed, entry, manifest, pieces.columns, pieces.firsts):
            append(block)
    source = pieces_file(packed, index)
    with readable(source, "table of pieces"):
        pq.read_metadata(source)
    link(source, pieces_file(out, index))
    of_shards(manifest, [entry], formats=params.formats, labels=params.labels).save(out)
    return Outcome(metrics={"num_sequences": entry.num_sequences, "num_tokens": entry.num_tokens})


def blocks_of(
    path: Path,
    entry: PackedShardEntry,
    manifest: PackedManifest,
    columns: Mapping[str, NDArray[Any]],
    firsts: NDArray[np.int64],
) -> Iterator[tuple[slice, SequenceBlock]]:
    """Yield the sequences of one shard in order, in blocks for `write_sequences`, and their rows of pieces.

    Sequence i has the pieces [firsts[i], firsts[i + 1]) of the `columns`.
    """
    opened = open_shard(path, entry.index, manifest)
    lengths, starts = (columns[name].astype(np.int64) for name in ("length", "document_start"))
    for rows in block_ranges(entry.num_sequences, manifest.sequence_length, _BLOCK_TOKENS):
        own = firsts[rows.start : rows.stop + 1]
        its = slice(int(own[0]), int(own[-1]))
        tokens = np.stack([opened.tokens(row) for row in rows]).astype(manifest.token_dtype, copy=False)
        yield its, SequenceBlock(tokens, own - own[0], lengths[its], starts[its])


def run(params: ExportParams, *, out: Path, packed: Path, shards: Sequence[Path]) -> Outcome:
    """Put exported shards together: hard-link their files and write `packed.json`.

    That identifies the packed artifact, if it has a record, so that a loader's position in one is valid in
    the other.
    """
    manifest, origin = PackedManifest.open(packed), {}
    if (packed / RECORD_FILE).is_file():
        takedown = TakedownManifest.found(packed)
        earlier = {*manifest.predecessors, *(takedown.predecessors if takedown else ())}
        digest = manifest.origin or read_record(packed).content_digest
        origin = {"origin": digest, "predecessors": tuple(sorted(earlier))}
    whole = assembled(shards, manifest.shards, out, origin)
    account = Account(
        source=NO_SOURCE, unit="tokens", num_in=manifest.num_tokens, became={"packed": whole.num_tokens}
    )
    names = ("sequence_length", "num_sequences", "num_tokens", "num_padding_tokens")
    metrics: dict[str, Scalar] = {name: getattr(whole, name) for name in names}
    metrics |= {"formats": ", ".join(whole.formats), "num_shards": len(whole.shards)}
    return Outcome(metrics=metrics, accounts=[account])


EXPORT_SHARD = Stage(
    verb="export_shard",
    task="export",
    kind="packed_shard",
    version=2,
    params=ExportShardParams,
    run=run_shard,
)
EXPORT = Stage(verb="export", task="export", kind="packed", version=3, params=ExportParams, run=run)
"""Export: packed sequences in other formats."""
