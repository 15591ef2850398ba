"""The origins of a packed artifact: its encoding, corpus, tokenizer and files.

They are found through the records. The corpus's files are expected where its record says that they were
ingested, unless the caller gives other folders.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tokmill.tasks.core.errors import StoreError, TracingError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.encoded import Encoded, EncodedShard
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.formats.text.shards import Shard
from tokmill.tasks.formats.text.source_files import origin_digest
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.remote.location import Location, below, located
from tokmill.tasks.store.record import InputEntry, Record
from tokmill.tasks.store.remote import pulled_when_opened
from tokmill.tasks.store.store import Store
from tokmill.tasks.tracing.places import Place, encoded_places

if TYPE_CHECKING:
    from tokmill.tokenizer import Tokenizer


def file_origins(ingested: Record, corpus: Corpus) -> dict[tuple[str, str], str]:
    """The path or URL of each file of a corpus, or of a part of it, when it was ingested."""
    origins = {entry.digest: entry.origin for entry in ingested.inputs if entry.role == "files"}
    found = {key: origins.get(origin_digest(*key, digest)) for key, digest in corpus.file_digests().items()}
    return {key: origin for key, origin in found.items() if origin}


@dataclass(frozen=True)
class Origins:
    """A packed artifact and its origins; each is opened when it is first used."""

    store: Store  # the store that holds the artifacts
    packed: Record  # the record of the packed artifact
    roots: Mapping[str, str | Path]
    """Source → the folder of its files, or its URL, for sources whose files have moved since they were
    ingested."""

    @classmethod
    def of(cls, store: Store, packed: ArtifactRef, roots: Mapping[str, str | Path] | None = None) -> Self:
        """The origins of a packed artifact.

        Raises:
            TracingError: the artifact is of another kind.
            StoreError: it is not in the store.
        """
        if packed.kind != "packed":
            raise TracingError(
                f"{packed.kind}/{packed.name} is not a packed artifact; sequences and their pieces are in "
                "packed/NAME"
            )
        return cls(store, store.record(packed), roots or {})

    @cached_property
    def path(self) -> Path:
        """The packed artifact's directory; its files are fetched when they are opened."""
        return self.store.place(self.packed.ref)

    @cached_property
    def reader(self) -> PackedReader:
        """The sequences."""
        return PackedReader.open(self.path)

    @cached_property
    def corpus(self) -> Corpus:
        """The corpus."""
        return Corpus.open(self._path(self._corpus_record))

    @cached_property
    def encoded(self) -> Encoded:
        """The encoded artifact's manifest."""
        return Encoded.open(self._path(self._encoded_record))

    @cached_property
    def tokenizer(self) -> "Tokenizer":
        """The tokenizer, after checking its attestation."""
        return open_tokenizer(self._path(self._ancestor(self._encoded_record, "tokenizer")))

    @cached_property
    def fim_token_ids(self) -> list[int]:
        """Tokens that mark the parts of documents whose text was rearranged before encoding."""
        names = self._encoded_record.params.get("fim_tokens") or ()
        return [self.tokenizer.definition.cut_out_ids[name] for name in names]

    def encoded_shard(self, source: str, index: int) -> EncodedShard:
        """An encoded shard by source and index."""
        return EncodedShard.open(pulled_when_opened(self._encoded_paths[source, index]))

    def encoded_position(self, place: Place) -> int | None:
        """A document's position in its encoded shard; None if it was not encoded."""
        encoded = encoded_places(self.encoded_shard(place.source, place.shard), [place])
        return encoded[0].first if encoded else None

    def path_of(self, source: str, name: str) -> Location:
        """The path of a file, by its name in the corpus."""
        if source in self.roots:
            return below(self.roots[source], name)
        origin = self._file_origins.get((source, name))
        if origin is None:
            raise TracingError(
                f"the record of {self._corpus_record.reference} does not have the path of {name} of source "
                f"'{source}'; give its folder with --root {source}=FOLDER"
            )
        return located(origin)

    def root_of(self, shard: Shard) -> str:
        """The folder, or its URL, that the names of a shard's files are relative to."""
        name = shard.segments[0].file
        return str(self.path_of(shard.source, name))[: -len(name)]

    def ancestor(self, kind: str) -> Record:
        """The nearest artifact of a kind among those that the packed artifact was made from."""
        return self._ancestor(self.packed, kind)

    def versions(self) -> Iterator[Record]:
        """Yield the packed artifact, and the packed artifacts that it was made from by takedown or export."""
        record: Record | None = self.packed
        while record is not None:
            yield record
            before = [entry for entry in record.inputs if entry.kind == "packed"]
            record = self._record(before[0]) if before else None

    def input_record(self, record: Record, role: str) -> Record:
        """The record of the input with a role."""
        entries = [entry for entry in record.inputs if entry.role == role and entry.kind is not None]
        if not entries:
            raise TracingError(f"{record.reference} was made from no {role}")
        return self._record(entries[0])

    @cached_property
    def _file_origins(self) -> dict[tuple[str, str], str]:
        ingested, divided = self._corpus_record, self.corpus.part is not None
        return file_origins(self.input_record(ingested, "corpus") if divided else ingested, self.corpus)

    @cached_property
    def _encoded_paths(self) -> dict[tuple[str, int], Path]:
        shards = [
            self.store.layout.artifact(entry.kind or "", entry.fingerprint or "")
            for entry in self._encoded_record.inputs
            if entry.role == "shards"
        ]
        return {(source, entry.index): path for source, entry, path in self.encoded.pair(shards)}

    @cached_property
    def _encoded_record(self) -> Record:
        return self._ancestor(self.packed, "encoded")

    @cached_property
    def _corpus_record(self) -> Record:
        return self._ancestor(self._encoded_record, "corpus")

    def _path(self, record: Record) -> Path:
        return self.store.place(record.ref)

    def _ancestor(self, record: Record, kind: str) -> Record:
        """The nearest artifact of a kind among those that a record was made from."""
        waiting, seen = [record], {record.fingerprint}
        while waiting:
            found = waiting.pop(0)
            # the first input of each role: all shards of a stage have the same origins
            entries = [entry for entry in found.inputs if entry.kind is not None and not entry.position]
            for entry in entries:
                if entry.kind == kind:
                    return self._record(entry)
            new = [entry for entry in entries if entry.fingerprint not in seen]
            seen |= {entry.fingerprint or "" for entry in new}
            waiting += [self._record(entry) for entry in new]
        raise TracingError(
            f"{self.packed.reference} does not go back to an artifact of kind {kind}: `tokmill lineage "
            f"{self.packed.reference}` shows what it was made from"
        )

    def _record(self, entry: InputEntry) -> Record:
        try:
            return self.store.past(entry.kind or "", entry.fingerprint or "")
        except StoreError as error:
            raise StoreError(
                f"{self.packed.reference} goes back to {entry.kind}/{entry.name}, which is not in the store "
                f"any more ({error}); run the profile again to make it"
            ) from error
