"""Find every artifact of a store that holds given documents, whatever profile or corpus it was made for.

A document is its text, looked for in every encoded shard by that shard's tokenizer; and the digest of its
file with its row, in every corpus. What was made of these holds it if its plan or its pieces have those
places. Statistics (counts, tokenizers, audits, cards) hold no documents. What cannot be read is listed with
the reason.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.encoded import Encoded, EncodedShard
from tokmill.tasks.formats.mixture import Mixture
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.formats.packed.pieces import PieceRows
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.store.record import Record
from tokmill.tasks.store.store import Store
from tokmill.tasks.takedown.exclude import members_of
from tokmill.tasks.tracing.document import Wanted
from tokmill.tasks.tracing.document_names import FoundDocument
from tokmill.tasks.tracing.origins import Origins

if TYPE_CHECKING:
    from tokmill.tokenizer import Tokenizer

Ids: TypeAlias = NDArray[Any]

_CANDIDATES = """
    SELECT kind, fingerprint FROM artifacts
    WHERE kind IN ('encoded_shard', 'mixture', 'packed_shard', 'packed')
    ORDER BY kind, name, label, fingerprint
"""
_CORPORA = "SELECT fingerprint FROM artifacts WHERE kind = 'corpus' ORDER BY fingerprint"
_WAY = ("encoded", "pack_plan", "packed", "corpus")


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
    names: frozenset[tuple[str, str]]
    """The source and the name of each document's file."""
    texts: "_Texts"
    _namesakes: set[str] = field(default_factory=set)
    _copies: dict[str, list[int]] = field(default_factory=dict)

    @cached_property
    def places(self) -> dict[str, list[_Place]]:
        """The places of the documents in each corpus, by the fingerprint of the corpus."""
        found = {}
        for row in self.store.catalog.query(_CORPORA):
            corpus = Corpus.open(self.store.place(self.store.read("corpus", row["fingerprint"]).ref))
            found[row["fingerprint"]] = list(self._in_corpus(corpus))
            if self.names & corpus.file_digests().keys():
                self._namesakes.add(row["fingerprint"])
        return {corpus: places for corpus, places in found.items() if places}

    def _in_corpus(self, corpus: Corpus) -> Iterator[_Place]:
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
        """Whether an artifact has one of the documents."""
        path = self.store.place(record.ref)
        if record.kind == "encoded_shard":
            return self._in_tokens(record, path) or bool(self._copies_in(record))
        places = self._places_of(record)
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

    def _places_of(self, record: Record) -> list[_Place]:
        """The places of the documents in what an artifact was made from."""
        corpus, encoded = self._origin(record)
        places = list(self.places.get(corpus, []))
        try:
            places += self._in_encoded(encoded) if encoded is not None else []
        except StoreError:
            if not places and corpus in self._namesakes:
                raise
        return places

    def _in_encoded(self, encoded: Record) -> Iterator[_Place]:
        refs = encoded.refs("shards")
        paths = [self.store.place(ref) for ref in refs]
        shards = Encoded.open(self.store.place(encoded.ref)).pair(paths)
        for ref, (source, entry, _) in zip(refs, shards, strict=True):
            for ordinal in self._copies_in(self.store.record(ref)):
                yield _Place(source, entry.index, ordinal, "")

    def _copies_in(self, shard: Record) -> list[int]:
        """The ordinals of the documents of an encoded shard that have the text of one of ours."""
        if shard.fingerprint not in self._copies:
            self._copies[shard.fingerprint] = self.texts.ordinals_in(self.store, shard)
        return self._copies[shard.fingerprint]

    def _origin(self, record: Record) -> tuple[str, Record | None]:
        """The fingerprint of the corpus that an artifact was made from, and the encoding in between."""
        encoded = None
        while record.kind != "corpus":
            near = {entry.kind: entry for entry in reversed(record.inputs) if entry.kind is not None}
            entry = next((near[kind] for kind in _WAY if kind in near), None)
            if entry is None or entry.kind == "corpus":
                return entry.fingerprint or "" if entry else "", encoded
            record = self.store.past(entry.kind or "", entry.fingerprint or "")
            encoded = record if record.kind == "encoded" else encoded
        return record.fingerprint, encoded


@dataclass(frozen=True)
class _Texts:
    """Texts of documents, to be found in encoded shards of any tokenizer.

    Attributes:
        tokenizer: content digest of the tokenizer that gave `ids`.
        ids: each document's tokens by it, without those at its ends, and in the order of its text.
        texts: what these decode to.
    """

    tokenizer: str
    ids: Sequence[Ids]
    texts: Sequence[bytes]
    _known: dict[tuple[str, bool], tuple["Tokenizer", list[int], set[bytes]]] = field(default_factory=dict)

    @classmethod
    def of(cls, origins: Origins, documents: Sequence[FoundDocument]) -> "_Texts":
        """Take the texts from the tokens of a packed artifact's documents; one that was dropped has none."""
        ids = []
        for one in documents:
            at = origins.encoded_position(one)
            if at is not None:
                ids.append(_ids(origins.encoded_shard(one.source, one.shard), at, origins.fim_token_ids))
        return cls(
            origins.encoded.manifest.tokenizer, ids, [origins.tokenizer.decode_bytes(each) for each in ids]
        )

    def ordinals_in(self, store: Store, record: Record) -> list[int]:
        """Return the ordinals of an encoded shard's documents that have one of the texts."""
        shard = EncodedShard.open(store.place(record.ref))
        tok, lengths, texts = self._encoded(store, record)
        ends = int(shard.statistics.num_begin_tokens > 0) + int(shard.statistics.num_end_tokens > 0)
        fim = [tok.definition.cut_out_ids[name] for name in record.params.get("fim_tokens") or ()]
        near = np.isin(np.diff(shard.offsets) - ends, lengths) | bool(shard.statistics.num_fim_tokens)
        return [
            int(shard.ordinals[at])
            for at in np.flatnonzero(near)
            if tok.decode_bytes(_ids(shard, int(at), fim)) in texts
        ]

    def _encoded(self, store: Store, record: Record) -> tuple["Tokenizer", list[int], set[bytes]]:
        """The tokenizer of an encoded shard, the number of its tokens per text, and what these decode to."""
        (ref,), allowed = record.refs("tokenizer"), record.params.get("special_tokens_in_text") == "allowed"
        key = (ref.content_digest, allowed)
        if key not in self._known:
            tok, ids = open_tokenizer(store.place(ref)), list(self.ids)
            if ref.content_digest != self.tokenizer:
                how: dict[str, Any] = {"allowed_special": "all"} if allowed else {"as_text": True}
                ids = [np.array(tok.encode(text.decode("utf-8", "replace"), **how)) for text in self.texts]
            self._known[key] = tok, [len(each) for each in ids], {tok.decode_bytes(each) for each in ids}
        return self._known[key]


def _ids(shard: EncodedShard, index: int, fim: Sequence[int]) -> Ids:
    """A document's tokens of text, with its middle back in its place."""
    ids = shard.document(index)
    begin, end = int(shard.statistics.num_begin_tokens > 0), int(shard.statistics.num_end_tokens > 0)
    ids = ids[begin : len(ids) - end]
    if not fim or not len(ids) or ids[0] != fim[0]:
        return ids
    suffix, middle = (int(np.flatnonzero(ids == token)[0]) for token in fim[1:])
    return np.concatenate([ids[1:suffix], ids[middle + 1 :], ids[suffix + 1 : middle]])


def holders_of(origins: Origins, documents: Sequence[FoundDocument]) -> list[Holder]:
    """Return every artifact of the store that holds one of the documents, by kind, name and label."""
    digests = origins.corpus.file_digests()
    search = _Search(
        origins.store,
        frozenset((digests[one.source, one.file], one.row) for one in documents),
        frozenset((one.source, one.file) for one in documents),
        _Texts.of(origins, documents),
    )
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
    shards = [store.place(ref) for ref in record.refs("shards")]
    members = members_of(places, mixture.sources, Encoded.open(store.place(encoded)), shards)
    return any(
        bool(members.among(plan.source, plan.shard, plan.document).any()) for plan in mixture.batches()
    )


def _in_pieces(path: Path, places: Sequence[_Place]) -> bool:
    manifest = PackedManifest.open(path)
    wanted = Wanted(manifest.sources, places)
    shards = (PieceRows.open(path, shard.index, manifest) for shard in manifest.shards)
    return any(bool(wanted.among(pieces).any()) for pieces in shards)
