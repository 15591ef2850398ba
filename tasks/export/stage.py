"""Export: packed sequences in other formats, without encoding or packing again.

A shard at a time, as packing writes them: each is published whole, and a crash costs the shard in flight.
Laws. The same sequences, boundaries and origins in every format; what is written equals what packing would
have written in that format, byte for byte but for `packed.json`'s list of formats.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from tokmill.tasks.core.errors import PackingError
from tokmill.tasks.core.stage import NO_SOURCE, Account, Outcome, Scalar, Stage
from tokmill.tasks.export.writing import export_shard
from tokmill.tasks.formats.packed.layout import PackedManifest
from tokmill.tasks.formats.packed.takedown import TakedownManifest
from tokmill.tasks.packing.assemble import assembled
from tokmill.tasks.packing.params import FormatParams
from tokmill.tasks.store.layout import RECORD_FILE
from tokmill.tasks.store.record import read_record


class ExportParams(FormatParams):
    """In which formats packed sequences are written."""


class ExportShardParams(FormatParams):
    """Which shard to write, and in which formats."""

    index: int = Field(ge=0, description="Number of the shard, from 0.")


def run_shard(params: ExportShardParams, *, out: Path, packed: Path) -> Outcome:
    """Write one shard of a packed artifact in other formats.

    Raises:
        PackingError: there is no such shard, or it does not fit into a format.
        StoreError: a file of the artifact is missing or broken.
    """
    manifest = PackedManifest.open(packed)
    entry = next((entry for entry in manifest.shards if entry.index == params.index), None)
    if entry is None:
        raise PackingError(
            f"export: shard index {params.index} must be below {len(manifest.shards)}, the number of shards"
        )
    export_shard(packed, manifest, entry.index, params.formats, out, labels=params.labels)
    figures = {
        "num_sequences": entry.num_sequences,
        "num_tokens": entry.num_tokens,
        "num_padding_tokens": entry.num_sequences * manifest.sequence_length - entry.num_tokens,
    }
    own = {"formats": params.formats, "labels": params.labels, "shards": (entry,), **figures}
    manifest.model_copy(update=own).save(out)
    return Outcome(metrics={"num_sequences": entry.num_sequences, "num_tokens": entry.num_tokens})


def run(params: ExportParams, *, out: Path, packed: Path, shards: Sequence[Path]) -> Outcome:
    """Put exported shards together; hard-links their files and writes `packed.json`.

    Raises:
        PackingError: the shards are not those of the packed artifact.
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
    """Whose sequences these are, so that a place in the one artifact is a place in the other.

    Nothing where there is no record, which would say it.
    """
    if not (packed / RECORD_FILE).is_file():
        return {}
    takedown = TakedownManifest.of(packed)
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
EXPORT = Stage(verb="export", task="export", kind="packed", version=2, params=ExportParams, run=run)
"""Export: packed sequences in other formats."""
