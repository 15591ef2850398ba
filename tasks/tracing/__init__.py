"""Tracing: from a packed token back to its line, from a document to every sequence with a part of it.

The way is piece (source, shard, ordinal) → encoded shard → corpus (file, row) → the file itself; all of it is
in the records and tables of the store, so that no index has to be kept. `tasks.tracing.naming` says how a
document is called.
"""

from tokmill.tasks.tracing.document import TracedDocument, trace_document
from tokmill.tasks.tracing.naming import FoundDocument, find_documents
from tokmill.tasks.tracing.origins import Origins
from tokmill.tasks.tracing.sequence import TracedPiece, TracedSequence, trace_sequence

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
