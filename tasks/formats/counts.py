"""Pre-token counts on disk: a Parquet file of (pretoken, count), sorted by bytes; a manifest over sources.

    pretoken   binary   the bytes of one pre-token, normalized, special tokens cut out; strictly increasing
    count      uint64   how often it occurs; at least 1

A counts shard is `counts.parquet` and `statistics.json` (`CountsStatistics`). The counts of a corpus are one
`<source>.parquet` a source and `sources.json` (`CountsManifest`), which also says how the text was cut, so
that a trainer can refuse counts that were cut in another way. The same counts give the same bytes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict

from tasks.errors import StoreError
from tasks.formats.manifests import read_model, readable

if TYPE_CHECKING:
    from tokenizer.pretoken_counts import PretokenCounts

MANIFEST_FILE = "sources.json"
STATISTICS_FILE = "statistics.json"
COUNTS_FILE = "counts.parquet"
_SCHEMA = pa.schema([("pretoken", pa.large_binary()), ("count", pa.uint64())])
_ROW_GROUP = 1 << 20


class Cut(BaseModel):
    """How text was cut into pre-tokens: everything that the counts depend on besides the text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    split_pattern: str
    digits: Literal["pattern", "single", "groups_of_three"]
    normalizer: str | None
    special_tokens: tuple[str, ...]


class CountsStatistics(BaseModel):
    """What was counted: documents and bytes of text as read, pre-tokens, and distinct pre-tokens."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_documents: int
    num_bytes: int
    num_pretokens: int
    num_distinct: int


class CountedSource(BaseModel):
    """One source in the manifest; its counts are in `<source>.parquet`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source: str
    statistics: CountsStatistics


class CountsManifest(BaseModel):
    """The content of `sources.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    cut: Cut
    sources: list[CountedSource]


@dataclass(frozen=True)
class Counts:
    """The counts of a corpus: the manifest, and the sources' counts when asked for."""

    path: Path
    manifest: CountsManifest

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the manifest in the directory `path`.

        Raises:
            StoreError: it is missing or broken.
        """
        return cls(path, read_model(path / MANIFEST_FILE, CountsManifest, "counts manifest"))

    @property
    def cut(self) -> Cut:
        """How the text was cut."""
        return self.manifest.cut

    @property
    def sources(self) -> list[str]:
        """Names of the sources, in the corpus' order."""
        return [entry.source for entry in self.manifest.sources]

    def counts(self, source: str) -> "PretokenCounts":
        """The counts of one source.

        Raises:
            StoreError: there is no such source, or its file is broken.
        """
        if source not in self.sources:
            raise StoreError(f"counts: no source '{source}'; there are {', '.join(self.sources)}")
        return read_counts(self.path / f"{source}.parquet")


def write_counts(path: Path, counts: "PretokenCounts") -> None:
    """Write `counts` to the Parquet file `path`; the same counts give the same bytes."""
    pretokens = pa.Array.from_buffers(
        pa.large_binary(),
        len(counts.counts),
        [
            None,
            pa.py_buffer(np.ascontiguousarray(counts.offsets)),
            pa.py_buffer(np.ascontiguousarray(counts.data)),
        ],
    )
    table = pa.Table.from_arrays([pretokens, pa.array(counts.counts, type=pa.uint64())], schema=_SCHEMA)
    pq.write_table(table, path, row_group_size=_ROW_GROUP, compression="zstd", use_dictionary=False)


def read_counts(path: Path) -> "PretokenCounts":
    """The counts in the Parquet file `path`.

    Raises:
        StoreError: the file is missing, is not Parquet, or has other columns.
    """
    # reads kernels: not when a stage is merely listed
    from tokenizer.pretoken_counts import PretokenCounts

    with readable(path, "table of counts"):
        table = pq.read_table(path, schema=_SCHEMA)
    data, offsets = _binary_buffers(table.column("pretoken"))
    return PretokenCounts(data, offsets, table.column("count").to_numpy())


def read_statistics(shard: Path) -> CountsStatistics:
    """What was counted in the counts shard in the directory `shard`.

    Raises:
        StoreError: its statistics are missing or broken.
    """
    return read_model(shard / STATISTICS_FILE, CountsStatistics, "statistics of counts")


def merge_bounded(parts: Iterable["PretokenCounts"]) -> "PretokenCounts":
    """The sum of `parts`, taken one after the other.

    Parts wait until they hold as many entries as the sum so far, and are then merged into it: memory stays
    within a small multiple of the distinct pre-tokens plus one part.
    """
    from tokenizer.pretoken_counts import PretokenCounts

    waiting: list[PretokenCounts] = []
    num_waiting = 0
    for part in parts:
        waiting.append(part)
        num_waiting += len(part)
        if len(waiting) > 1 and num_waiting >= 2 * len(waiting[0]):
            waiting = [PretokenCounts.merge(waiting)]
            num_waiting = len(waiting[0])
    return PretokenCounts.merge(waiting)


def _binary_buffers(column: pa.ChunkedArray) -> tuple[np.ndarray, np.ndarray]:
    """The bytes and offsets (starting at 0) of a large_binary column."""
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.large_binary())
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(array.buffers()[2] or b"", dtype=np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]
