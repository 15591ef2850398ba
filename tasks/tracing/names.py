"""Names of documents, and finding documents by name.

    SOURCE:ID          the value of the source's id column, as text
    SOURCE:FILE:ROW    the file's name in the corpus, and the row in the file, from 0
    SOURCE:FILE        a file that is a single document (format text)

If a name is both an id and a file with a row, it means the id, of every document that has it. Ids are stored
only in the source's files, so looking them up reads the source once.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokmill.tasks.core.errors import TracingError
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.text.shards import FileSegment, Shard, read_shard
from tokmill.tasks.formats.text.sources import nearest
from tokmill.tasks.store.names import shortened
from tokmill.tasks.tracing.origins import Origins
from tokmill.tasks.tracing.places import Place

_READERS = 4
_SHOWN = 5
_MOST_ROW_DIGITS = 18


class FoundDocument(NamedTuple):
    """A document that was found by name, and its place."""

    source: str  # name of the source
    shard: int  # index of its shard, in the corpus and in the encoding
    ordinal: int  # its ordinal in the shard
    name: str  # the name by which it was found
    file: str  # its file's name in the corpus
    row: int  # its row in the file, from 0

    @property
    def place(self) -> Place:
        """Its place in the corpus."""
        return Place(self.source, self.shard, self.ordinal, self.ordinal + 1)


def find_documents(origins: Origins, names: Iterable[str]) -> list[FoundDocument]:
    """Find the documents with these names, in order of source, shard and ordinal.

    Raises:
        TracingError: a name has no source or matches no document; the message lists the first few such names.
        SourceError: ids must be looked up, and a file is missing or has changed since it was ingested.
    """
    corpus = origins.corpus
    wanted: dict[str, dict[str, str]] = {}
    for name in names:
        source, colon, rest = name.partition(":")
        if not colon or source not in corpus.sources:
            raise TracingError(
                f"{shortened(name)} names no document: write SOURCE:ID or SOURCE:FILE:ROW, where SOURCE is "
                f"one of {', '.join(nearest(source, corpus.sources))}"
            )
        wanted.setdefault(source, {})[rest] = name
    found: list[FoundDocument] = []
    for source, rests in wanted.items():
        its = _by_id(origins, source, rests)
        known = {one.name for one in its}
        left = {rest: name for rest, name in rests.items() if name not in known}
        segments: dict[str, list[tuple[Shard, FileSegment]]] = {}
        for shard in corpus.shards(source):
            for segment in shard.segments:
                segments.setdefault(segment.file, []).append((shard, segment))
        found += [*its, *filter(None, (_by_place(corpus, segments, *one) for one in left.items()))]
    known = {one.name for one in found}
    if unknown := [name for rests in wanted.values() for name in rests.values() if name not in known]:
        raise TracingError(_unknown(corpus, sorted(unknown)))
    return sorted(found)


def _by_id(origins: Origins, source: str, rests: dict[str, str]) -> list[FoundDocument]:
    shards = origins.corpus.shards(source)
    if not shards or shards[0].options.id_column is None:
        return []
    ids = pa.array(list(rests), type=pa.large_string())

    def found_in(shard: Shard) -> list[FoundDocument]:
        found = list[FoundDocument]()
        for ordinals, its in _ids_in(origins, shard):
            at = np.flatnonzero(pc.is_in(its, value_set=ids).to_numpy(zero_copy_only=False))
            for ordinal, own in zip(ordinals[at].tolist(), its.take(pa.array(at)).to_pylist(), strict=True):
                found.append(_document(origins.corpus, shard, ordinal, rests[own]))
        return found

    with ThreadPoolExecutor(_READERS, thread_name_prefix="trace") as pool:
        return [document for part in pool.map(found_in, shards) for document in part]


def _ids_in(origins: Origins, shard: Shard) -> Iterator[tuple[NDArray[Any], pa.Array]]:
    """Yield ordinals and ids of a shard's documents, a batch at a time."""
    for batch in read_shard(shard.whole, {shard.source: origins.root_of(shard)}):
        if batch.ids is not None:
            yield batch.ordinals, batch.ids.cast(pa.large_string())


def ids_of(origins: Origins, shard: Shard, ordinals: Collection[int]) -> dict[int, str]:
    """The ids of documents of a shard, by ordinal; empty if the source has no id column."""
    if shard.options.id_column is None:
        return {}
    found: dict[int, str] = {}
    for every, ids in _ids_in(origins, shard):
        at = np.flatnonzero(np.isin(every, list(ordinals)))
        pairs = zip(every[at].tolist(), ids.take(pa.array(at)).to_pylist(), strict=True)
        found |= {ordinal: own for ordinal, own in pairs if own is not None}
    return found


def _by_place(
    corpus: Corpus, segments: Mapping[str, Sequence[tuple[Shard, FileSegment]]], rest: str, name: str
) -> FoundDocument | None:
    """The document named by `FILE:ROW`, or by `FILE` alone where that is a single document."""
    file, _, row = rest.rpartition(":")
    places = [(file, int(row))] if is_row(row) else []
    for wanted, wanted_row in [*places, (rest, 0)]:
        for shard, segment in segments.get(wanted, ()):
            at = wanted_row - segment.first_row
            if 0 <= at < segment.num_rows and (wanted != rest or segment.format == "text"):
                return _document(corpus, shard, segment.first_ordinal + at, name)
    return None


def is_row(text: str) -> bool:
    """Whether what follows the last colon of a name can be a row; Python reads at most 4,300 digits."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_ROW_DIGITS


def _document(corpus: Corpus, shard: Shard, ordinal: int, name: str) -> FoundDocument:
    file, row = corpus.lookup(shard.source, shard.index, ordinal)
    return FoundDocument(shard.source, shard.index, ordinal, name, file, row)


def _unknown(corpus: Corpus, names: list[str]) -> str:
    source, _, rest = names[0].partition(":")
    more = ", ".join(map(shortened, names[1 : _SHOWN + 1]))
    more += ", …" if len(names) > _SHOWN + 1 else ""
    others = f" (and {len(names) - 1} more: {more})" if more else ""
    for row in corpus.table("quarantine").to_pylist():
        # the corpus's shards do not number a bad document at their end
        if row["source"] == source and f"{row['file']}:{row['row']}" == rest:
            reason = f"was quarantined when the text was ingested: {row['reason']}"
            return f"{shortened(names[0])} {reason}{others}"
    column = corpus.shards(source)[0].options.id_column if corpus.shards(source) else None
    ids = f"no document has this {column}, and" if column else "the source names no id column, and"
    file = rest.rpartition(":")[0] or rest
    files = corpus.table("files").to_pylist()
    rows = {
        row["name"]: row["num_documents"] + row["num_quarantined"] for row in files if row["source"] == source
    }
    if file in rows:
        place = f"{file} has the rows 0 to {rows[file] - 1}"
    else:
        like = ", ".join(nearest(file, sorted(rows))[:_SHOWN])
        place = f"there is no file {shortened(file)}; nearest are {like}"
    return f"{shortened(names[0])} is not a document of the corpus: {ids} {place}{others}"
