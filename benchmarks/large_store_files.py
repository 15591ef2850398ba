"""The files of a large store's corpora and packings, as far as commands read them.

A corpus has one source with `FILES` files of JSON Lines, each in ten shards of `ROWS` documents; its packing
has every document whole, in order, four to a sequence. The text itself, and its tokens, are not there.
"""

import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tokmill.tasks.formats.corpus import CorpusManifest, CorpusSource, SourceStats
from tokmill.tasks.formats.packed.manifest import PackedManifest, PackedShardEntry
from tokmill.tasks.formats.packed.pieces import PIECES_FOLDER, PROVENANCE_SCHEMA
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tasks.store.fingerprint import digest_bytes

FILES, SHARDS, PACKED_SHARDS, ROWS = 4, 40, 10, 100
_PER_SEQUENCE, _TOKENS = 4, 100  # documents in a sequence, tokens of a document
_LENGTH = _PER_SEQUENCE * _TOKENS
_DOCUMENTS = SHARDS * ROWS
_OF_A_FILE = _DOCUMENTS // FILES  # documents, of a byte each
_SIZES = {
    "size_bytes": _OF_A_FILE,
    "num_documents": _OF_A_FILE,
    "num_bytes": _OF_A_FILE,
    "num_quarantined": 0,
}
_SEQUENCES = _DOCUMENTS // _PER_SEQUENCE


class TextFile(NamedTuple):
    """A file of a corpus."""

    name: str
    digest: str


def text_files(source: str) -> list[TextFile]:
    """Return the files of a corpus with this source."""
    return [
        TextFile(f"part-{part}.jsonl", digest_bytes(f"{source}/{part}".encode())) for part in range(FILES)
    ]


def corpus_files(source: str, shards: Sequence[str]) -> dict[str, bytes]:
    """Return the files of a corpus by path; `shards` are its shards' digests."""
    texts, per_file = text_files(source), SHARDS // FILES
    segments = [
        {
            "source": source,
            "shard": shard,
            "file": texts[shard // per_file].name,
            "format": "jsonl",
            "first_ordinal": 0,
            "first_row": shard % per_file * ROWS,
            "num_rows": ROWS,
            "start": 0,
            "end": None,
        }
        for shard in range(SHARDS)
    ]
    rows: dict[str, list[dict[str, Any]]] = {
        "files": [
            {"source": source, **text._asdict(), **_SIZES, "format": "jsonl", "compression": None}
            for text in texts
        ],
        "shards": [
            {"source": source, "shard": index, "digest": digest, "num_documents": ROWS, "num_bytes": ROWS}
            for index, digest in enumerate(shards)
        ],
        "segments": segments,
    }
    tables = {f"{name}.parquet": _parquet(pa.Table.from_pylist(table)) for name, table in rows.items()}
    return {**tables, CorpusManifest.FILE: _manifest(source).model_dump_json(indent=1).encode()}


def packed_files(source: str) -> dict[str, bytes]:
    """Return the manifest and the tables of pieces of a packing, by path."""
    share = _SEQUENCES // PACKED_SHARDS
    shards = [
        PackedShardEntry(
            index=index, first_sequence=index * share, num_sequences=share, num_tokens=share * _LENGTH
        )
        for index in range(PACKED_SHARDS)
    ]
    manifest = PackedManifest(
        tokenizer=digest_bytes(source.encode()),
        dtype="uint16",
        vocab_size=1000,
        end_of_document_id=0,
        sequence_length=_LENGTH,
        strategy="concat",
        long_documents=None,
        last_sequence=None,
        num_sequences=_SEQUENCES,
        num_tokens=_SEQUENCES * _LENGTH,
        num_padding_tokens=0,
        sources=(source,),
        shards=tuple(shards),
        formats=("memmap",),
        pad_id=0,
    )
    pieces = {f"{PIECES_FOLDER}/pieces-{index:05d}.parquet": _pieces(index) for index in range(PACKED_SHARDS)}
    return {**pieces, PackedManifest.FILE: manifest.model_dump_json(indent=1).encode()}


def _manifest(source: str) -> CorpusManifest:
    stats = SourceStats(
        num_documents=_DOCUMENTS,
        num_bytes=_DOCUMENTS,
        num_chars=_DOCUMENTS,
        num_words=_DOCUMENTS,
        num_files=FILES,
        num_files_without_documents=0,
        num_shards=SHARDS,
        num_quarantined=0,
        quarantined={},
    )
    options = ReadOptions(format="jsonl")
    return CorpusManifest(shard_bytes=ROWS, sources=[CorpusSource(name=source, options=options, stats=stats)])


def _pieces(index: int) -> bytes:
    """Return the table of pieces of one packed shard."""
    number = _DOCUMENTS // PACKED_SHARDS
    document = np.arange(index * number, (index + 1) * number)
    zeros = np.zeros(number)
    columns: Mapping[str, Any] = {
        "sequence": document // _PER_SEQUENCE,
        "start": document % _PER_SEQUENCE * _TOKENS,
        "length": zeros + _TOKENS,
        "source": zeros,
        "shard": document // ROWS,
        "document": document % ROWS,
        "document_start": zeros,
        "epoch": zeros,
        "fim": zeros,
        "ordinal": document % ROWS,
    }
    arrays = [pa.array(columns[field.name]).cast(field.type) for field in PROVENANCE_SCHEMA]
    return _parquet(pa.Table.from_arrays(arrays, schema=PROVENANCE_SCHEMA))


def _parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()
