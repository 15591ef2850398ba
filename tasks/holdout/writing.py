"""Write one part of a corpus: the same files and segments, with fewer documents in each shard."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokmill.tasks.core.stage import Account, Unit
from tokmill.tasks.formats.corpus import (
    HELD_OUT_SCHEMA,
    MANIFEST_FILE,
    SELECTIONS_SCHEMA,
    Corpus,
    CorpusSource,
    Manifest,
    Shard,
)
from tokmill.tasks.formats.document_hashes import DocumentHashes, read_hashes
from tokmill.tasks.formats.files.manifests import write_model
from tokmill.tasks.formats.text.selection import (
    CorpusPart,
    Selection,
    draws_of,
    is_held_out,
    selected_digest,
)
from tokmill.tasks.holdout.choosing import Limits
from tokmill.tasks.kernels.text_size import TextSize
from tokmill.tokenizer.core.stopping import raise_if_stopped

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
) -> tuple[Manifest, list[Account]]:
    """Write a part of a corpus into the directory `out`; return its manifest and accounts.

    Raises:
        StoreError: a list of hashes is missing or broken.
    """
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
    manifest = Manifest(shard_bytes=whole.manifest.shard_bytes, sources=sources)
    write_model(out / MANIFEST_FILE, manifest)
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
