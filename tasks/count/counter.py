"""Count the pre-tokens of documents, and add counts up, in bounded memory.

Laws. The bytes written do not depend on the memory budget: counts are sums, sorted by pre-token. Counts that
exceed the budget are spilled to sorted runs on disk, next to the output, and merged as they are read
(`tasks.count.merging`). The runs are always deleted afterwards.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tokmill.tasks.core.context import report_progress
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.count.merging import FAN_IN, block_rows, merge_streams, streams_of
from tokmill.tasks.formats.counts import (
    CountsStatistics,
    PreTokenization,
    Totals,
    size_of,
    write_counts,
    write_parts,
)
from tokmill.tokenizer.counting import Cuts, PretokenCounter
from tokmill.tokenizer.pipeline.model import TextNormalizer
from tokmill.tokenizer.sentences.options import SentenceSplitter, text_normalizer
from tokmill.tokenizer.splitting import compile_pattern

if TYPE_CHECKING:
    from tokmill.tasks.formats.text.documents import DocumentBatch
    from tokmill.tokenizer.core.pretoken_counts import PretokenCounts


class DocumentCounter:
    """Counts the pre-tokens of documents, batch by batch.

    Attributes:
        num_documents: documents counted so far.
        num_bytes: bytes of their text, as read.
    """

    def __init__(self, cut: PreTokenization, memory_bytes: int) -> None:
        """Start with no documents."""
        self._cut = cut
        self._splitter, self._normalizer = _reading(cut)
        self._memory_bytes = memory_bytes
        self._counter = PretokenCounter()
        self.num_documents = 0
        self.num_bytes = 0

    def count(self, batches: "Iterable[DocumentBatch]", path: Path) -> CountsStatistics:
        """Count the pre-tokens of all documents into the file `path`; runs are kept next to it meanwhile."""
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
    """Write the sum of the counts in some files into the file `out`."""
    with TemporaryDirectory(prefix=".sums-", dir=out.parent) as folder:
        passed = _passed(paths, Path(folder), memory_bytes)
        totals = write_parts(out, merge_streams(_reported(passed, memory_bytes)))
    if totals.num_pretokens != num_pretokens:
        raise StoreError(
            f"count: {len(paths)} files of counts with {num_pretokens} pre-tokens add up to "
            f"{totals.num_pretokens}; verify the store, and count again"
        )
    return totals


def _passed(paths: Sequence[Path], folder: Path, memory_bytes: int) -> Sequence[Path]:
    """Add up files in groups, into the scratch `folder`, until at most `FAN_IN` are left."""
    while len(paths) > FAN_IN:
        groups = [paths[first : first + FAN_IN] for first in range(0, len(paths), FAN_IN)]
        sums = [folder / f"{len(paths)}-{number}.parquet" for number in range(len(groups))]
        for group, path in zip(groups, sums, strict=True):
            write_parts(path, merge_streams(streams_of(group, block_rows(group, memory_bytes))))
        paths = sums
    return paths


def _reported(paths: Sequence[Path], memory_bytes: int) -> "list[Iterator[PretokenCounts]]":
    """Return streams of some files that report what was read of them as progress."""
    num_rows, done = block_rows(paths, memory_bytes), 0
    total = sum(size_of(path).num_distinct for path in paths)

    def watched(blocks: "Iterator[PretokenCounts]") -> "Iterator[PretokenCounts]":
        nonlocal done
        for block in blocks:
            done += len(block)
            report_progress(done, total, "counts")
            yield block

    return [watched(blocks) for blocks in streams_of(paths, num_rows)]
