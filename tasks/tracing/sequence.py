"""Trace the tokens of a sequence: for each piece its file, row, range and text."""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from tokmill.tasks.core.errors import SourceError, TracingError
from tokmill.tasks.formats.packed.reader import Piece
from tokmill.tasks.formats.text.quarantine import place_of
from tokmill.tasks.tracing.names import ids_of
from tokmill.tasks.tracing.origins import Origins

_OF_PIECE = (
    *("start", "length", "source", "shard", "ordinal", "document_start", "num_document_tokens", "epoch"),
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
    """Traces pieces, and reads every shard once."""

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
        """The ids of this sequence's documents in a shard; empty if its files can no longer be read."""
        its = [piece.ordinal for piece in self._pieces if (piece.source, piece.shard) == (source, index)]
        try:
            return ids_of(self._origins, self._origins.corpus.shards(source)[index], its)
        except SourceError:
            return {}
