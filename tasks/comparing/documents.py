"""Which documents of a file came, went or changed between two corpora.

A corpus has no text. That of a shard is read from its files, as long as they are as they were ingested, or
else decoded from an encoding that is in the store, if that lost nothing. A document is the same if its bytes
are; of the others, those in the same row of a file were changed, and the rest gained or lost.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Final, TypeAlias

import numpy as np

from tokmill.tasks.comparing.causes import input_record, is_whole
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.text.shards import Shard, read_shard
from tokmill.tasks.formats.text.source_files import origin_digest
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.store import Record, Store
from tokmill.tokenizer.core.errors import TokenizerError

_MOST_BYTES: Final = 512 << 20
"""Text of more than this is not read again to compare documents; files are compared all the same."""

SAME: Final = "the same documents, in another order or form"

File: TypeAlias = tuple[str, str]
Hashes: TypeAlias = dict[int, bytes]
"""A file's documents: row → digest of the text."""

_ENCODINGS: Final = """
    SELECT DISTINCT a.kind, a.name, a.fingerprint, a.content_digest
    FROM inputs i JOIN artifacts a USING (fingerprint)
    WHERE i.digest = $digest AND a.kind = 'encoded_shard' ORDER BY a.fingerprint
"""


@dataclass(frozen=True)
class Documents:
    """How many documents came, went, or changed in their place, and how many are as before."""

    gained: int = 0
    lost: int = 0
    changed: int = 0
    kept: int = 0

    def __add__(self, other: "Documents") -> "Documents":
        mine, its = asdict(self), asdict(other)
        return Documents(**{name: mine[name] + its[name] for name in mine})

    @property
    def text(self) -> str:
        """The numbers that are not 0, in words."""
        named = {"gained": self.gained, "lost": self.lost, "changed": self.changed}
        said = [f"{number:,} {name}" for name, number in named.items() if number]
        return ", ".join(said) or SAME

    def to_json(self) -> dict[str, int]:
        """Return the numbers."""
        return asdict(self)


def changed_documents(
    store: Store, corpora: tuple[Record, Record], files: Sequence[File]
) -> dict[File, Documents]:
    """Return what became of the documents of files that both corpora have, where their text can be had."""
    if not files:
        return {}
    sides = [_Side(store, record) for record in corpora]
    if any(side.num_bytes(files) > _MOST_BYTES for side in sides):
        return {}
    before, after = ({file: side.hashes(*file) for file in files} for side in sides)
    pairs = {file: (before[file], after[file]) for file in files}
    return {file: compare(a, b) for file, (a, b) in pairs.items() if a is not None and b is not None}


def moved_documents(
    store: Store, corpora: tuple[Record, Record], lost: Sequence[File], gained: Sequence[File]
) -> Documents | None:
    """Return what became of the documents of lost files in gained ones; None if their text cannot be had.

    A file that was split, joined, or renamed and changed gives other files with mostly the same documents.
    """
    sides = [_Side(store, record) for record in corpora]
    if any(side.num_bytes(of) > _MOST_BYTES for side, of in zip(sides, (lost, gained), strict=True)):
        return None
    found = []
    for side, files in zip(sides, (lost, gained), strict=True):
        hashes = [side.hashes(*file) for file in files]
        if any(each is None for each in hashes):
            return None
        found.append([digest for each in hashes if each is not None for _, digest in sorted(each.items())])
    before, after = found  # rows of different files are no places to compare: nothing is changed in its row
    return compare(dict(enumerate(before)), dict(enumerate(after, len(before))))


def compare(a: Mapping[int, bytes], b: Mapping[int, bytes]) -> Documents:
    """Compare the documents of two versions of a file, given as row → digest."""
    common = Counter(a.values()) & Counter(b.values())
    left, right = _rest(a, common), _rest(b, common)
    changed = len(left & right)
    return Documents(len(right) - changed, len(left) - changed, changed, common.total())


def _rest(rows: Mapping[int, bytes], common: Counter[bytes]) -> set[int]:
    """Return the rows of documents that the other version lacks; of equal ones the first are common."""
    left = common.copy()
    rest = set()
    for row in sorted(rows):
        if left[rows[row]] > 0:
            left[rows[row]] -= 1
        else:
            rest.add(row)
    return rest


class _Side:
    """One corpus, and the text of its shards."""

    def __init__(self, store: Store, record: Record) -> None:
        self._store = store
        self._record = record
        self._corpus = Corpus.open(store.place(record.ref))
        self._read: dict[tuple[str, int], list[tuple[int, bytes]] | None] = {}

    def num_bytes(self, files: Sequence[File]) -> int:
        """Return the bytes of text in the shards of these files."""
        shards = (shard for file in files for shard in self._shards(*file))
        return sum({(shard.source, shard.index): shard.num_bytes for shard in shards}.values())

    def hashes(self, source: str, name: str) -> Hashes | None:
        """Return the documents of a file; None if the text of one of its shards cannot be had."""
        found: Hashes = {}
        for shard in self._shards(source, name):
            documents = self._documents(shard)
            if documents is None:
                return None
            ordinals = np.array([ordinal for ordinal, _ in documents], np.int64)
            if len(ordinals) == 0:
                continue
            names, at, rows = self._corpus.locate(source, shard.index, ordinals)
            for file, row, (_, digest) in zip(at.tolist(), rows.tolist(), documents, strict=True):
                if names[file] == name:
                    found[row] = digest
        return found

    def _shards(self, source: str, name: str) -> list[Shard]:
        shards = self._corpus.shards(source)
        return [shard for shard in shards if any(segment.file == name for segment in shard.segments)]

    def _documents(self, shard: Shard) -> list[tuple[int, bytes]] | None:
        key = (shard.source, shard.index)
        if key not in self._read:
            self._read[key] = self._from_text(shard) or self._from_tokens(shard)
        return self._read[key]

    def _from_text(self, shard: Shard) -> list[tuple[int, bytes]] | None:
        """Read a shard where it was ingested; None if its files are gone, or are others now."""
        root = self._root(shard)
        if root is None:
            return None
        found = list[tuple[int, bytes]]()
        try:
            for batch in read_shard(shard, {shard.source: root}):
                data, offsets = batch.data, batch.offsets.tolist()
                texts = (data[start:end].tobytes() for start, end in pairwise(offsets))
                found += zip(batch.ordinals.tolist(), map(_digest, texts), strict=True)
        except (TaskError, OSError):
            return None
        return found

    def _root(self, shard: Shard) -> str | None:
        """Return the folder or URL of a shard's source, by the path of one of its files in the record."""
        name = shard.segments[0].file
        digest = self._corpus.file_digests().get((shard.source, name))
        if digest is None:
            return None
        wanted = origin_digest(shard.source, name, digest)
        entries = (entry for entry in self._record.inputs if entry.role == "files" and entry.digest == wanted)
        origin = next((entry.origin for entry in entries), None)
        return origin[: -len(name)] if origin is not None and origin.endswith(name) else None

    def _from_tokens(self, shard: Shard) -> list[tuple[int, bytes]] | None:
        """Decode a shard from an encoding in the store; None if there is none that lost nothing."""
        for row in self._store.catalog.query(_ENCODINGS, {"digest": shard.digest}):
            record = self._store.record(ArtifactRef(**row))
            if not is_whole(self._store, record):
                continue
            try:
                decoded = _decoded(self._store, record)
            except (TaskError, TokenizerError, OSError):
                continue
            if decoded is not None:
                return decoded
        return None


def _decoded(store: Store, record: Record) -> list[tuple[int, bytes]] | None:
    """Decode an encoded shard; None if it does not have all of the text."""
    (entry,) = [entry for entry in record.inputs if entry.role == "tokenizer"]
    tokenizer = input_record(store, entry)
    shard = EncodedShard.open(store.path(record.ref))
    facts = shard.statistics
    if facts.num_dropped_documents or facts.num_fim_tokens or not (tokenizer and is_whole(store, tokenizer)):
        return None
    tok = open_tokenizer(store.path(tokenizer.ref))
    first, last = int(facts.num_begin_tokens > 0), int(facts.num_end_tokens > 0)
    documents = map(shard.document, range(shard.num_documents))
    texts = [tok.decode_bytes(ids[first : len(ids) - last]) for ids in documents]
    if sum(map(len, texts)) != facts.num_bytes:  # what normalization or an unknown token has taken is lost
        return None
    return list(zip(shard.ordinals.tolist(), map(_digest, texts), strict=True))


def _digest(text: bytes) -> bytes:
    return blake2b(text, digest_size=16).digest()
