"""The artifact store: fingerprints, publication, names, catalog and lineage."""

from tokmill.tasks.store.digest import FileDigests, FileEntry, content_digest, digest_file, digest_folder
from tokmill.tasks.store.fingerprint import (
    NOT_IN_FINGERPRINT,
    Absent,
    Difference,
    canonical_json,
    digest_bytes,
    fingerprint,
    fingerprint_payload,
    payload_differences,
)
from tokmill.tasks.store.lineage import Direction, Graph, Node, lineage
from tokmill.tasks.store.provenance import Provenance
from tokmill.tasks.store.record import InputEntry, Record, Timings, read_record
from tokmill.tasks.store.runs import Run, RunArtifact
from tokmill.tasks.store.store import Store
from tokmill.tasks.store.verify import Problem, Verify

__all__ = [
    "NOT_IN_FINGERPRINT",
    "Absent",
    "Difference",
    "Direction",
    "FileDigests",
    "FileEntry",
    "Graph",
    "InputEntry",
    "Node",
    "Problem",
    "Provenance",
    "Record",
    "Run",
    "RunArtifact",
    "Store",
    "Timings",
    "Verify",
    "canonical_json",
    "content_digest",
    "digest_bytes",
    "digest_file",
    "digest_folder",
    "fingerprint",
    "fingerprint_payload",
    "lineage",
    "payload_differences",
    "read_record",
]
