"""The artifact store: identity, publication, names, catalog and lineage."""

from tasks.store.canonical import NOT_IDENTITY, canonical_json
from tasks.store.digest import FileEntry, content_digest, digest_bytes, digest_file
from tasks.store.files import FileDigests
from tasks.store.identity import fingerprint, fingerprint_payload
from tasks.store.integrity import Problem, Verify
from tasks.store.provenance import Provenance, collect_provenance
from tasks.store.record import InputEntry, Record, Timings, read_record
from tasks.store.store import Realized, Report, Store

__all__ = [
    "NOT_IDENTITY",
    "FileDigests",
    "FileEntry",
    "InputEntry",
    "Problem",
    "Provenance",
    "Realized",
    "Record",
    "Report",
    "Store",
    "Timings",
    "Verify",
    "canonical_json",
    "collect_provenance",
    "content_digest",
    "digest_bytes",
    "digest_file",
    "fingerprint",
    "fingerprint_payload",
    "read_record",
]
