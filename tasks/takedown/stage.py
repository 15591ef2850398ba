"""Takedown: write a new version of a packed artifact without some documents.

The model. Every piece of the documents is taken out of its sequence; the remaining pieces move together, and
padding fills the sequence. Nothing is packed again: every sequence keeps its number, sequences without such
pieces keep their bytes, and shards that consist of such sequences are the same files. So a training run can
continue with the new version at the same position. A sequence that held nothing else becomes all padding.

Laws. Per source: tokens in the old version = tokens here + taken down; padding grows by the tokens taken
down. The result does not depend on the order in which the documents are listed. Everything upstream (the
text, the encoded shards, older versions) is left unchanged.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from tokmill.tasks.core.stage import NO_SOURCE, Account, Outcome, Params, Scalar, Stage, Unit
from tokmill.tasks.formats.packed.layout import PackedManifest
from tokmill.tasks.formats.packed.takedown import (
    PIECES_FILE,
    TAKEN_DOWN_SCHEMA,
    TakedownManifest,
    TakenDocument,
    in_order,
)
from tokmill.tasks.formats.packed.writing import write_folder_files
from tokmill.tasks.store import NOT_IN_FINGERPRINT
from tokmill.tasks.store.record import read_record
from tokmill.tasks.store.tombstones import MOST_REASON_CHARS
from tokmill.tasks.takedown.shards import Columns, TakenDownShard, take_down_shard
from tokmill.tasks.tracing.pieces import Wanted


class TakedownParams(Params):
    """The documents to take down are an input, and so no parameter."""

    reason: str = Field(
        default="",
        max_length=MOST_REASON_CHARS,
        description="Why they are taken down, for the record; of the same request it is the first one's.",
        json_schema_extra=NOT_IN_FINGERPRINT,
    )


def run(
    params: TakedownParams, *, out: Path, packed: Path, documents: Sequence[Mapping[str, Any]]
) -> Outcome:
    """Write the packed artifact in `packed` without `documents`.

    Args:
        params: the reason, which changes no file.
        out: the new artifact's directory.
        packed: the directory of the old version.
        documents: the fields of one `TakenDocument` each, in any order.

    Raises:
        StoreError: a file of the old artifact is missing or broken.
    """
    manifest = PackedManifest.open(packed)
    taken = in_order(documents)
    wanted = Wanted(manifest.sources, taken)
    shards = [take_down_shard(packed, manifest, entry, wanted, out) for entry in manifest.shards]
    made = _manifest(manifest, shards)
    write_folder_files(out, made)
    pieces = {name: np.concatenate([shard.pieces[name] for shard in shards]) for name in shards[0].pieces}
    pq.write_table(
        pa.table(pieces).select(TAKEN_DOWN_SCHEMA.names).cast(TAKEN_DOWN_SCHEMA), out / PIECES_FILE
    )
    takedown = _takedown(packed, taken, pieces)
    takedown.save(out)
    return Outcome(metrics=_metrics(made, shards, takedown), accounts=_accounts(manifest, made, shards))


def _manifest(manifest: PackedManifest, shards: Sequence[TakenDownShard]) -> PackedManifest:
    num_tokens = sum(shard.entry.num_tokens for shard in shards)
    figures = {
        "num_tokens": num_tokens,
        "num_padding_tokens": manifest.num_sequences * manifest.sequence_length - num_tokens,
        "shards": tuple(shard.entry for shard in shards),
        "origin": None,  # its sequences no longer equal those of the artifact that it was exported from
        "predecessors": tuple(sorted({*manifest.predecessors, *filter(None, [manifest.origin])})),
    }
    return manifest.model_copy(update=figures)


def _takedown(packed: Path, taken: Sequence[TakenDocument], pieces: Columns) -> TakedownManifest:
    digest, before = read_record(packed).content_digest, TakedownManifest.of(packed)
    return TakedownManifest(
        previous=digest,
        predecessors=(*(before.predecessors if before else ()), digest),
        documents=tuple(taken),
        changed_sequences=tuple(np.unique(pieces["sequence"]).tolist()),
    )


def _metrics(
    made: PackedManifest, shards: Sequence[TakenDownShard], takedown: TakedownManifest
) -> dict[str, Scalar]:
    return {
        "sequence_length": made.sequence_length,
        "num_sequences": made.num_sequences,
        "num_tokens": made.num_tokens,
        "num_padding_tokens": made.num_padding_tokens,
        "padding_share": round(made.num_padding_tokens / (made.num_sequences * made.sequence_length), 12),
        "num_shards": len(shards),
        "num_changed_shards": sum(len(shard.pieces["length"]) > 0 for shard in shards),
        "num_changed_sequences": len(takedown.changed_sequences),
        "num_taken_down_pieces": sum(len(shard.pieces["length"]) for shard in shards),
        "num_taken_down_tokens": sum(int(shard.taken[:, 1].sum()) for shard in shards),
    }


def _accounts(
    before: PackedManifest, after: PackedManifest, shards: Sequence[TakenDownShard]
) -> list[Account]:
    """The accounts of each source, in documents (once per epoch) and tokens; and one of all tokens.

    The last one starts from the old manifest's number of tokens, not from the tokens that were read.
    """
    kept, taken = (sum(getattr(shard, name) for shard in shards) for name in ("kept", "taken"))
    units: tuple[Unit, Unit] = ("documents", "tokens")
    accounts = [
        Account(
            source=source,
            unit=unit,
            num_in=int(kept[index, column] + taken[index, column]),
            became={"packed": int(kept[index, column]), "taken_down": int(taken[index, column])},
        )
        for index, source in enumerate(before.sources)
        for column, unit in enumerate(units)
    ]
    lost = int(taken[:, 1].sum())
    num_in, added = before.num_tokens + before.num_padding_tokens, {"padding": lost}
    became = {
        "packed": after.num_tokens,
        "padding": before.num_padding_tokens + lost,
        "taken_down": lost,
    }
    return [*accounts, Account(source=NO_SOURCE, unit="tokens", num_in=num_in, added=added, became=became)]


TAKEDOWN = Stage(verb="takedown", task="takedown", kind="packed", version=3, params=TakedownParams, run=run)
