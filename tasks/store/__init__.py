"""The artifact store: fingerprints, publication, names, catalog and lineage."""

from tokmill.tasks.store.build import Realized
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.digest import (
    NOT_IN_FINGERPRINT,
    FileEntry,
    canonical_json,
    content_digest,
    digest_bytes,
    digest_file,
    digest_folder,
    only_with,
)
from tokmill.tasks.store.files import FileDigests
from tokmill.tasks.store.indexing import Report
from tokmill.tasks.store.lineage import Direction, Edge, Graph, Node, lineage
from tokmill.tasks.store.provenance import Provenance
from tokmill.tasks.store.recipe import (
    Absent,
    Difference,
    fingerprint,
    fingerprint_payload,
    payload_differences,
)
from tokmill.tasks.store.record import InputEntry, Record, Timings, read_record
from tokmill.tasks.store.runs import Run, RunArtifact
from tokmill.tasks.store.store import Store
from tokmill.tasks.store.verify import Problem, Verify

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
