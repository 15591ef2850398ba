"""Tracing: from a packed token back to its line, and from a document to every sequence with a part of it.

The path is piece (source, shard, ordinal) → encoded shard → corpus (file, row) → the file itself. The records
and tables of the store hold all of it, so no separate index is needed.
`tasks.tracing.names` defines the names of documents.
"""

from tokmill.tasks.tracing.document import (
    TracedDocument,
    TracedPiece,
    TracedSequence,
    trace_document,
    trace_sequence,
)
from tokmill.tasks.tracing.names import FoundDocument, find_documents
from tokmill.tasks.tracing.origins import Origins

__all__ = [
    "FoundDocument",
    "Origins",
    "TracedDocument",
    "TracedPiece",
    "TracedSequence",
    "find_documents",
    "trace_document",
    "trace_sequence",
]
