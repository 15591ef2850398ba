"""The artifact store: fingerprints, publication, names, catalog and lineage."""

from tokmill.tasks.store.build import Realized
from tokmill.tasks.store.canonical import NOT_IN_FINGERPRINT, canonical_json, only_with
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.diff import Absent, Difference, diff, payload_differences
from tokmill.tasks.store.digest import FileEntry, content_digest, digest_bytes, digest_file, digest_folder
from tokmill.tasks.store.files import FileDigests
from tokmill.tasks.store.fingerprints import fingerprint, fingerprint_payload
from tokmill.tasks.store.graph import Direction, Edge, Graph, Node
from tokmill.tasks.store.indexing import Report
from tokmill.tasks.store.integrity import Problem, Verify
from tokmill.tasks.store.lineage import lineage
from tokmill.tasks.store.provenance import Provenance
from tokmill.tasks.store.record import InputEntry, Record, Timings, read_record
from tokmill.tasks.store.runs import Run, RunArtifact
from tokmill.tasks.store.store import Store

__all__ = [
    "NOT_IN_FINGERPRINT",
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
    "only_with",
    "payload_differences",
    "read_record",
]
