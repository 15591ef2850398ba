"""The artifact store: identity, publication, names, catalog and lineage."""

from tasks.store.canonical import NOT_IDENTITY, canonical_json
from tasks.store.catalog import Catalog
from tasks.store.diff import Absent, Difference, diff, payload_differences
from tasks.store.digest import FileEntry, content_digest, digest_bytes, digest_file, digest_folder
from tasks.store.files import FileDigests
from tasks.store.graph import Direction, Edge, Graph, Node
from tasks.store.identity import fingerprint, fingerprint_payload
from tasks.store.indexing import Report
from tasks.store.integrity import Problem, Verify
from tasks.store.lineage import lineage
from tasks.store.provenance import Provenance
from tasks.store.record import InputEntry, Record, Timings, read_record
from tasks.store.runs import Run, RunArtifact
from tasks.store.store import Realized, Store

__all__ = [
    "NOT_IDENTITY",
    "Absent",
    "Catalog",
    "Difference",
    "Direction",
    "Edge",
    "FileDigests",
    "FileEntry",
    "Graph",
    "InputEntry",
    "Node",
    "Problem",
    "Provenance",
    "Realized",
    "Record",
    "Report",
    "Run",
    "RunArtifact",
    "Store",
    "Timings",
    "Verify",
    "canonical_json",
    "content_digest",
    "diff",
    "digest_bytes",
    "digest_file",
    "digest_folder",
    "fingerprint",
    "fingerprint_payload",
    "lineage",
    "payload_differences",
    "read_record",
]
