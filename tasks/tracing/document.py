"""Find the pieces of a document: their sequences and places, or the reason why there are none."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tokmill.tasks.formats.mixture import TAKEN_DOWN, Ledger, Mixture
from tokmill.tasks.formats.packed.manifest import ExcludedDocuments, TakedownManifest
from tokmill.tasks.formats.packed.pieces import PieceRows
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.formats.text.quarantine import place_of
from tokmill.tasks.formats.text.shards import CorpusPart
from tokmill.tasks.store.record import Record
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


def why_absent(origins: Origins, document: FoundDocument) -> str:
    """Why no sequence has a piece of a document."""
    return next(_reasons(origins, document))


def _reasons(origins: Origins, document: FoundDocument) -> Iterator[str]:
    """The reasons that apply, in the order of the stages; the last one always does."""
    for row in origins.corpus.table("quarantine").to_pylist():
        if (row["source"], row["file"], row["row"]) == (document.source, document.file, document.row):
            yield f"it was quarantined when the text was ingested: {row['reason']}"
    part = origins.corpus.part
    if part is not None and origins.is_held_out(document) != (part == "validation"):
        yield _other_side(origins, part)
    position = origins.encoded_position(document)
    if position is None:
        yield "it was dropped when it was encoded: it has fewer tokens than encode.min_tokens"
        return
    takedown = _takedown(origins, document)
    if takedown is not None:
        yield takedown
    removed = [record.reference for record in _history(origins) if not origins.store.holds(record.ref)]
    mixture = origins.ancestor("mixture")
    if removed:
        yield (
            "it was taken down, not drawn or not packed; which of these cannot be read any more from "
            f"{', '.join(removed)}, removed from the store"
        )
    elif not _is_drawn(origins, mixture, document, position):
        yield _why_not_drawn(origins, mixture, document, position)
    else:
        yield _why_not_packed(origins, document, position)


def _other_side(origins: Origins, part: CorpusPart) -> str:
    name = origins.packed.name
    if part == "training":
        return f"it is held out of training; see packed/{name}.validation"
    return f"it is not held out, but for training; see packed/{name.removesuffix('.validation')}"


def _history(origins: Origins) -> Iterator[Record]:
    """The versions of the packed artifact, and the mixtures that they were packed from."""
    yield from origins.versions()
    mixture: Record | None = origins.ancestor("mixture")
    while mixture is not None:
        yield mixture
        exclusion = any(entry.role == "mixture" for entry in mixture.inputs)
        mixture = origins.input_record(mixture, "mixture") if exclusion else None


def _takedown(origins: Origins, document: FoundDocument) -> str | None:
    """The takedown of a document, among those whose artifacts are still in the store."""
    key = (document.source, document.shard, document.ordinal)
    for record in filter(lambda record: origins.store.holds(record.ref), _history(origins)):
        path = origins.store.place(record.ref)
        excludes = record.kind == "mixture"
        listed = ExcludedDocuments.found(path) if excludes else TakedownManifest.found(path)
        if listed and key in {(one.source, one.shard, one.ordinal) for one in listed.documents}:
            if excludes:
                return f"it was left out of the mixture when {origins.packed.reference} was packed again"
            return f"it was taken down in {record.reference}"
    return None


def _is_drawn(origins: Origins, record: Record, document: FoundDocument, position: int) -> bool:
    """Whether the mixture's plan has a row of the document."""
    mixture = Mixture.open(origins.store.place(record.ref))
    place = (mixture.sources.index(document.source), document.shard, position)
    member = Members(*(np.array([value], dtype=np.uint64) for value in place))
    return any(member.among(plan.source, plan.shard, plan.document).any() for plan in mixture.batches())


def _why_not_drawn(origins: Origins, record: Record, document: FoundDocument, position: int) -> str:
    """Why a mixture did not draw a document, as far as its request and its ledger know."""
    mixture = Mixture.open(origins.store.place(record.ref))
    source = next(entry for entry in mixture.manifest.sources if entry.source == document.source)
    times = _times_consumed(origins, record, document, position)
    if times == TAKEN_DOWN:
        return f"it was taken down before {record.reference} was planned"
    if times:
        return f"it was consumed before {record.reference} begins, and was not drawn again"
    if not source.quota_tokens:
        return f"{record.reference} requests no tokens of source '{document.source}'"
    return (
        f"{record.reference} did not draw it: {source.unique_documents} of {source.num_documents} documents "
        f"of source '{document.source}' were enough for its {source.quota_tokens} tokens"
    )


def _times_consumed(origins: Origins, mixture: Record, document: FoundDocument, position: int) -> int:
    """How often a document was consumed before a mixture, by its ledger; 0 without a ledger."""
    ledgers = [entry for entry in mixture.inputs if entry.role == "ledger"]
    if not ledgers:
        return 0
    ledger = Ledger.open(origins.store.place(origins.input_record(mixture, "ledger").ref))
    shards = origins.encoded.source(document.source).shards
    known, _ = ledger.matched(document.source, (shard.digest for shard in shards))
    shard = known[document.shard]
    return int(ledger.consumed(shard)[position]) if shard is not None else 0


def _why_not_packed(origins: Origins, document: FoundDocument, position: int) -> str:
    """Why packing dropped a document that the mixture drew."""
    packing = origins.reader.manifest
    length = len(origins.encoded_shard(document.source, document.shard).document(position))
    if packing.long_documents == "drop" and length > packing.sequence_length:
        return (
            f"packing dropped it: its {length} tokens are more than pack.sequence_length="
            f"{packing.sequence_length}, and pack.long_documents is 'drop'"
        )
    return "packing dropped it with the last, partial sequence (pack.last_sequence is 'drop')"
