"""Choose limits, for each source the draw below which its documents are held out, and write a part.

A share is a limit by itself; a number of documents is the limit above as many of the smallest draws, and a
few more, since copies have the same draw. What one source holds out and another would keep is held out of
both. The fast hashes of a shard's documents (`tasks.kernels.documents`) and their sizes are in
`documents.parquet`.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import Account, Unit
from tokmill.tasks.formats.corpus import (
    HELD_OUT_SCHEMA,
    SELECTIONS_SCHEMA,
    Corpus,
    CorpusManifest,
    CorpusSource,
)
from tokmill.tasks.formats.files.arrays import columns_of, read_parquet
from tokmill.tasks.formats.files.manifests import readable
from tokmill.tasks.formats.text.documents import Ints
from tokmill.tasks.formats.text.shards import (
    CorpusPart,
    Selection,
    Shard,
    draws_of,
    is_held_out,
    selected_digest,
)
from tokmill.tasks.kernels.text_size import TextSize
from tokmill.tokenizer.core.stopping import raise_if_stopped

_ALL = 1 << 64
_NO_DRAWS = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True)
class Limits:
    """By source, the draw below which documents are held out, and further draws that are."""

    below: Mapping[str, int]
    also: Mapping[str, NDArray[np.uint64]]


def choose(
    wanted: Mapping[str, int | float], hashed: Mapping[str, Sequence[tuple[Shard, Path]]], seed: int
) -> Limits:
    """Return the limits of every source, of which a number of documents is wanted, or a share (a float)."""
    below = {
        source: int(Fraction(repr(one)) * _ALL)
        if isinstance(one, float)
        else _above_smallest(_draws(hashed[source], seed), one)
        for source, one in wanted.items()
    }
    return Limits(below, _shared(below, hashed, seed))


def _above_smallest(draws: Iterator[NDArray[np.uint64]], number: int) -> int:
    """Return the least limit below which there are `number` draws; above all draws if there are fewer."""
    if not number:
        return 0
    smallest = _NO_DRAWS
    for part in draws:
        smallest = np.concatenate([smallest, part])
        if len(smallest) > number:
            smallest = np.partition(smallest, number - 1)[:number]
    return int(smallest.max()) + 1 if len(smallest) == number else _ALL


def _shared(
    below: Mapping[str, int], hashed: Mapping[str, Sequence[tuple[Shard, Path]]], seed: int
) -> dict[str, NDArray[np.uint64]]:
    """Return the draws that another source holds out, by the source with the smaller limit."""
    least, most = min(below.values()), max(below.values())
    if least == most:
        return dict.fromkeys(below, _NO_DRAWS)
    held_out = _NO_DRAWS
    for source, limit in below.items():
        for draws in _draws(hashed[source], seed):
            held_out = np.union1d(held_out, _between(draws, least, limit))
    found = {}
    for source, limit in below.items():
        parts = [_NO_DRAWS, *(_between(draws, limit, most) for draws in _draws(hashed[source], seed))]
        found[source] = np.intersect1d(np.concatenate(parts), held_out)
    return found


def _draws(hashed: Sequence[tuple[Shard, Path]], seed: int) -> Iterator[NDArray[np.uint64]]:
    return (draws_of(read_hashes(folder).hashes, seed) for _, folder in hashed)


def _between(draws: NDArray[np.uint64], low: int, high: int) -> NDArray[np.uint64]:
    """Return the draws from `low` up to but not including `high`."""
    last = np.uint64(max(high - 1, 0))
    return draws[(draws >= np.uint64(min(low, _ALL - 1))) & (draws <= last)] if high > low else _NO_DRAWS


FILE = "documents.parquet"
_SIZES = ("num_bytes", "num_chars", "num_words")
_SCHEMA = pa.schema({"ordinal": pa.int64(), "hash": pa.uint64(), **dict.fromkeys(_SIZES, pa.int64())})


class DocumentHashes(NamedTuple):
    """The documents of a shard."""

    ordinals: Ints  # int64 [d], increasing
    hashes: NDArray[np.uint64]  # uint64 [d]
    sizes: Ints  # int64 [d, 3], bytes, characters and words


def write_hashes(folder: Path, parts: Iterable[DocumentHashes]) -> int:
    """Write the documents of a shard, a part at a time; return their number."""
    number = 0
    with pq.ParquetWriter(folder / FILE, _SCHEMA, compression="zstd") as writer:
        for part in parts:
            columns = [part.ordinals, part.hashes, *part.sizes.T]
            arrays = [pa.array(np.ascontiguousarray(column)) for column in columns]
            writer.write_table(pa.Table.from_arrays(arrays, schema=_SCHEMA))
            number += len(part.ordinals)
    return number


def read_hashes(folder: Path) -> DocumentHashes:
    """Read the documents of a shard."""
    file = folder / FILE
    with readable(file, "list of document hashes"):
        table = read_parquet(file)
    if not table.schema.equals(_SCHEMA):
        raise StoreError(
            f"{file}: has the columns {table.schema.names}, not {_SCHEMA.names}; verify the store"
        )
    columns = columns_of(file, table, _SCHEMA)
    sizes = np.stack([columns[name] for name in _SIZES], axis=1)
    return DocumentHashes(columns["ordinal"], columns["hash"], sizes)


class _ShardPart(NamedTuple):
    """A part of a shard: its size, and its rows of the corpus's tables."""

    size: TextSize
    shard: dict[str, object]
    selection: dict[str, object]
    held_out: pa.RecordBatch


def _part_of(shard: Shard, folder: Path, rule: Selection, limit: NDArray[np.uint64]) -> _ShardPart:
    """Select a part of a shard; `limit` are further draws that are held out, of any shard of the source."""
    raise_if_stopped()
    documents = read_hashes(folder)
    draws = draws_of(documents.hashes, rule.seed)
    out = is_held_out(draws, rule.below, limit)
    chosen = out if rule.part == "validation" else ~out
    size = TextSize(int(np.count_nonzero(chosen)), *map(int, documents.sizes[chosen].sum(axis=0)))
    ordinals, place = documents.ordinals[out], {"source": shard.source, "shard": shard.index}
    digest = selected_digest(shard.digest, rule.part, ordinals)
    also = np.intersect1d(draws, limit).tolist()
    columns = [[shard.source] * len(ordinals), [shard.index] * len(ordinals), ordinals]
    arrays = [pa.array(column, one.type) for column, one in zip(columns, HELD_OUT_SCHEMA, strict=True)]
    return _ShardPart(
        size,
        {**place, "digest": digest, "num_documents": size.num_documents, "num_bytes": size.num_bytes},
        {**place, **rule.model_dump(), "below": str(rule.below), "also": also},
        pa.RecordBatch.from_arrays(arrays, schema=HELD_OUT_SCHEMA),
    )


def write_part(
    whole: Corpus,
    hashed: Mapping[str, Sequence[tuple[Shard, Path]]],
    limits: Limits,
    part: CorpusPart,
    seed: int,
    out: Path,
) -> tuple[CorpusManifest, list[Account]]:
    """Write a part of a corpus into the directory `out`; return its manifest and accounts."""
    parts: list[_ShardPart] = []
    sources: list[CorpusSource] = []
    accounts: list[Account] = []
    ends = ("kept", "held_out") if part == "training" else ("held_out", "for_training")
    for source in whole.manifest.sources:
        size, name = TextSize(0, 0, 0, 0), source.name
        for shard, folder in hashed[name]:
            rule = Selection(of=shard.digest, part=part, seed=seed, below=limits.below[name])
            parts.append(_part_of(shard, folder, rule, limits.also[name]))
            size = size.plus(parts[-1].size)
        units: tuple[Unit, Unit] = ("documents", "bytes")
        for unit, came, kept in zip(
            units, (source.stats.num_documents, source.stats.num_bytes), size, strict=False
        ):
            became = dict(zip(ends, (kept, came - kept), strict=True))
            accounts.append(Account(source=name, unit=unit, num_in=came, became=became))
        left = {**size._asdict(), "num_quarantined": 0, "quarantined": {}}
        sources.append(source.model_copy(update={"stats": source.stats.model_copy(update=left)}))
    for table in ("files", "segments", "quarantine"):
        shutil.copyfile(whole.path / f"{table}.parquet", out / f"{table}.parquet")
    held_out = pa.Table.from_batches((one.held_out for one in parts), schema=HELD_OUT_SCHEMA)
    tables = {
        "shards": pa.Table.from_pylist([one.shard for one in parts], schema=whole.table("shards").schema),
        "selections": pa.Table.from_pylist([one.selection for one in parts], schema=SELECTIONS_SCHEMA),
        "held_out": held_out,
    }
    for table, rows in tables.items():
        pq.write_table(rows, out / f"{table}.parquet", compression="zstd")
    manifest = CorpusManifest(shard_bytes=whole.manifest.shard_bytes, sources=sources)
    manifest.save(out)
    return manifest, accounts
