"""Pre-token counts on disk: a Parquet file of (pretoken, count), sorted by bytes; a manifest over sources.

Pre-tokens are normalized, with special tokens cut out, and strictly increase; counts are at least 1. The same
counts give the same bytes. docs/formats.md lists the files.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import WithOptional
from tokmill.tasks.formats.files.arrays import columns_of, read_parquet, schema_of, write_row_groups
from tokmill.tasks.formats.files.manifests import Entry, Manifest, readable
from tokmill.tasks.formats.text.sources import SourceName
from tokmill.tokenizer.sentences.options import SentenceText

if TYPE_CHECKING:
    from tokmill.tokenizer.core.pretoken_counts import PretokenCounts

COUNTS_FILE = "counts.parquet"
_SCHEMA = pa.schema([("pretoken", pa.large_binary()), ("count", pa.uint64())])
_COUNTS = schema_of(count="uint64")
_ROW_GROUP = 1 << 20
_READ_BYTES = 1 << 16
_SAMPLED_GROUPS = 8
_TOP_BITS, _CONTINUES = np.uint8(0xC0), np.uint8(0x80)  # of the further bytes of a character
_LENGTH_BYTES = 4  # of a pre-token's length in Parquet


class PreTokenization(WithOptional):
    """How text was cut into pre-tokens: everything that the counts depend on besides the text."""

    optional = frozenset({"sentences"})

    split_pattern: str
    digits: Literal["pattern", "single", "groups_of_three", "groups_of_three_from_right"]
    normalizer: str | None
    special_tokens: tuple[str, ...]
    sentences: SentenceText | None = None


class CountsStatistics(Manifest):
    """Numbers of documents, bytes of text as read, pre-tokens, and distinct pre-tokens, of a shard."""

    FILE: ClassVar[str] = "statistics.json"
    TITLE: ClassVar[str] = "statistics of counts"

    num_documents: int
    num_bytes: int
    num_pretokens: int
    num_distinct: int


class CountedSource(Entry):
    """One source in the manifest; its counts are in `<source>.parquet`."""

    source: SourceName
    statistics: CountsStatistics


class CountsManifest(Manifest):
    """The content of `sources.json`."""

    FILE: ClassVar[str] = "sources.json"
    TITLE: ClassVar[str] = "counts manifest"

    cut: PreTokenization
    sources: list[CountedSource]


@dataclass(frozen=True)
class Counts:
    """The counts of a corpus: the manifest, and the sources' counts, which are read on demand."""

    path: Path
    manifest: CountsManifest

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the manifest in the directory `path`."""
        return cls(path, CountsManifest.open(path))

    @property
    def cut(self) -> PreTokenization:
        """How the text was cut."""
        return self.manifest.cut

    @property
    def sources(self) -> list[str]:
        """Names of the sources, in the corpus's order."""
        return [entry.source for entry in self.manifest.sources]

    def counts(self, source: str) -> "PretokenCounts":
        """The counts of one source."""
        return read_counts(self._file(source))

    def parts(self, source: str, num_rows: int, first: int = 0) -> "Iterator[PretokenCounts]":
        """Yield the counts of one source, `num_rows` at a time, from part `first` on."""
        return read_parts(self._file(source), num_rows, first)

    def size(self, source: str) -> "Size":
        """The size of one source's counts, by the file's metadata."""
        return size_of(self._file(source))

    def chars_per_byte(self, source: str) -> float:
        """About how many characters a byte of one source's pre-tokens has; 1 if they are empty."""
        num_chars, num_bytes, path = 0, 0, self._file(source)
        with readable(path, "table of counts"), pq.ParquetFile(path) as file:
            step = -(-file.num_row_groups // _SAMPLED_GROUPS) or 1
            for number in range(0, file.num_row_groups, step):
                column = file.read_row_group(number, columns=["pretoken"]).column(0)
                for chunk in column.cast(pa.large_binary()).chunks:
                    data, _ = _buffers(chunk)
                    num_chars, num_bytes = num_chars + count_chars(data), num_bytes + len(data)
        return num_chars / num_bytes if num_bytes else 1.0

    def _file(self, source: str) -> Path:
        if source not in self.sources:
            raise StoreError(f"counts: no source '{source}'; there are {', '.join(self.sources)}")
        return self.path / f"{source}.parquet"


class Totals(NamedTuple):
    """Totals of a file of counts: pre-tokens, and distinct pre-tokens."""

    num_pretokens: int
    num_distinct: int


def write_counts(path: Path, counts: "PretokenCounts") -> Totals:
    """Write `counts` to the Parquet file `path`; the same counts give the same bytes."""
    return write_parts(path, [counts])


See: TypeAlias = Callable[["PretokenCounts"], object]
"""What sees each part of the counts that are written."""


def write_parts(path: Path, parts: "Iterable[PretokenCounts]", see: See | None = None) -> Totals:
    """Write counts that come in sorted parts; the bytes do not depend on the division into parts."""
    num_pretokens, num_distinct, how = 0, 0, {"use_dictionary": False}
    with write_row_groups(path, _SCHEMA, _ROW_GROUP, **how) as append:
        for part in parts:
            num_pretokens += int(part.counts.sum())
            num_distinct += len(part)
            append(_table(part))
            if see is not None:
                see(part)
    if not num_distinct:
        pq.write_table(_SCHEMA.empty_table(), path, compression="zstd", **how)
    return Totals(num_pretokens, num_distinct)


def _table(counts: "PretokenCounts") -> pa.Table:
    """Wrap counts as an Arrow table, without a copy."""
    buffers = [pa.py_buffer(np.ascontiguousarray(array)) for array in (counts.offsets, counts.data)]
    pretokens = pa.Array.from_buffers(pa.large_binary(), len(counts.counts), [None, *buffers])
    return pa.Table.from_arrays([pretokens, pa.array(counts.counts, type=pa.uint64())], schema=_SCHEMA)


def read_counts(path: Path) -> "PretokenCounts":
    """The counts in the Parquet file `path`."""
    # imports kernels: not needed when a stage is only listed
    from tokmill.tokenizer.core.pretoken_counts import PretokenCounts

    with readable(path, "table of counts"):
        table = read_parquet(path)
    counts = columns_of(path, table, _COUNTS)["count"]
    pretokens = table.column("pretoken").cast(pa.large_binary()).combine_chunks()
    return PretokenCounts(*_buffers(pretokens), counts)


def read_parts(path: Path, num_rows: int, first: int = 0) -> "Iterator[PretokenCounts]":
    """Yield the counts in the Parquet file `path`, `num_rows` at a time, from part `first` on.

    `num_rows` must divide a row group if `first` is not 0.
    """
    from tokmill.tokenizer.core.pretoken_counts import PretokenCounts

    last: bytes | None = None
    # a row group is read page by page; with pre_buffer it would be in memory as a whole
    how = {"buffer_size": _READ_BYTES, "pre_buffer": False}
    with readable(path, "table of counts"), pq.ParquetFile(path, **how) as file:
        groups, skipped = divmod(first, _ROW_GROUP // num_rows or 1)
        left = range(groups, file.num_row_groups)
        for batch in islice(file.iter_batches(num_rows, left, use_threads=False), skipped, None):
            pretokens = batch.column("pretoken").cast(pa.large_binary())
            increases = pc.all(pc.less(pretokens[:-1], pretokens[1:]), min_count=0).as_py()
            if not increases or (last is not None and last >= pretokens[0].as_py()):
                raise StoreError(f"{path}: pre-tokens must increase by their bytes; make the file again")
            last = pretokens[-1].as_py()
            yield PretokenCounts(*_buffers(pretokens), columns_of(path, batch, _COUNTS)["count"])


class Size(NamedTuple):
    """How many distinct pre-tokens there are, and their bytes."""

    num_distinct: int
    num_bytes: int


def size_of(path: Path) -> Size:
    """Return the size of a file of counts, without reading its rows."""
    with readable(path, "table of counts"):
        found = pq.read_metadata(path)
    columns = [found.row_group(number).column(0) for number in range(found.num_row_groups)]
    num_bytes = sum(column.total_uncompressed_size for column in columns)
    return Size(found.num_rows, max(num_bytes - _LENGTH_BYTES * found.num_rows, 0))


def count_chars(data: np.ndarray) -> int:
    """Return how many characters begin in UTF-8 bytes."""
    return int(np.count_nonzero((data & _TOP_BITS) != _CONTINUES))


def _buffers(array: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The bytes and offsets (starting at 0) of a large_binary array."""
    offsets = np.frombuffer(array.buffers()[1], dtype=np.int64)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(array.buffers()[2] or b"", dtype=np.uint8)
    return data[offsets[0] : offsets[-1]], offsets - offsets[0]


class BalancedSource(Entry):
    """One source."""

    source: str
    num_documents: int
    num_bytes: int
    natural_share: float  # its share of the corpus, in the balance's unit
    asked_share: float | None = None  # its share by the rule alone, without `max_repetition`
    share: float  # its share after balancing
    factor: float  # how often its text counts: balanced amount / natural amount; 0 leaves it out
    capped: bool  # whether `max_repetition` limited its share


class Balance(Manifest):
    """The content of `balance.json`, the weight of each source's text.

    Shares have 12 decimals and add up to 1; factors have 12 significant digits. Both are written as JSON
    numbers that read back as the same decimal number.
    """

    FILE: ClassVar[str] = "balance.json"
    TITLE: ClassVar[str] = "balance"

    method: str  # the rule
    temperature: float | None  # T if the rule is "temperature", else None
    unit: Literal["bytes", "documents"]  # of sizes, shares and `total`
    max_repetition: float | None  # the cap on every factor, or None
    total: int  # size of the balanced corpus
    # Training counts every pre-token `factor` × this many times, so that rounding to whole counts changes no
    # share.
    resolution: int = 1
    warnings: list[str] = Field(default=[])
    sources: list[BalancedSource]  # in the corpus's order

    @property
    def factors(self) -> dict[str, Decimal]:
        """The exact decimal factor of each source."""
        return {entry.source: Decimal(repr(entry.factor)) for entry in self.sources}
