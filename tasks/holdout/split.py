"""Choose limits: for each source, the draw below which its documents are held out.

A share is a limit by itself. A number of documents is the limit above the smallest draws that make up so
many; copies of a document have the same draw, so there may be a few more. A text that one source holds out
and another, with a smaller limit, would keep is held out of both.

Hashes and sizes of a shard's documents on disk: one row per document, in their order.

    documents.parquet   ordinal int64, hash uint64, num_bytes int64, num_chars int64, num_words int64

The hash depends on the document's bytes alone (`tasks.kernels.documents`); it is fast and not
cryptographic. Ordinals increase.
"""

import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
class Wanted:
    """How much of a source is held out: a share of its documents, or a number of them."""

    share: float
    num_documents: int | None


@dataclass(frozen=True)
class Limits:
    """By source, the draw below which documents are held out, and further draws that are."""

    below: Mapping[str, int]
    also: Mapping[str, NDArray[np.uint64]]


def choose(wanted: Mapping[str, Wanted], hashed: Mapping[str, Sequence[Path]], seed: int) -> Limits:
    """Return the limits of every source."""
    below = {source: _limit(one, _draws(hashed[source], seed)) for source, one in wanted.items()}
    return Limits(below, _shared(below, hashed, seed))


def _limit(wanted: Wanted, draws: Iterator[NDArray[np.uint64]]) -> int:
    if wanted.num_documents is None:
        return int(Fraction(repr(wanted.share)) * _ALL)
    return _above_smallest(draws, wanted.num_documents)


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
    below: Mapping[str, int], hashed: Mapping[str, Sequence[Path]], seed: int
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


def _draws(folders: Sequence[Path], seed: int) -> Iterator[NDArray[np.uint64]]:
    return (draws_of(read_hashes(folder).hashes, seed) for folder in folders)


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


_NOTHING = TextSize(0, 0, 0, 0)


@dataclass
class _Part:
    """What is collected of a part: rows of its tables, and sizes by source."""

    part: CorpusPart
    seed: int
    limits: Limits
    shards: list[tuple[str, int, str, int, int]] = field(default_factory=list)
    selections: list[tuple[str, int, Selection]] = field(default_factory=list)
    held_out: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, shard: Shard, documents: DocumentHashes) -> TextSize:
        """Add a shard; return the size of its documents in the part."""
        raise_if_stopped()
        source = shard.source
        below, also = self.limits.below[source], self.limits.also[source]
        draws = draws_of(documents.hashes, self.seed)
        out = is_held_out(draws, below, also)
        size = _size(documents, out if self.part == "validation" else ~out)
        ordinals = documents.ordinals[out]
        digest = selected_digest(shard.digest, self.part, ordinals)
        self.shards.append((source, shard.index, digest, size.num_documents, size.num_bytes))
        here = np.intersect1d(draws, also)
        rule = Selection(
            of=shard.digest, part=self.part, seed=self.seed, below=below, also=tuple(here.tolist())
        )
        self.selections.append((source, shard.index, rule))
        columns = [pa.array([value] * len(ordinals)) for value in (source, shard.index)]
        self.held_out.append(_batch([*columns, pa.array(ordinals)], HELD_OUT_SCHEMA))
        return size

    def write(self, whole: Corpus, out: Path) -> None:
        """Write the tables; those of files, segments and quarantine are the whole corpus's."""
        for name in ("files", "segments", "quarantine"):
            shutil.copyfile(whole.path / f"{name}.parquet", out / f"{name}.parquet")
        schema = whole.table("shards").schema
        columns = zip(*self.shards, strict=True)
        arrays = [pa.array(column, one.type) for column, one in zip(columns, schema, strict=True)]
        _write(pa.Table.from_arrays(arrays, schema=schema), out / "shards.parquet")
        rows = [
            {"source": source, "shard": index, **rule.model_dump(), "below": str(rule.below)}
            for source, index, rule in self.selections
        ]
        _write(pa.Table.from_pylist(rows, schema=SELECTIONS_SCHEMA), out / "selections.parquet")
        _write(pa.Table.from_batches(self.held_out, schema=HELD_OUT_SCHEMA), out / "held_out.parquet")


def write_part(
    whole: Corpus,
    hashed: Mapping[str, Sequence[tuple[Shard, Path]]],
    limits: Limits,
    part: CorpusPart,
    seed: int,
    out: Path,
) -> tuple[CorpusManifest, list[Account]]:
    """Write a part of a corpus into the directory `out`; return its manifest and accounts."""
    written, sources, accounts = _Part(part, seed, limits), [], []
    for source, pairs in hashed.items():
        size = _NOTHING
        for shard, folder in pairs:
            size = size.plus(written.add(shard, read_hashes(folder)))
        stats = whole.source_stats(source)
        amounts: tuple[tuple[Unit, int, int], ...] = (
            ("documents", stats.num_documents, size.num_documents),
            ("bytes", stats.num_bytes, size.num_bytes),
        )
        accounts += [_account(source, unit, came, kept, part) for unit, came, kept in amounts]
        left = {**size._asdict(), "num_quarantined": 0, "quarantined": {}}
        options = next(one.options for one in whole.manifest.sources if one.name == source)
        sources.append(CorpusSource(name=source, options=options, stats=stats.model_copy(update=left)))
    written.write(whole, out)
    manifest = CorpusManifest(shard_bytes=whole.manifest.shard_bytes, sources=sources)
    manifest.save(out)
    return manifest, accounts


def _account(source: str, unit: Unit, came: int, kept: int, part: CorpusPart) -> Account:
    ends = ("kept", "held_out") if part == "training" else ("held_out", "for_training")
    return Account(
        source=source, unit=unit, num_in=came, became=dict(zip(ends, (kept, came - kept), strict=True))
    )


def _size(documents: DocumentHashes, chosen: np.ndarray) -> TextSize:
    return TextSize(int(np.count_nonzero(chosen)), *map(int, documents.sizes[chosen].sum(axis=0)))


def _batch(columns: list[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [column.cast(one.type) for column, one in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _write(table: pa.Table, file: Path) -> None:
    pq.write_table(table, file, compression="zstd")
