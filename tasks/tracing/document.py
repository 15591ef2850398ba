"""Find the pieces of a document: their sequences and places, or the reason why there are none."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tokmill.tasks.formats.packed.pieces import PieceRows
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.formats.text.quarantine import place_of
from tokmill.tasks.tracing.absence import why_absent
from tokmill.tasks.tracing.document_names import FoundDocument, find_documents
from tokmill.tasks.tracing.origins import Document, Members, Origins


class PlacedPiece(BaseModel):
    """A piece of the document.

    Attributes:
        sequence: the sequence that holds it.
        start, length: its place in the sequence, in tokens.
        document_start: token of the document at which it starts.
        num_document_tokens: tokens of the document in the piece.
        epoch: number of the pass through the source, from 0.
    """

    model_config = ConfigDict(frozen=True)

    sequence: int
    start: int
    length: int
    document_start: int
    num_document_tokens: int
    epoch: int


class TracedDocument(BaseModel):
    """A document and its pieces, in order of sequence.

    Attributes:
        name: the name by which it was found.
        source, file, row: its place; rows count from 0.
        place: file and row, for display.
        shard, ordinal: its place in the corpus and the encoding.
        document_length: its tokens, including the end token; 0 if it was not encoded.
        absent: why no sequence has a piece of it; None if one has.
        pieces: all its pieces.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    source: str
    file: str
    row: int
    place: str
    shard: int
    ordinal: int
    document_length: int
    absent: str | None
    pieces: list[PlacedPiece]


def trace_document(origins: Origins, name: str) -> list[TracedDocument]:
    """Trace the documents with a name; there are several if an id is not unique.

    Raises:
        TracingError: no document has this name.
        SourceError: ids must be looked up, and a file is missing or has changed since it was ingested.
        StoreError: an artifact that the packed one was made from is missing or damaged.
    """
    return [_traced(origins, document) for document in find_documents(origins, [name])]


def _traced(origins: Origins, document: FoundDocument) -> TracedDocument:
    pieces = [
        PlacedPiece(
            num_document_tokens=row["length"] - (3 if row.get("fim") else 0),
            **{name: row[name] for name in ("sequence", "start", "length", "document_start", "epoch")},
        )
        for row in pieces_of(origins, [document])
    ]
    shard = origins.corpus.shards(document.source)[document.shard]
    form = next(segment.format for segment in shard.segments if segment.file == document.file)
    return TracedDocument(
        name=document.name,
        source=document.source,
        file=document.file,
        row=document.row,
        place=place_of(document.file, document.row, form),
        shard=document.shard,
        ordinal=document.ordinal,
        document_length=_length(origins, document) or 0,
        absent=None if pieces else why_absent(origins, document),
        pieces=pieces,
    )


def _length(origins: Origins, document: FoundDocument) -> int | None:
    """The document's tokens; None if it was not encoded."""
    position = origins.encoded_position(document)
    if position is None:
        return None
    return len(origins.encoded_shard(document.source, document.shard).document(position))


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
        pieces = PieceRows.open(origins.path, shard.index, reader.manifest)
        rows = np.flatnonzero(wanted.among(pieces))
        columns = {name: values[rows].tolist() for name, values in pieces.columns.items()}
        yield from (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
