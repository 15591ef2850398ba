"""From a mixture to a packing plan: documents are cut, accounted for, and split into shards."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tasks.errors import PackingError
from tasks.formats.encoded import EncodedManifest
from tasks.formats.mixture import MixedSource, Plan
from tasks.formats.packing_plan import PackingManifest, PieceTable, PlannedShard
from tasks.packing.accounts import ending, packing_accounts
from tasks.packing.params import PackPlanParams
from tasks.packing.pieces import Pieces, concat, greedy

_MOST_SEQUENCES = 1 << 32


@dataclass(frozen=True)
class Planned:
    """A packing plan: its manifest, and the pieces of each shard."""

    manifest: PackingManifest
    shards: list[PieceTable]


def planned(
    rule: PackPlanParams, plan: Plan, sources: Sequence[MixedSource], encoded: EncodedManifest
) -> Planned:
    """Plan the packing of a mixture.

    Args:
        rule: how to pack.
        plan: the mixture's documents, in order.
        sources: the mixture's sources.
        encoded: says which tokens these are.

    Raises:
        PackingError: no sequence comes out, or more than can be numbered.
    """
    lengths = plan.num_tokens.astype(np.int64)
    pieces = _cut(rule, lengths)
    num_padding = pieces.num_sequences * rule.sequence_length - pieces.num_tokens
    drops_long = rule.strategy == "greedy" and rule.long_documents == "drop"
    ended = ending(lengths, pieces, rule.sequence_length, drops_long)
    table = _table(pieces, plan)
    shards = _shards(table, pieces.num_sequences, rule.sequences_per_shard)
    manifest = PackingManifest(
        tokenizer=encoded.tokenizer,
        dtype=encoded.dtype,
        vocab_size=encoded.vocab_size,
        end_of_document_id=encoded.end_of_document_id,
        sequence_length=rule.sequence_length,
        strategy=rule.strategy,
        long_documents=rule.long_documents if rule.strategy == "greedy" else None,
        last_sequence=rule.last_sequence if rule.strategy == "concat" else None,
        num_sequences=pieces.num_sequences,
        num_tokens=pieces.num_tokens,
        num_padding_tokens=num_padding,
        sources=[source.source for source in sources],
        shards=shards,
        accounts=packing_accounts(sources, plan.source, ended, num_padding),
    )
    return Planned(manifest, _parts(table, shards))


def _cut(rule: PackPlanParams, lengths: np.ndarray) -> Pieces:
    if rule.strategy == "greedy":
        pieces = greedy(lengths, rule.sequence_length, rule.long_documents)
    else:
        pieces = concat(lengths, rule.sequence_length)
        if rule.last_sequence == "drop":
            pieces = pieces.only(pieces.sequence < int(lengths.sum()) // rule.sequence_length)
    if not len(pieces):
        raise PackingError(_nothing_left(rule, int(lengths.sum()), int(lengths.min(initial=0))))
    if pieces.num_sequences >= _MOST_SEQUENCES:
        raise PackingError(
            f"pack: {pieces.num_sequences} sequences must be fewer than {_MOST_SEQUENCES}; raise "
            "sequence_length or mix fewer tokens at a time"
        )
    return pieces


def _nothing_left(rule: PackPlanParams, num_tokens: int, shortest: int) -> str:
    length = rule.sequence_length
    if rule.strategy == "concat":
        return (
            f"pack: the mixture's {num_tokens} tokens do not fill one sequence of {length}, and "
            "last_sequence='drop'; use last_sequence='pad', a smaller sequence_length or a larger mixture"
        )
    return (
        f"pack: every document has more than sequence_length={length} tokens (the shortest {shortest}) and "
        "long_documents='drop'; use long_documents='split' or a larger sequence_length"
    )


def _table(pieces: Pieces, plan: Plan) -> PieceTable:
    return PieceTable(
        sequence=pieces.sequence.astype(np.uint32),
        start=pieces.start.astype(np.uint32),
        length=pieces.length.astype(np.uint32),
        source=plan.source[pieces.document],
        shard=plan.shard[pieces.document],
        document=plan.document[pieces.document],
        document_start=pieces.document_start.astype(np.uint32),
        epoch=plan.epoch[pieces.document],
    )


def _shards(table: PieceTable, num_sequences: int, per_shard: int) -> list[PlannedShard]:
    firsts = np.arange(0, num_sequences, per_shard)
    rows = np.append(np.searchsorted(table.sequence, firsts), len(table))
    sums = np.concatenate([[0], np.cumsum(table.length, dtype=np.int64)])
    return [
        PlannedShard(
            index=index,
            first_sequence=int(first),
            num_sequences=min(per_shard, num_sequences - int(first)),
            num_pieces=int(rows[index + 1] - rows[index]),
            num_tokens=int(sums[rows[index + 1]] - sums[rows[index]]),
        )
        for index, first in enumerate(firsts)
    ]


def _parts(table: PieceTable, shards: Sequence[PlannedShard]) -> list[PieceTable]:
    stops = np.cumsum([shard.num_pieces for shard in shards]).tolist()
    return [table.rows(stop - shard.num_pieces, stop) for stop, shard in zip(stops, shards, strict=True)]
