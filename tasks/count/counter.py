"""Count the pre-tokens of documents, and add counts up, in bounded memory.

Laws. The bytes written do not depend on the memory budget: counts are sums, sorted by pre-token. Counts that
exceed the budget are spilled to sorted runs on disk, next to the output, and DuckDB adds them up. The runs
are always deleted afterwards.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import duckdb

from tokmill.tasks.core.database import connect
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.counts import (
    CountsStatistics,
    PreTokenization,
    Totals,
    merge_bounded,
    num_bytes_in_memory,
    read_counts,
    read_parts,
    write_counts,
    write_parts,
)
from tokmill.tokenizer.counting import Cuts, PretokenCounter
from tokmill.tokenizer.pipeline.model import TextNormalizer
from tokmill.tokenizer.sentences.text import SentenceSplitter, text_normalizer
from tokmill.tokenizer.splitting import compile_pattern

if TYPE_CHECKING:
    from tokmill.tasks.formats.text.documents import DocumentBatch
    from tokmill.tokenizer.core.pretoken_counts import PretokenCounts

_LEAST_FOR_DUCKDB = 256 << 20
_ROWS_AT_A_TIME = 1 << 17


class DocumentCounter:
    """Counts the pre-tokens of documents, batch by batch.

    Attributes:
        num_documents: documents counted so far.
        num_bytes: bytes of their text, as read.
    """

    def __init__(self, cut: PreTokenization, memory_bytes: int) -> None:
        """Start with no documents.

        Args:
            cut: how text is cut into pre-tokens.
            memory_bytes: memory that the counts may use.
        """
        self._cut = cut
        self._splitter, self._normalizer = _reading(cut)
        self._memory_bytes = memory_bytes
        self._counter = PretokenCounter()
        self.num_documents = 0
        self.num_bytes = 0

    def count(self, batches: "Iterable[DocumentBatch]", path: Path) -> CountsStatistics:
        """Count the pre-tokens of all documents into the file `path`; runs are kept next to it meanwhile.

        Raises:
            StoreError: runs cannot be added up.
        """
        with TemporaryDirectory(prefix=".runs-", dir=path.parent) as folder:
            runs: list[Path] = []
            num_pretokens = 0
            for batch in batches:
                self._add(batch)
                if (
                    self._counter.num_bytes > self._memory_bytes // 2
                ):  # taking the counts needs the same amount again
                    runs.append(Path(folder) / f"run-{len(runs):06}.parquet")
                    num_pretokens += write_counts(runs[-1], self._counter.take()).num_pretokens
            if not runs:
                return self._statistics(write_counts(path, self._counter.take()))
            runs.append(Path(folder) / "last-run.parquet")
            num_pretokens += write_counts(runs[-1], self._counter.take()).num_pretokens
            return self._statistics(add_up(runs, path, num_pretokens, self._memory_bytes))

    def _add(self, batch: "DocumentBatch") -> None:
        self.num_documents += len(batch)
        self.num_bytes += len(batch.data)
        self._counter.add_documents(
            batch.data, batch.offsets, self._splitter, self._cut.special_tokens, self._normalizer
        )

    def _statistics(self, totals: Totals) -> CountsStatistics:
        return CountsStatistics(
            num_documents=self.num_documents, num_bytes=self.num_bytes, **totals._asdict()
        )


def _reading(cut: PreTokenization) -> tuple[Cuts, str | TextNormalizer | None]:
    """Return what cuts text into pre-tokens, and the normalizer before it."""
    if cut.sentences is not None:
        return SentenceSplitter(cut.sentences), text_normalizer(cut.sentences)
    return compile_pattern(cut.split_pattern, cut.digits), cut.normalizer


def add_up(paths: Sequence[Path], out: Path, num_pretokens: int, memory_bytes: int) -> Totals:
    """Write the sum of the counts in some files into the file `out`.

    Args:
        paths: files of counts.
        out: the file to write.
        num_pretokens: how many pre-tokens were counted in all of them.
        memory_bytes: memory that this may use; if that is too little, DuckDB adds up with the help of
            the disk, in at least 256 MiB.

    Raises:
        StoreError: a file is missing or broken, DuckDB lacks memory or disk, or pre-tokens were lost.
    """
    if num_bytes_in_memory(paths) <= memory_bytes:
        totals = write_counts(out, merge_bounded(map(read_counts, paths)))
    else:
        with _added_up_on_disk(paths, out.parent, memory_bytes) as parts:
            totals = write_parts(out, parts)
    if totals.num_pretokens != num_pretokens:
        raise StoreError(
            f"count: {len(paths)} files of counts with {num_pretokens} pre-tokens add up to "
            f"{totals.num_pretokens}; verify the store, and count again"
        )
    return totals


@contextmanager
def _added_up_on_disk(
    paths: Sequence[Path], folder: Path, memory_bytes: int
) -> "Iterator[Iterator[PretokenCounts]]":
    """Let DuckDB add up the counts of some files; yield the sums, which are deleted after the block."""
    memory = max(memory_bytes, _LEAST_FOR_DUCKDB)
    with TemporaryDirectory(prefix=".sums-", dir=folder) as scratch:
        sums = Path(scratch) / "sums.parquet"
        limit = f"{memory >> 20}MiB"
        try:
            with connect(threads=1, memory_limit=limit, temp_directory=scratch) as database:
                found = database.read_parquet([str(path) for path in paths])
                added = found.aggregate('pretoken, sum("count")::UBIGINT AS "count"', "pretoken")
                added.order("pretoken").write_parquet(str(sums), row_group_size=_ROWS_AT_A_TIME)
        except duckdb.Error as error:
            raise StoreError(
                f"count: {len(paths)} files of counts cannot be added up in {memory >> 20} MiB of memory "
                f"({error}); allow more memory, or make room on the disk of {folder}"
            ) from error
        yield read_parts(sums, _ROWS_AT_A_TIME)
