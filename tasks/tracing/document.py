"""Find the pieces of a document: their sequences and places, or the reason why there are none."""

from collections.abc import Iterator

import pyarrow as pa
from pydantic import BaseModel

from tokmill.tasks.fim.rearrangement import FIM_TOKENS
from tokmill.tasks.formats.mixture import TAKEN_DOWN, Ledger, Mixture
from tokmill.tasks.formats.packed.manifest import ExcludedDocuments, TakedownManifest
from tokmill.tasks.formats.text.quarantine import place_of
from tokmill.tasks.store.record import Record
from tokmill.tasks.tracing.names import FoundDocument, find_documents
from tokmill.tasks.tracing.origins import Origins
from tokmill.tasks.tracing.places import in_plan, pieces_at, places_of


class PlacedPiece(BaseModel, frozen=True):
    """A piece of the document; lengths and places in tokens."""

    sequence: int
    start: int  # its place in the sequence
    length: int
    document_start: int  # token of the document at which it starts
    num_document_tokens: int
    epoch: int  # number of the pass through the source, from 0


class TracedDocument(BaseModel, frozen=True):
    """A document and its pieces, in order of sequence; rows count from 0."""

    name: str  # by which it was found
    source: str
    file: str
    row: int
    place: str  # file and row, for display
    shard: int  # its place in the corpus and the encoding
    ordinal: int
    document_length: int  # its tokens, including the end token; 0 if it was not encoded
    absent: str | None  # why no sequence has a piece of it; None if one has
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
        PlacedPiece(num_document_tokens=row["length"] - (FIM_TOKENS if row.get("fim") else 0), **row)
        for columns in pieces_at(origins.path, [document.place])
        for row in pa.table(columns).to_pylist()
    ]
    shard = origins.corpus.shards(document.source)[document.shard]
    form = next(segment.format for segment in shard.segments if segment.file == document.file)
    position = origins.encoded_position(document.place)
    encoded = origins.encoded_shard(document.source, document.shard)
    return TracedDocument(
        **document._asdict(),
        place=place_of(document.file, document.row, form),
        document_length=0 if position is None else len(encoded.document(position)),
        absent=None if pieces else why_absent(origins, document),
        pieces=pieces,
    )


def why_absent(origins: Origins, document: FoundDocument) -> str:
    """Why no sequence has a piece of a document."""
    return next(_reasons(origins, document))


def _reasons(origins: Origins, document: FoundDocument) -> Iterator[str]:
    """The reasons that apply, in the order of the stages; the last one always does."""
    for row in origins.corpus.table("quarantine").to_pylist():
        if (row["source"], row["file"], row["row"]) == (document.source, document.file, document.row):
            yield f"it was quarantined when the text was ingested: {row['reason']}"
    yield from _other_side(origins, document)
    position = origins.encoded_position(document.place)
    if position is None:
        yield "it was dropped when it was encoded: it has fewer tokens than encode.min_tokens"
        return
    yield from _takedowns(origins, document)
    removed = [record.reference for record in _history(origins) if not origins.store.holds(record.ref)]
    if removed:
        yield (
            "it was taken down, not drawn or not packed; which of these cannot be read any more from "
            f"{', '.join(removed)}, removed from the store"
        )
    mixture = origins.ancestor("mixture")
    if not in_plan(origins.store, mixture, [document.place]):
        yield _why_not_drawn(origins, mixture, document, position)
    packing = origins.reader.manifest
    length = len(origins.encoded_shard(document.source, document.shard).document(position))
    if packing.long_documents == "drop" and length > packing.sequence_length:
        yield (
            f"packing dropped it: its {length} tokens are more than pack.sequence_length="
            f"{packing.sequence_length}, and pack.long_documents is 'drop'"
        )
    yield "packing dropped it with the last, partial sequence (pack.last_sequence is 'drop')"


def _other_side(origins: Origins, document: FoundDocument) -> Iterator[str]:
    part, name = origins.corpus.part, origins.packed.name
    if part is None:
        return
    held_out = {tuple(row.values()) for row in origins.corpus.table("held_out").to_pylist()}
    if ((document.source, document.shard, document.ordinal) in held_out) == (part == "validation"):
        return
    if part == "training":
        yield f"it is held out of training; see packed/{name}.validation"
    else:
        yield f"it is not held out, but for training; see packed/{name.removesuffix('.validation')}"


def _history(origins: Origins) -> Iterator[Record]:
    """The versions of the packed artifact, and the mixtures that they were packed from."""
    yield from origins.versions()
    mixture: Record | None = origins.ancestor("mixture")
    while mixture is not None:
        yield mixture
        exclusion = any(entry.role == "mixture" for entry in mixture.inputs)
        mixture = origins.input_record(mixture, "mixture") if exclusion else None


def _takedowns(origins: Origins, document: FoundDocument) -> Iterator[str]:
    """The takedowns of a document, among those whose artifacts are still in the store."""
    for record in filter(lambda record: origins.store.holds(record.ref), _history(origins)):
        path, excludes = origins.store.place(record.ref), record.kind == "mixture"
        listed = ExcludedDocuments.found(path) if excludes else TakedownManifest.found(path)
        if listed and document.place in places_of(listed.documents):
            if excludes:
                yield f"it was left out of the mixture when {origins.packed.reference} was packed again"
            yield f"it was taken down in {record.reference}"


def _why_not_drawn(origins: Origins, record: Record, document: FoundDocument, position: int) -> str:
    """Why a mixture did not draw a document, as far as its request and its ledger know."""
    mixture = Mixture.open(origins.store.place(record.ref))
    source = next(entry for entry in mixture.manifest.sources if entry.source == document.source)
    times = 0
    if any(entry.role == "ledger" for entry in record.inputs):
        ledger = Ledger.open(origins.store.place(origins.input_record(record, "ledger").ref))
        shards = origins.encoded.source(document.source).shards
        known, _ = ledger.matched(document.source, (shard.digest for shard in shards))
        shard = known[document.shard]
        times = int(ledger.consumed(shard)[position]) if shard is not None else 0
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
