"""Make a packing plan from a mixture: cut and place documents, account for them, and divide into shards.

The mixture is read in blocks, and a shard's pieces are written as soon as its sequences are closed. So memory
holds one block and the pieces of one shard, whatever the size of the corpus.
"""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import PackingError
from tokmill.tasks.fim.tokens import DocumentKeys, choose_forms
from tokmill.tasks.formats.encoded import EncodedManifest
from tokmill.tasks.formats.mixture import Mixture, MixtureManifest, Plan
from tokmill.tasks.formats.packed.manifest import WINDOWED, FimTokens, PackingManifest, PlannedShard
from tokmill.tasks.formats.packed.pieces import PieceTable, write_plan_pieces
from tokmill.tasks.packing.accounts import PackedTotals
from tokmill.tasks.packing.params import PackPlanParams
from tokmill.tasks.packing.pieces import Pieces, blocks
from tokmill.tasks.packing.shares import Shares
from tokmill.tasks.packing.shuffling import Closed, Shuffle, window_of
from tokmill.tasks.packing.strategies import packer
from tokmill.tokenizer.core.stopping import raise_if_stopped

_MOST_SEQUENCES = 1 << 32
_BLOCK = 1 << 18  # documents, for strategies without a window


def plan_packing(
    rule: PackPlanParams, mixture: Mixture, encoded: EncodedManifest, out: Path
) -> PackingManifest:
    """Plan the packing of a mixture; writes `packing.json` and `pieces.parquet` into `out`."""
    check_fim_tokens(rule, encoded.vocab_size)
    sources = mixture.manifest.sources
    totals = PackedTotals(
        len(sources), rule.sequence_length, rule.strategy != "concat" and rule.long_documents == "drop"
    )
    window = window_of(rule.shuffle_window, mixture, rule.sequence_length)
    shares = Shares(len(sources), rule.sequence_length, mixture.manifest.num_tokens, max(1, window))
    shortest = _Shortest()
    with write_plan_pieces(out) as append:
        shards = ShardWriter(append, rule.sequences_per_shard)

        def closed() -> Iterator[Closed]:
            position = mixture.manifest.first_position
            for block, starts, pieces, num_closed in _packed_blocks(rule, mixture):
                lengths = block.num_tokens.astype(np.int64)
                totals.add(block.source, lengths, pieces)
                shares.add(block.source, pieces)
                shortest.see(int(np.min(lengths, initial=shortest.length)))
                _check_number(pieces.num_sequences)
                position += int(lengths.sum())
                yield Closed(_table(pieces, block, starts), num_closed, position)

        shuffle = Shuffle(mixture, window, rule.shuffle_seed, rule.sequence_length)
        for pieces, num_closed in shuffle.run(closed()):
            shards.add(pieces, num_closed)
        shards.close()
        if not shards.planned:
            raise PackingError(_nothing_left(rule, mixture.manifest, shortest.length))
        manifest = _manifest(rule, mixture.manifest, encoded, totals, shards.planned)
        measured = {
            "shares": shares.measured(sources, mixture.request(), mixture.manifest.first_position),
            "share_block_sequences": shares.block_sequences,
            "shuffle_window": window if window > 1 else None,
            "shuffle_seed": rule.shuffle_seed if window > 1 else None,
        }
        manifest = manifest.model_copy(update=measured)
        manifest.save(out)
    return manifest


class _Shortest:
    """Keeps the length of the shortest document so far, in tokens."""

    length = 1 << 32

    def see(self, length: int) -> None:
        self.length = min(self.length, length)


def _packed_blocks(
    rule: PackPlanParams, mixture: Mixture
) -> Iterator[tuple[Plan, NDArray[np.int64], Pieces, int]]:
    """Yield each block of documents, their first tokens, their kept pieces, and how many are closed.

    A document starts at another token than its first if an earlier mixture began it.
    """
    window = rule.window if rule.strategy in WINDOWED else _BLOCK
    packing = packer(rule.strategy, rule.sequence_length, rule.long_documents)
    rates = _rates(rule, mixture.sources)
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
        pieces = packing.pack(block.num_tokens.astype(np.int64), fim, block.source)
        if rule.strategy == "concat" and rule.last_sequence == "drop":
            pieces = pieces.only(pieces.sequence < mixture.manifest.num_tokens // rule.sequence_length)
        yield block, starts, pieces, packing.num_closed


def _rates(rule: PackPlanParams, sources: list[str]) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    given = rule.fim_rate
    rates = [given.get(source, 0.0) if isinstance(given, Mapping) else given for source in sources]
    return np.array(rates, dtype=np.float64)


def check_fim_tokens(rule: PackPlanParams, vocab_size: int) -> None:
    """Reject fill-in-the-middle tokens that are not in the vocabulary."""
    for token_id in rule.fim_token_ids or ():
        if token_id >= vocab_size:
            raise PackingError(
                f"pack: fim_token_ids has {token_id}, which must be below vocab_size={vocab_size}; "
                "use tokens of the vocabulary"
            )


class ShardWriter:
    """Collects pieces, and writes those of a shard once its last sequence is closed.

    Attributes:
        planned: the shards written so far.
    """

    def __init__(self, append: Callable[[PieceTable], None], sequences_per_shard: int) -> None:
        self.planned: list[PlannedShard] = []
        self._append = append
        self._per_shard = sequences_per_shard
        self._waiting: list[PieceTable] = []

    def add(self, pieces: PieceTable, num_closed: int) -> None:
        """Add the next pieces; sequences below `num_closed` will get no more."""
        self._waiting.append(pieces)
        if num_closed // self._per_shard > len(self.planned):
            self._write(num_closed - num_closed % self._per_shard)

    def close(self) -> None:
        """Write the remaining shards."""
        self._write(_MOST_SEQUENCES)

    def _write(self, stop: int) -> None:
        """Write the shards of all sequences below `stop`."""
        if not self._waiting:
            return
        table = PieceTable.joined(self._waiting)
        end = int(np.searchsorted(table.sequence, stop))
        self._waiting = [table.rows(end, len(table))]
        start = 0
        while start < end:
            index = len(self.planned)
            last = int(np.searchsorted(table.sequence[:end], (index + 1) * self._per_shard))
            part = table.rows(start, last)
            first = index * self._per_shard
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


def _check_number(num_sequences: int) -> None:
    if num_sequences >= _MOST_SEQUENCES:
        raise PackingError(
            f"pack: {num_sequences} sequences must be fewer than {_MOST_SEQUENCES}; raise sequence_length or "
            "mix fewer tokens at a time"
        )


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


def _manifest(
    rule: PackPlanParams,
    mixture: MixtureManifest,
    encoded: EncodedManifest,
    totals: PackedTotals,
    shards: list[PlannedShard],
) -> PackingManifest:
    num_sequences = sum(shard.num_sequences for shard in shards)
    num_tokens = sum(shard.num_tokens for shard in shards)
    num_padding = num_sequences * rule.sequence_length - num_tokens
    return PackingManifest(
        tokenizer=encoded.tokenizer,
        dtype=encoded.dtype,
        vocab_size=encoded.vocab_size,
        begin_of_document_id=encoded.begin_of_document_id,
        end_of_document_id=encoded.end_of_document_id,
        sequence_length=rule.sequence_length,
        strategy=rule.strategy,
        window=rule.window if rule.strategy in WINDOWED else None,
        long_documents=rule.long_documents if rule.strategy != "concat" else None,
        last_sequence=rule.last_sequence if rule.strategy == "concat" else None,
        fim=_fim_tokens(rule),
        num_sequences=num_sequences,
        num_tokens=num_tokens,
        num_padding_tokens=num_padding,
        num_documents=totals.num_documents(),
        num_split_documents=totals.num_documents("split"),
        num_cut_documents=totals.num_cut_documents,
        num_lost_tokens=totals.num_lost_tokens,
        sources=tuple(source.source for source in mixture.sources),
        shards=tuple(shards),
        accounts=tuple(totals.accounts(mixture.sources, num_padding)),
    )


def _fim_tokens(rule: PackPlanParams) -> FimTokens | None:
    if not rule.rearranges or rule.fim_token_ids is None:
        return None
    prefix, suffix, middle = rule.fim_token_ids
    return FimTokens(prefix_id=prefix, suffix_id=suffix, middle_id=middle, seed=rule.fim_seed)
