"""Export: packed sequences in other formats, without encoding or packing again.

One shard is written at a time, as in packing: each is published whole, and a crash loses only the shard in
progress. Laws. Sequences, boundaries and origins are the same in every format. Except for the list of formats
in `packed.json`, the files equal those that packing would have written, byte for byte.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pydantic import Field

from tokmill.tasks.core.errors import PackingError
from tokmill.tasks.core.stage import NO_SOURCE, Account, Outcome, Scalar, Stage
from tokmill.tasks.formats.files.manifests import readable
from tokmill.tasks.formats.packed.manifest import (
    PackedFormat,
    PackedManifest,
    PackedShardEntry,
    TakedownManifest,
)
from tokmill.tasks.formats.packed.pieces import PieceRows, pieces_file
from tokmill.tasks.formats.packed.shard_format import (
    SequenceBlock,
    ShardShape,
    block_ranges,
    open_shard,
    write_sequences,
)
from tokmill.tasks.packing.assemble import assembled, link
from tokmill.tasks.packing.params import FormatParams
from tokmill.tasks.store.layout import RECORD_FILE
from tokmill.tasks.store.record import read_record

_BLOCK_TOKENS = 1 << 24


class ExportParams(FormatParams):
    """The formats to write packed sequences in."""


class ExportShardParams(FormatParams):
    """The shard to write, and its formats."""

    index: int = Field(ge=0, description="Number of the shard, from 0.")


def run_shard(params: ExportShardParams, *, out: Path, packed: Path) -> Outcome:
    """Write one shard of a packed artifact in other formats.

    Raises:
        PackingError: there is no such shard, or a format cannot hold it.
        StoreError: a file of the artifact is missing or broken.
    """
    manifest = PackedManifest.open(packed)
    entry = next((entry for entry in manifest.shards if entry.index == params.index), None)
    if entry is None:
        raise PackingError(
            f"export: shard index {params.index} must be below {len(manifest.shards)}, the number of shards"
        )
    _write_shard(packed, manifest, entry.index, params.formats, out, labels=params.labels)
    figures = {
        "num_sequences": entry.num_sequences,
        "num_tokens": entry.num_tokens,
        "num_padding_tokens": entry.num_sequences * manifest.sequence_length - entry.num_tokens,
    }
    own = {"formats": params.formats, "labels": params.labels, "shards": (entry,), **figures}
    manifest.model_copy(update=own).save(out)
    return Outcome(metrics={"num_sequences": entry.num_sequences, "num_tokens": entry.num_tokens})


def _write_shard(
    packed: Path,
    manifest: PackedManifest,
    index: int,
    formats: Sequence[PackedFormat],
    out: Path,
    *,
    labels: bool = False,
) -> None:
    """Write one shard of a packed artifact in other formats; hard-link its table of pieces."""
    entry, source = manifest.shard(index), pieces_file(packed, index)
    shape = ShardShape(entry.num_sequences, manifest.sequence_length, manifest.token_dtype, labels)
    with write_sequences(out, index, shape, formats) as append:
        for block in _blocks(packed, entry, manifest):
            append(block)
    with readable(source, "table of pieces"):
        pq.read_metadata(source)
    link(source, pieces_file(out, index))


def _blocks(path: Path, entry: PackedShardEntry, manifest: PackedManifest) -> Iterator[SequenceBlock]:
    """Yield the sequences of one shard in order, in blocks for `write_sequences`."""
    opened = open_shard(path, entry.index, manifest)
    pieces = PieceRows.open(path, entry.index, manifest)
    lengths = pieces.columns["length"].astype(np.int64)
    starts = pieces.columns["document_start"].astype(np.int64)
    for rows in block_ranges(entry.num_sequences, manifest.sequence_length, _BLOCK_TOKENS):
        firsts = pieces.firsts[rows.start : rows.stop + 1]
        its = slice(int(firsts[0]), int(firsts[-1]))
        tokens = np.stack([opened.tokens(row) for row in rows]).astype(manifest.token_dtype, copy=False)
        yield SequenceBlock(tokens, firsts - firsts[0], lengths[its], starts[its])


def run(params: ExportParams, *, out: Path, packed: Path, shards: Sequence[Path]) -> Outcome:
    """Put exported shards together: hard-link their files and write `packed.json`.

    Raises:
        PackingError: the shards do not belong to the packed artifact.
    """
    manifest = PackedManifest.open(packed)
    whole = assembled(shards, manifest.shards, out, _origin(packed, manifest))
    account = Account(
        source=NO_SOURCE, unit="tokens", num_in=manifest.num_tokens, became={"packed": whole.num_tokens}
    )
    metrics: dict[str, Scalar] = {
        "sequence_length": whole.sequence_length,
        "num_sequences": whole.num_sequences,
        "num_tokens": whole.num_tokens,
        "num_padding_tokens": whole.num_padding_tokens,
        "formats": ", ".join(whole.formats),
        "num_shards": len(whole.shards),
    }
    return Outcome(metrics=metrics, accounts=[account])


def _origin(packed: Path, manifest: PackedManifest) -> dict[str, Any]:
    """Identify the packed artifact, so that a loader's position in one is valid in the other.

    Empty if the directory has no record.
    """
    if not (packed / RECORD_FILE).is_file():
        return {}
    takedown = TakedownManifest.found(packed)
    earlier = {*manifest.predecessors, *(takedown.predecessors if takedown else ())}
    digest = read_record(packed).content_digest
    return {"origin": manifest.origin or digest, "predecessors": tuple(sorted(earlier))}


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
