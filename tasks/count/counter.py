"""Count the pre-tokens of documents, and add counts up, in bounded memory.

Counts that exceed the budget are spilled to sorted runs on disk, next to the output, and merged as they are
read; the bytes written do not depend on it. The runs are always deleted afterwards.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tokmill.tasks.core.context import report_progress
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.count.merging import FAN_IN, block_rows, merge_streams
from tokmill.tasks.formats.counts import (
    CountsStatistics,
    PreTokenization,
    See,
    Totals,
    read_parts,
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
    """Counts the pre-tokens of documents, batch by batch."""

    def __init__(self, cut: PreTokenization, memory_bytes: int) -> None:
        self._splitter: Cuts
        self._normalizer: str | TextNormalizer | None
        if cut.sentences is None:
            self._splitter, self._normalizer = compile_pattern(cut.split_pattern, cut.digits), cut.normalizer
        else:
            self._splitter, self._normalizer = SentenceSplitter(cut.sentences), text_normalizer(cut.sentences)
        self._special_tokens = cut.special_tokens
        self._memory_bytes = memory_bytes

    def count(self, batches: "Iterable[DocumentBatch]", path: Path) -> CountsStatistics:
        """Count the pre-tokens of all documents into the file `path`; runs are kept next to it meanwhile."""
        counter, num_documents, num_bytes = PretokenCounter(), 0, 0
        with TemporaryDirectory(prefix=".runs-", dir=path.parent) as folder:
            runs: list[Path] = []
            num_pretokens = 0
            for batch in batches:
                num_documents += len(batch)
                num_bytes += len(batch.data)
                counter.add_documents(
                    batch.data, batch.offsets, self._splitter, self._special_tokens, self._normalizer
                )
                # taking the counts needs the same amount of memory again
                if counter.num_bytes > self._memory_bytes // 2:
                    runs.append(Path(folder) / f"run-{len(runs):06}.parquet")
                    num_pretokens += write_counts(runs[-1], counter.take()).num_pretokens
            if runs:
                runs.append(Path(folder) / "last-run.parquet")
                num_pretokens += write_counts(runs[-1], counter.take()).num_pretokens
                totals = add_up(runs, path, num_pretokens, self._memory_bytes)
            else:
                totals = write_counts(path, counter.take())
        return CountsStatistics(num_documents=num_documents, num_bytes=num_bytes, **totals._asdict())


def add_up(
    paths: Sequence[Path], out: Path, num_pretokens: int, memory_bytes: int, see: See | None = None
) -> Totals:
    """Write the sum of the counts in some files, which must be `num_pretokens`, into the file `out`."""
    number = len(paths)
    with TemporaryDirectory(prefix=".sums-", dir=out.parent) as folder:
        while len(paths) > FAN_IN:
            groups = [paths[first : first + FAN_IN] for first in range(0, len(paths), FAN_IN)]
            paths = [Path(folder) / f"{len(paths)}-{number}.parquet" for number in range(len(groups))]
            for group, path in zip(groups, paths, strict=True):
                num_rows = block_rows(group, memory_bytes)
                write_parts(path, merge_streams(read_parts(each, num_rows) for each in group))
        totals = write_parts(out, merge_streams(_reported(paths, memory_bytes)), see)
    if totals.num_pretokens != num_pretokens:
        raise StoreError(
            f"count: {number} files of counts with {num_pretokens} pre-tokens add up to "
            f"{totals.num_pretokens}; verify the store, and count again"
        )
    return totals


def _reported(paths: Sequence[Path], memory_bytes: int) -> "list[Iterator[PretokenCounts]]":
    """Return streams of some files that report what was read of them as progress."""
    num_rows, done = block_rows(paths, memory_bytes), 0
    total = sum(size_of(path).num_distinct for path in paths)

    def watched(path: Path) -> "Iterator[PretokenCounts]":
        nonlocal done
        for block in read_parts(path, num_rows):
            done += len(block)
            report_progress(done, total, "counts")
            yield block

    return [watched(path) for path in paths]
