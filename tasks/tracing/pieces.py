"""Find the pieces of given documents among all packed pieces, one packed shard at a time."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.packed.layout import ShardFiles
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.formats.packed.shards import PieceRows
from tokmill.tasks.tracing.members import Document, Members
from tokmill.tasks.tracing.origins import Origins


class Wanted:
    """A set of documents by source, shard and ordinal, as tables of pieces refer to them.

    Args:
        sources: the packed artifact's sources; a piece has the index of its source.
        documents: the documents to find.
    """

    def __init__(self, sources: Sequence[str], documents: Sequence[Document]) -> None:
        at = {source: index for index, source in enumerate(sources)}
        its = [document for document in documents if document.source in at]
        self._members = Members(
            np.array([at[one.source] for one in its], dtype=np.uint64),
            np.array([one.shard for one in its], dtype=np.uint64),
            np.array([one.ordinal for one in its], dtype=np.uint64),
        )

    def among(self, pieces: PieceRows) -> NDArray[np.bool_]:
        """Whether each piece belongs to one of the documents: bool [p]."""
        columns = pieces.columns
        return self._members.among(columns["source"], columns["shard"], columns["ordinal"])


def pieces_of(origins: Origins, documents: Sequence[Document]) -> Iterator[dict[str, int]]:
    """Yield every piece of the documents, in order of sequence and start: the columns of `pieces-*.parquet`.

    Raises:
        StoreError: a table of pieces is missing or broken.
    """
    reader: PackedReader = origins.reader
    wanted = Wanted(reader.manifest.sources, documents)
    for shard in reader.manifest.shards:
        pieces = PieceRows.open(ShardFiles(origins.path, shard.index), reader.manifest)
        rows = np.flatnonzero(wanted.among(pieces))
        columns = {name: values[rows].tolist() for name, values in pieces.columns.items()}
        yield from (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
