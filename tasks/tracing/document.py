"""Trace a document to its pieces, or the reason why there are none, and a sequence to their origins."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import BaseModel

from tokmill.tasks.core.errors import SourceError, TracingError
from tokmill.tasks.fim.rearrangement import FIM_TOKENS
from tokmill.tasks.formats.mixture import TAKEN_DOWN, Ledger, Mixture
from tokmill.tasks.formats.packed.manifest import ExcludedDocuments, TakedownManifest
from tokmill.tasks.formats.packed.reader import Piece
from tokmill.tasks.formats.text.quarantine import place_of
from tokmill.tasks.store.record import Record
from tokmill.tasks.tracing.names import FoundDocument, find_documents, ids_of
from tokmill.tasks.tracing.origins import Origins
from tokmill.tasks.tracing.places import in_plan, pieces_at, places_of

_OF_PIECE = (
    *("start", "length", "source", "shard", "ordinal", "document_start", "num_document_tokens", "epoch"),
)


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


class TracedPiece(BaseModel, frozen=True):
    """A piece of one document, and its origin; lengths and places in tokens, rows from 0."""

    start: int  # its place in the sequence
    length: int
    name: str  # the document's name: `source:id`, or `source:file:row`
    source: str
    file: str  # the name in the corpus
    row: int
    path: str  # the file's path when the text was ingested
    place: str  # file and row, for display; with the line number if rows are lines
    id: str | None  # the document's; None if it has none, or if the file cannot be read
    shard: int  # the document's place in the corpus and the encoding
    ordinal: int
    document_start: int  # token of the document at which the piece starts
    num_document_tokens: int
    document_length: int  # of the whole document, including its end token
    bytes: tuple[int, int] | None
    """Range of the piece in the (normalized) text; None if its tokens are rearranged, or do not decode to
    exactly their text."""
    epoch: int  # number of the pass through the source, from 0
    text: str  # without the document's boundary tokens; a cut character shows as U+FFFD


class TracedSequence(BaseModel, frozen=True):
    """A sequence and its pieces, in order."""

    sequence: int
    sequence_length: int
    num_tokens: int
    num_padding_tokens: int
    pieces: list[TracedPiece]


def trace_sequence(origins: Origins, index: int) -> TracedSequence:
    """Trace sequence `index` of a packed artifact.

    Raises:
        TracingError: there is no such sequence, or the record does not have the folder of a file.
        StoreError: an artifact that the packed one was made from is missing or damaged.
    """
    reader = origins.reader
    if not 0 <= index < len(reader):
        raise TracingError(
            f"sequence {index}: {origins.packed.reference} has the sequences 0 to {len(reader) - 1}"
        )
    sequence, pieces = reader[index], reader.provenance(index)
    tracer = _Tracer(origins, pieces)
    length = reader.manifest.sequence_length
    return TracedSequence(
        sequence=index,
        sequence_length=length,
        num_tokens=sequence.num_tokens,
        num_padding_tokens=length - sequence.num_tokens,
        pieces=[tracer.traced(piece, sequence.input_ids) for piece in pieces],
    )


class _Tracer:
    def __init__(self, origins: Origins, pieces: list[Piece]) -> None:
        self._origins = origins
        self._pieces = pieces
        self._encoded = lru_cache(maxsize=1)(origins.encoded_shard)
        self._ids = lru_cache(maxsize=None)(self._ids_in)

    def traced(self, piece: Piece, input_ids: NDArray[Any]) -> TracedPiece:
        """Trace one piece of the sequence with the tokens `input_ids`."""
        origins = self._origins
        file, row = origins.corpus.lookup(piece.source, piece.shard, piece.ordinal)
        shard = origins.corpus.shards(piece.source)[piece.shard]
        form = next(segment.format for segment in shard.segments if segment.file == file)
        own = self._ids(piece.source, piece.shard).get(piece.ordinal)
        document = self._encoded(piece.source, piece.shard).document(piece.document)
        tokens = input_ids[piece.start : piece.start + piece.length]
        return TracedPiece(
            name=f"{piece.source}:{own}" if own is not None else f"{piece.source}:{file}:{row}",
            file=file,
            row=row,
            path=str(origins.path_of(piece.source, file)),
            place=place_of(file, row, form),
            id=own,
            **{name: getattr(piece, name) for name in _OF_PIECE},
            document_length=len(document),
            bytes=self._bytes(piece, tokens, document),
            text=origins.tokenizer.decode(self._of_text(tokens)),
        )

    def _bytes(self, piece: Piece, tokens: NDArray[Any], document: NDArray[Any]) -> tuple[int, int] | None:
        """The range of the piece in the text, in bytes; None if its tokens are not in text order."""
        start = piece.document_start
        if not np.array_equal(tokens, document[start : start + piece.length]):
            return None
        if np.isin(document, self._origins.fim_token_ids).any():
            return None
        if self._loses_text(document[: start + piece.length]):
            return None
        decode = self._origins.tokenizer.decode_bytes
        first = len(decode(self._of_text(document[:start])))
        return first, first + len(decode(self._of_text(tokens)))

    def _loses_text(self, tokens: NDArray[Any]) -> bool:
        """Whether decoded tokens have another number of bytes than their text: lost, or added spaces."""
        tokenizer = self._origins.tokenizer
        definition = tokenizer.definition
        unknown = definition.model.unknown_token
        if definition.decoder != type(definition.decoder)():
            return True
        return unknown is not None and bool((tokens == tokenizer.special_tokens[unknown]).any())

    def _of_text(self, tokens: NDArray[Any]) -> NDArray[Any]:
        """The tokens without the document's boundary tokens."""
        manifest = self._origins.reader.manifest
        begin, end = manifest.begin_of_document_id, manifest.end_of_document_id
        first = int(begin is not None and len(tokens) > 0 and tokens[0] == begin)
        last = int(end is not None and len(tokens) > first and tokens[-1] == end)
        return tokens[first : len(tokens) - last]

    def _ids_in(self, source: str, index: int) -> dict[int, str]:
        its = {piece.ordinal for piece in self._pieces if (piece.source, piece.shard) == (source, index)}
        try:
            return ids_of(self._origins, self._origins.corpus.shards(source)[index], its)
        except SourceError:
            return {}
