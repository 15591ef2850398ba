"""Find every artifact of a store that holds given documents, whatever profile or corpus it was made for.

A document is identified by the content digest of its file and its row in it. The search looks for these files
in every corpus of the store, and for these documents in every artifact made from such a corpus:

    encoded_shard            the tokens of the document
    mixture                  its place in a plan
    packed_shard, packed     pieces of it: packings, exports and takedowns alike

Artifacts with statistics only (counts, tokenizers, audits, scores, cards) do not hold documents. An artifact
that cannot be read is listed too, with the reason, since its content is unknown.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.encoded import Encoded, EncodedShard
from tokmill.tasks.formats.mixture import Mixture
from tokmill.tasks.formats.packed.layout import PackedManifest, ShardFiles
from tokmill.tasks.formats.packed.shards import PieceRows
from tokmill.tasks.store.record import Record
from tokmill.tasks.store.store import Store
from tokmill.tasks.takedown.exclude import members_of
from tokmill.tasks.tracing.naming import FoundDocument
from tokmill.tasks.tracing.origins import Origins
from tokmill.tasks.tracing.pieces import Wanted

_CANDIDATES = """
    SELECT kind, fingerprint FROM artifacts
    WHERE kind IN ('encoded_shard', 'mixture', 'packed_shard', 'packed')
    ORDER BY kind, name, label, fingerprint
"""
_CORPORA = "SELECT fingerprint FROM artifacts WHERE kind = 'corpus' ORDER BY fingerprint"


class Holder(NamedTuple):
    """An artifact that holds a document, or may: `unknown` is the reason why it could not be checked."""

    reference: str
    record: Record
    unknown: str = ""


class _Place(NamedTuple):
    """The place of a document in a corpus, and the digest of its shard's text."""

    source: str
    shard: int
    ordinal: int
    text: str


@dataclass(frozen=True)
class _Search:
    store: Store
    files: frozenset[tuple[str, int]]
    """The content digest of each document's file, and its row in the file."""

    @cached_property
    def places(self) -> dict[str, list[_Place]]:
        """The places of the documents in each corpus, by the fingerprint of the corpus."""
        found = {}
        for row in self.store.catalog.query(_CORPORA):
            path = self.store.arriving(self.store.read("corpus", row["fingerprint"]).ref)
            found[row["fingerprint"]] = list(self._in_corpus(path))
        return {corpus: places for corpus, places in found.items() if places}

    def _in_corpus(self, path: Path) -> Iterator[_Place]:
        corpus = Corpus.open(path)
        digests = corpus.file_digests()
        wanted: dict[str, list[int]] = {}
        for digest, row in self.files:
            wanted.setdefault(digest, []).append(row)
        for source in corpus.sources:
            for shard in corpus.shards(source):
                for part in shard.segments:
                    for row in wanted.get(digests[source, part.file], ()):
                        if part.first_row <= row < part.first_row + part.num_rows:
                            ordinal = part.first_ordinal + row - part.first_row
                            yield _Place(source, shard.index, ordinal, shard.digest)

    def holds(self, record: Record) -> bool:
        """Whether an artifact has one of the documents.

        Raises:
            StoreError: the artifact, or one that it was made from, cannot be read.
        """
        path = self.store.arriving(record.ref)
        if record.kind == "encoded_shard":
            return self._in_tokens(record, path)
        places = self.places.get(self._corpus_of(record), [])
        if not places:
            return False
        return (
            _in_plan(self.store, record, path, places)
            if record.kind == "mixture"
            else _in_pieces(path, places)
        )

    def _in_tokens(self, record: Record, path: Path) -> bool:
        texts = {entry.digest for entry in record.inputs if entry.role == "shard"}
        ordinals = [one.ordinal for places in self.places.values() for one in places if one.text in texts]
        return bool(ordinals) and bool(np.isin(EncodedShard.open(path).ordinals, ordinals).any())

    def _corpus_of(self, record: Record) -> str:
        """The fingerprint of the corpus that an artifact was made from."""
        while record.kind != "corpus":
            near = {entry.kind: entry for entry in reversed(record.inputs) if entry.kind is not None}
            entry = next((near[kind] for kind in _WAY if kind in near), None)
            if entry is None:
                return ""
            if entry.kind == "corpus":
                return entry.fingerprint or ""
            record = self.store.past(entry.kind or "", entry.fingerprint or "")
        return record.fingerprint


_WAY = ("corpus", "encoded", "pack_plan", "packed")


def holders_of(origins: Origins, documents: Sequence[FoundDocument]) -> list[Holder]:
    """Return every artifact of the store that holds one of the documents, by kind, name and label.

    Raises:
        StoreError: the corpus in which the documents were found cannot be read.
    """
    digests = origins.corpus.file_digests()
    search = _Search(origins.store, frozenset((digests[one.source, one.file], one.row) for one in documents))
    found = []
    for row in origins.store.catalog.query(_CANDIDATES):
        record = origins.store.read(row["kind"], row["fingerprint"])
        label = origins.store.names.find(record.kind, record.name, record.fingerprint) or record.label
        called = f"{record.kind}/{record.name}@{label}"
        try:
            if search.holds(record):
                found.append(Holder(called, record))
        except StoreError as error:
            found.append(Holder(called, record, str(error)))
    return found


def _in_plan(store: Store, record: Record, path: Path, places: Sequence[_Place]) -> bool:
    mixture = Mixture.open(path)
    (encoded,) = record.refs("encoded")
    shards = [store.arriving(ref) for ref in record.refs("shards")]
    members = members_of(places, mixture.sources, Encoded.open(store.arriving(encoded)), shards)
    return any(
        bool(members.among(plan.source, plan.shard, plan.document).any()) for plan in mixture.batches()
    )


def _in_pieces(path: Path, places: Sequence[_Place]) -> bool:
    manifest = PackedManifest.open(path)
    wanted = Wanted(manifest.sources, places)
    shards = (PieceRows.open(ShardFiles(path, shard.index), manifest) for shard in manifest.shards)
    return any(bool(wanted.among(pieces).any()) for pieces in shards)
