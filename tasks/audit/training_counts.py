"""How often each token occurs in the text that a tokenizer was trained on, from its counts."""

from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokmill.tasks.audit.tokens import Occurrences
from tokmill.tasks.formats.counts import Balance, Counts
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts

_PRETOKENS_AT_A_TIME = 1 << 17


def occurrences_by_source(tok: Tokenizer, counts: Counts) -> dict[str, NDArray[np.uint64]]:
    """Return how often each token occurs in each source: uint64 [vocab_size]."""
    return {source: occurrences(tok, counts.parts(source, _PRETOKENS_AT_A_TIME)) for source in counts.sources}


TRAINING = pa.schema([("source", pa.string()), ("token_id", pa.uint32()), ("num_training", pa.uint64())])


def training_table(by_source: Mapping[str, NDArray[np.uint64]]) -> pa.Table:
    """Return the table `vocab_training`: a row per source and token that occurs in it."""
    parts = [TRAINING.empty_table()]
    for source, counts in by_source.items():
        used = np.flatnonzero(counts)
        columns = [pa.array([source] * len(used), pa.string()), used.astype(np.uint32), counts[used]]
        parts.append(pa.Table.from_arrays([pa.array(column) for column in columns], schema=TRAINING))
    return pa.concat_tables(parts)


def read_training(table: pa.Table, vocab_size: int) -> dict[str, NDArray[np.uint64]]:
    """Return by source how often each token occurs: uint64 [vocab_size]."""
    found: dict[str, NDArray[np.uint64]] = {}
    for name in table["source"].unique().to_pylist():
        rows = table.filter(pc.equal(table["source"], name))
        counts = np.zeros(vocab_size, np.uint64)
        counts[rows["token_id"].to_numpy()] = rows["num_training"].to_numpy()
        found[name] = counts
    return found


def training_occurrences(
    by_source: Mapping[str, NDArray[np.uint64]], balance: Balance, vocab_size: int
) -> Occurrences:
    """Return the sums over the sources, as they are and multiplied by the balance's factors."""
    counts, weighted = np.zeros(vocab_size, np.uint64), np.zeros(vocab_size, np.float64)
    for source, found in by_source.items():
        counts += found
        weighted += found * float(balance.factors.get(source, 0))
    return Occurrences(counts, weighted)


def occurrences(tok: Tokenizer, parts: Iterable[PretokenCounts]) -> NDArray[np.uint64]:
    """Encode each distinct pre-token once, and count its tokens as often as it occurs."""
    found = np.zeros(tok.vocab_size, np.uint64)
    for part in parts:
        batch = tok.encode_pretokens(part.data, part.offsets)
        np.add.at(found, batch.ids, np.repeat(part.counts, np.diff(batch.offsets)))
    return found
