"""Places of documents in corpora, and what has them: encoded shards, plans of mixtures, tables of pieces."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.encoded import Encoded, EncodedShard
from tokmill.tasks.formats.mixture import Mixture
from tokmill.tasks.formats.packed.manifest import PackedManifest, TakenDocument
from tokmill.tasks.formats.packed.pieces import PieceRows
from tokmill.tasks.store.record import Record
from tokmill.tasks.store.store import Store


class Place(NamedTuple):
    """A stretch of documents of a corpus."""

    source: str  # the source's name
    shard: int  # the index of the shard in the source
    first: int  # the ordinal of the first document in the shard, or its position in the encoded shard
    end: int  # that after the last one
    text: str = ""  # the digest of the shard's text, where it is known


def places_of(documents: Iterable[TakenDocument]) -> list[Place]:
    """Return the places of documents."""
    return [Place(one.source, one.shard, one.ordinal, one.ordinal + 1) for one in documents]


def places_in(corpus: Corpus, rows: Mapping[tuple[str, str], Iterable[int] | None]) -> Iterator[Place]:
    """Yield where rows of files, by source and name, are in a corpus; None stands for all rows."""
    shards = corpus.table("shards").to_pylist()
    texts = {(each["source"], each["shard"]): each["digest"] for each in shards}
    for part in corpus.table("segments").to_pylist():
        if (part["source"], part["file"]) not in rows:
            continue
        first, shard = part["first_ordinal"], (part["source"], part["shard"])
        wanted = rows[part["source"], part["file"]]
        if wanted is None:
            yield Place(*shard, first, first + part["num_rows"], texts[shard])
            continue
        for row in wanted:
            if 0 <= row - part["first_row"] < part["num_rows"]:
                ordinal = first + row - part["first_row"]
                yield Place(*shard, ordinal, ordinal + 1, texts[shard])


def encoded_places(shard: EncodedShard, places: Sequence[Place]) -> list[Place]:
    """Return places in a shard by positions instead of ordinals, as far as the documents were encoded."""
    bounds = np.searchsorted(shard.ordinals, [(place.first, place.end) for place in places]).tolist()
    pairs = zip(places, bounds, strict=True)
    return [place._replace(first=first, end=end) for place, (first, end) in pairs if first < end]


def places_in_encoded(encoded: Encoded, shards: Sequence[Path], places: Sequence[Place]) -> Iterator[Place]:
    """Yield places by positions in the encoded shards, which are in the manifest's order."""
    by_shard: dict[tuple[str, int], list[Place]] = {}
    for place in places:
        by_shard.setdefault((place.source, place.shard), []).append(place)
    for source, entry, path in encoded.pair(shards):
        if its := by_shard.get((source, entry.index)):
            yield from encoded_places(EncodedShard.open(path), its)


class DocumentSet:
    """Documents at some places, as columns of a table with the sources `names` refer to them."""

    def __init__(self, names: Sequence[str], places: Iterable[Place]) -> None:
        at = {name: index for index, name in enumerate(names)}
        its = [(at[one.source], one.shard, one.first, one.end) for one in places if one.source in at]
        sources, shards, firsts, ends = np.array(its, dtype=np.int64).reshape(-1, 4).T
        counts = ends - firsts
        starts = np.repeat(firsts - np.cumsum(counts) + counts, counts)
        pairs = np.repeat(_paired(sources, shards), counts)
        self._pairs = np.unique(pairs)
        self._keys = np.unique(self._keyed(pairs, starts + np.arange(len(starts))))

    def among(self, sources: NDArray[Any], shards: NDArray[Any], numbers: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether each row belongs to one of the documents: bool [n]."""
        pairs = _paired(sources, shards)
        found: NDArray[np.bool_] = np.isin(pairs, self._pairs)
        if found.any():
            found[found] = np.isin(self._keyed(pairs[found], numbers[found]), self._keys)
        return found

    def among_pieces(self, pieces: PieceRows) -> NDArray[np.bool_]:
        """Whether each piece belongs to one of the documents: bool [p]."""
        return self.among(*(pieces.columns[name] for name in ("source", "shard", "ordinal")))

    def _keyed(self, pairs: NDArray[np.uint64], numbers: NDArray[Any]) -> NDArray[np.uint64]:
        """A unique key for each (source, shard) pair and number."""
        at = np.searchsorted(self._pairs, pairs).astype(np.uint64)
        return numbers.astype(np.uint64) * np.uint64(max(1, len(self._pairs))) + at


def _paired(sources: NDArray[Any], shards: NDArray[Any]) -> NDArray[np.uint64]:
    pairs: NDArray[np.uint64] = sources.astype(np.uint64) << np.uint64(32) | shards.astype(np.uint64)
    return pairs


def pieces_at(path: Path, places: Iterable[Place]) -> Iterator[dict[str, NDArray[Any]]]:
    """Yield for each shard of the packed artifact in `path` the pieces of the documents at some places."""
    manifest = PackedManifest.open(path)
    wanted = DocumentSet(manifest.sources, places)
    for shard in manifest.shards:
        pieces = PieceRows.open(path, shard.index, manifest)
        rows = np.flatnonzero(wanted.among_pieces(pieces))
        yield {name: values[rows] for name, values in pieces.columns.items()}


def in_plan(store: Store, record: Record, places: Sequence[Place]) -> bool:
    """Whether the plan of a mixture has a row of one of the documents at some places."""
    mixture = Mixture.open(store.place(record.ref))
    encoded = Encoded.open(store.place(record.refs("encoded")[0]))
    shards = [store.place(ref) for ref in record.refs("shards")]
    wanted = DocumentSet(mixture.sources, places_in_encoded(encoded, shards, places))
    return any(bool(wanted.among(one.source, one.shard, one.document).any()) for one in mixture.batches())
