"""Find every artifact of a store that holds given documents, whatever profile or corpus it was made for.

A document is its text, looked for in every encoded shard by that shard's tokenizer, and the digest of its
file with its row, in every corpus. What was made of these holds it if its plan or pieces have those places.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.encoded import Encoded, EncodedShard
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.store.record import Record
from tokmill.tasks.tracing.names import FoundDocument
from tokmill.tasks.tracing.origins import Origins
from tokmill.tasks.tracing.places import Place, encoded_places, in_plan, pieces_at, places_in

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


def holders_of(origins: Origins, documents: Sequence[FoundDocument]) -> list[Holder]:
    """Return every artifact of the store that holds one of the documents, by kind, name and label."""
    store, search, found = origins.store, _Search(origins, documents), []
    for row in store.catalog.query(_CANDIDATES):
        record = store.read(row["kind"], row["fingerprint"])
        label = store.names.find(record.kind, record.name, record.fingerprint) or record.label
        called = f"{record.kind}/{record.name}@{label}"
        try:
            if search.holds(record):
                found.append(Holder(called, record))
        except StoreError as error:
            found.append(Holder(called, record, str(error)))
    return found


class _Search:
    """Knows the places of the documents in each corpus, and their copies in each encoded shard."""

    def __init__(self, origins: Origins, documents: Sequence[FoundDocument]) -> None:
        self._store, self._documents = origins.store, documents
        self._digests = origins.corpus.file_digests()
        self._tokenizer = origins.encoded.manifest.tokenizer
        self._ids = [
            _text_ids(origins.encoded_shard(one.source, one.shard), at, origins.fim_token_ids)
            for one in documents
            if (at := origins.encoded_position(one.place)) is not None
        ]
        self._texts = [origins.tokenizer.decode_bytes(ids) for ids in self._ids]
        self._encoded = lru_cache(maxsize=None)(self._encoded_texts)
        self._copies_in = lru_cache(maxsize=None)(self._copies_by_text)

    @cached_property
    def _corpora(self) -> dict[str, tuple[list[Place], bool]]:
        """By corpus the places of the documents, and whether it has files of their names, maybe others."""
        rows: dict[str, set[int]] = {}
        for one in self._documents:
            rows.setdefault(self._digests[one.source, one.file], set()).add(one.row)
        found = {}
        for row in self._store.catalog.query(_CORPORA):
            corpus = Corpus.open(self._store.place(self._store.read("corpus", row["fingerprint"]).ref))
            files = corpus.file_digests()
            wanted = {key: sorted(rows[digest]) for key, digest in files.items() if digest in rows}
            named = any((one.source, one.file) in files for one in self._documents)
            found[row["fingerprint"]] = list(places_in(corpus, wanted)), named
        return found

    def holds(self, record: Record) -> bool:
        """Whether an artifact has one of the documents."""
        path = self._store.place(record.ref)
        if record.kind == "encoded_shard":
            texts = {entry.digest for entry in record.inputs if entry.role == "shard"}
            its = [one for places, _ in self._corpora.values() for one in places if one.text in texts]
            return bool(its and encoded_places(EncodedShard.open(path), its)) or bool(
                self._copies_in(record.ref)
            )
        places = self._places_of(record)
        if record.kind == "mixture":
            return bool(places) and in_plan(self._store, record, places)
        return bool(places) and any(len(pieces["sequence"]) for pieces in pieces_at(path, places))

    def _places_of(self, record: Record) -> list[Place]:
        """The places of the documents in what an artifact was made from."""
        corpus, encoded = self._origin(record)
        places, named = self._corpora.get(corpus, ([], False))
        try:
            return [*places, *(self._copies_of(encoded) if encoded is not None else ())]
        except StoreError:
            if not places and named:
                raise
        return places

    def _origin(self, record: Record) -> tuple[str, Record | None]:
        """The fingerprint of the corpus that an artifact was made from, and the encoding in between."""
        encoded = None
        while True:
            near = {entry.kind: entry for entry in reversed(record.inputs) if entry.kind is not None}
            entry = next((near[kind] for kind in _WAY if kind in near), None)
            if entry is None or entry.kind == "corpus":
                return entry.fingerprint or "" if entry else "", encoded
            record = self._store.past(entry.kind or "", entry.fingerprint or "")
            encoded = record if record.kind == "encoded" else encoded

    def _copies_of(self, encoded: Record) -> Iterator[Place]:
        refs = encoded.refs("shards")
        shards = Encoded.open(self._store.place(encoded.ref)).pair([self._store.place(ref) for ref in refs])
        for ref, (source, entry, _) in zip(refs, shards, strict=True):
            for ordinal in self._copies_in(ref):
                yield Place(source, entry.index, ordinal, ordinal + 1)

    def _copies_by_text(self, ref: ArtifactRef) -> list[int]:
        """The ordinals of the documents of an encoded shard that have the text of one of ours."""
        record, shard = self._store.record(ref), EncodedShard.open(self._store.place(ref))
        allowed = record.params.get("special_tokens_in_text") == "allowed"
        tok, lengths, texts = self._encoded(record.refs("tokenizer")[0], allowed)
        ends = sum(_ends(shard))
        fim = [tok.definition.cut_out_ids[name] for name in record.params.get("fim_tokens") or ()]
        near = np.isin(np.diff(shard.offsets) - ends, lengths) | bool(shard.statistics.num_fim_tokens)
        return [
            int(shard.ordinals[at])
            for at in np.flatnonzero(near)
            if tok.decode_bytes(_text_ids(shard, int(at), fim)) in texts
        ]

    def _encoded_texts(self, ref: ArtifactRef, allowed: bool) -> tuple["Tokenizer", list[int], set[bytes]]:
        """A tokenizer, the number of its tokens per text, and what these decode to."""
        tok, ids = open_tokenizer(self._store.place(ref)), self._ids
        if ref.content_digest != self._tokenizer:
            how: Mapping[str, Any] = {"allowed_special": "all"} if allowed else {"as_text": True}
            ids = [np.array(tok.encode(text.decode("utf-8", "replace"), **how)) for text in self._texts]
        return tok, [len(each) for each in ids], {tok.decode_bytes(each) for each in ids}


def _ends(shard: EncodedShard) -> tuple[int, int]:
    return int(shard.statistics.num_begin_tokens > 0), int(shard.statistics.num_end_tokens > 0)


def _text_ids(shard: EncodedShard, index: int, fim: Sequence[int]) -> Ids:
    """A document's tokens of text, with its middle back in its place."""
    ids, (begin, end) = shard.document(index), _ends(shard)
    ids = ids[begin : len(ids) - end]
    if not fim or not len(ids) or ids[0] != fim[0]:
        return ids
    suffix, middle = (int(np.flatnonzero(ids == token)[0]) for token in fim[1:])
    return np.concatenate([ids[1:suffix], ids[middle + 1 :], ids[suffix + 1 : middle]])
