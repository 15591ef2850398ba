"""Make a packing plan from a mixture: cut and place documents, account for them, and divide into shards.

Memory holds one block of the mixture and the pieces of one shard, whatever the size of the corpus.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import PackingError
from tokmill.tasks.fim.rearrangement import DocumentKeys, choose_forms
from tokmill.tasks.formats.encoded import EncodedManifest
from tokmill.tasks.formats.mixture import Mixture, MixtureManifest, Plan
from tokmill.tasks.formats.packed.manifest import WINDOWED, FimTokens, PackingManifest, PlannedShard
from tokmill.tasks.formats.packed.pieces import PieceTable, write_plan_pieces
from tokmill.tasks.packing.accounts import PackedTotals, Shares
from tokmill.tasks.packing.order import Closed, Shuffle, window_of
from tokmill.tasks.packing.params import PackPlanParams
from tokmill.tasks.packing.strategies import Packer, Pieces, blocks
from tokmill.tasks.packing.write import figures_of
from tokmill.tokenizer.core.stopping import raise_if_stopped

_MOST_SEQUENCES = 1 << 32
_BLOCK = 1 << 18  # documents, for strategies without a window
_OF_ENCODING = ("tokenizer", "dtype", "vocab_size", "begin_of_document_id", "end_of_document_id")


def plan_packing(
    rule: PackPlanParams, mixture: Mixture, encoded: EncodedManifest, out: Path
) -> PackingManifest:
    """Plan the packing of a mixture; writes `packing.json` and `pieces.parquet` into `out`."""
    for token_id in rule.fim_token_ids or ():
        if token_id >= encoded.vocab_size:
            raise PackingError(
                f"pack: fim_token_ids has {token_id}, which must be below vocab_size={encoded.vocab_size}; "
                "use tokens of the vocabulary"
            )
    mixed, length = mixture.manifest, rule.sequence_length
    drops_long = rule.strategy != "concat" and rule.long_documents == "drop"
    totals = PackedTotals(len(mixed.sources), length, drops_long)
    window = window_of(rule.shuffle_window, mixture, length)
    shares = Shares(len(mixed.sources), length, mixed.num_tokens, max(1, window))
    with write_plan_pieces(out) as append:
        shards = _ShardWriter(append, rule.sequences_per_shard)
        closed = _closed(rule, mixture, totals, shares)
        for pieces, num_closed in Shuffle(mixture, window, rule.shuffle_seed, length).run(closed):
            shards.add(pieces, num_closed)
        shards.add(PieceTable.joined([]), _MOST_SEQUENCES)
        if not shards.planned:
            raise PackingError(_nothing_left(rule, mixed, totals.shortest))
    figures = figures_of(shards.planned, length)
    manifest = PackingManifest(
        **{name: getattr(encoded, name) for name in _OF_ENCODING},
        **_settings(rule, window),
        **figures,
        num_documents=totals.num_documents(),
        num_split_documents=totals.num_documents("split"),
        num_cut_documents=totals.num_cut_documents,
        num_lost_tokens=totals.num_lost_tokens,
        sources=tuple(source.source for source in mixed.sources),
        shares=shares.measured(mixed.sources, mixture.request(), mixed.first_position),
        share_block_sequences=shares.block_sequences,
        accounts=tuple(totals.accounts(mixed.sources, figures["num_padding_tokens"])),
    )
    manifest.save(out)
    return manifest


def _closed(rule: PackPlanParams, mixture: Mixture, totals: PackedTotals, shares: Shares) -> Iterator[Closed]:
    position = mixture.manifest.first_position
    for block, starts, pieces, num_closed in _packed_blocks(rule, mixture):
        lengths = block.num_tokens.astype(np.int64)
        totals.add(block.source, lengths, pieces)
        shares.add(block.source, pieces)
        if pieces.num_sequences >= _MOST_SEQUENCES:
            raise PackingError(
                f"pack: {pieces.num_sequences} sequences must be fewer than {_MOST_SEQUENCES}; raise "
                "sequence_length or mix fewer tokens at a time"
            )
        position += int(lengths.sum())
        yield Closed(_table(pieces, block, starts), num_closed, position)


def _settings(rule: PackPlanParams, window: int) -> dict[str, Any]:
    """The manifest's fields that say how documents are packed; None for what this strategy does not use."""
    is_concat, is_shuffled = rule.strategy == "concat", window > 1
    return {
        "sequence_length": rule.sequence_length,
        "strategy": rule.strategy,
        "window": rule.window if rule.strategy in WINDOWED else None,
        "long_documents": None if is_concat else rule.long_documents,
        "last_sequence": rule.last_sequence if is_concat else None,
        "fim": _fim_tokens(rule) if rule.rearranges else None,
        "shuffle_window": window if is_shuffled else None,
        "shuffle_seed": rule.shuffle_seed if is_shuffled else None,
    }


def _fim_tokens(rule: PackPlanParams) -> FimTokens:
    ids = zip(("prefix_id", "suffix_id", "middle_id"), rule.fim_token_ids or (), strict=True)
    return FimTokens(**dict(ids), seed=rule.fim_seed)


def _packed_blocks(
    rule: PackPlanParams, mixture: Mixture
) -> Iterator[tuple[Plan, NDArray[np.int64], Pieces, int]]:
    """Yield each block of documents, their first tokens, their kept pieces, and how many are closed.

    A document starts at another token than its first if an earlier mixture began it.
    """
    window = rule.window if rule.strategy in WINDOWED else _BLOCK
    packer = Packer(rule.strategy, rule.sequence_length, rule.long_documents)
    rate = rule.fim_rate
    rates = np.array([rate.get(s, 0.0) if isinstance(rate, Mapping) else rate for s in mixture.sources])
    rests = np.array(mixture.manifest.first_document_starts, dtype=np.int64)
    for block in blocks(mixture.batches(), window, rule.sequence_length):
        raise_if_stopped()
        fim = np.zeros(len(block), dtype=np.uint8)
        starts = np.zeros(len(block), dtype=np.int64)
        num_rests = min(len(rests), len(block))
        starts[:num_rests], rests = rests[:num_rests], rests[num_rests:]
        if rule.rearranges:
            keys = DocumentKeys(block.source, block.shard, block.document, block.epoch)
            fim = choose_forms(keys, rates, rule.fim_spm_rate, rule.fim_seed)
            fim[:num_rests] = 0  # the rest of a document is not rearranged
        pieces = packer.pack(block.num_tokens.astype(np.int64), fim, block.source)
        if rule.strategy == "concat" and rule.last_sequence == "drop":
            pieces = pieces.only(pieces.sequence < mixture.manifest.num_tokens // rule.sequence_length)
        yield block, starts, pieces, packer.num_closed


def _table(pieces: Pieces, plan: Plan, starts: NDArray[np.int64]) -> PieceTable:
    """The pieces of a block, whose documents begin at their tokens `starts`."""
    document_start = pieces.document_start + starts[pieces.document]
    return PieceTable(
        sequence=pieces.sequence.astype(np.uint32),
        start=pieces.start.astype(np.uint32),
        length=pieces.length.astype(np.uint32),
        source=plan.source[pieces.document],
        shard=plan.shard[pieces.document],
        document=plan.document[pieces.document],
        document_start=document_start.astype(np.uint32),
        epoch=plan.epoch[pieces.document],
        fim=pieces.fim,
    )


class _ShardWriter:
    """Collects pieces, and writes those of a shard once its last sequence is closed."""

    def __init__(self, append: Callable[[PieceTable], None], sequences_per_shard: int) -> None:
        self.planned: list[PlannedShard] = []  # the shards written so far
        self._append = append
        self._per_shard = sequences_per_shard
        self._waiting: list[PieceTable] = []

    def add(self, pieces: PieceTable, num_closed: int) -> None:
        """Add the next pieces; sequences below `num_closed` will get no more."""
        self._waiting.append(pieces)
        if num_closed < _MOST_SEQUENCES:
            num_closed -= num_closed % self._per_shard
        if num_closed <= len(self.planned) * self._per_shard:
            return
        table, start = PieceTable.joined(self._waiting), 0
        end = int(np.searchsorted(table.sequence, num_closed))
        self._waiting = [table.rows(end, len(table))]
        while start < end:
            index = len(self.planned)
            first = index * self._per_shard
            last = int(np.searchsorted(table.sequence[:end], first + self._per_shard))
            part = table.rows(start, last)
            self._append(part)
            self.planned.append(
                PlannedShard(
                    index=index,
                    first_sequence=first,
                    num_sequences=int(part.sequence[-1]) + 1 - first,
                    num_pieces=len(part),
                    num_tokens=int(part.length.sum(dtype=np.int64)),
                )
            )
            start = last


def _nothing_left(rule: PackPlanParams, mixture: MixtureManifest, shortest: int) -> str:
    length = rule.sequence_length
    if not mixture.num_documents:
        return "pack: the mixture has no documents; mix text first"
    if rule.strategy == "concat":
        return (
            f"pack: the mixture's {mixture.num_tokens} tokens do not fill one sequence of {length}, and "
            "last_sequence='drop'; use last_sequence='pad', a smaller sequence_length or a larger mixture"
        )
    return (
        f"pack: every document has more than sequence_length={length} tokens (the shortest {shortest}) and "
        "long_documents='drop'; use long_documents='split' or a larger sequence_length"
    )
