"""Which documents of some files came, went or changed between two corpora.

A corpus has no text. That of a shard is read from its files, as long as they are as they were ingested, or
else decoded from an encoding that is in the store, if that lost nothing. A document is the same if its bytes
are; of the others, those in the same row of a file were changed, and the rest gained or lost.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, astuple, dataclass
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.comparing.causes import is_whole, record_of
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.text.shards import Shard, read_shard
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.store import Record, Store
from tokmill.tasks.tracing.origins import file_origins
from tokmill.tokenizer.core.errors import TokenizerError

_MOST_BYTES: Final = 512 << 20
"""Text of more than this is not read again to compare documents; files are compared all the same."""

Hashes: TypeAlias = dict[tuple[str, int], bytes]
"""Documents: file and row → digest of the text."""

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
        return Documents(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    @property
    def text(self) -> str:
        """The numbers that are not 0, in words."""
        named = {name: number for name, number in asdict(self).items() if number and name != "kept"}
        said = ", ".join(f"{number:,} {name}" for name, number in named.items())
        return said or "the same documents, in another order or form"


def compare(a: Mapping[Any, bytes], b: Mapping[Any, bytes]) -> Documents:
    """Compare two versions of some documents, given as place → digest."""
    common = Counter(a.values()) & Counter(b.values())
    left, right = _rest(a, common), _rest(b, common)
    changed = len(left & right)
    return Documents(len(right) - changed, len(left) - changed, changed, common.total())


def _rest(documents: Mapping[Any, bytes], common: Counter[bytes]) -> set[Any]:
    """Return the places of documents that the other version lacks; of equal ones the first are common."""
    left, rest = common.copy(), set()
    for place in sorted(documents):
        if left[documents[place]] > 0:
            left[documents[place]] -= 1
        else:
            rest.add(place)
    return rest


def documents_of(store: Store, record: Record, source: str, files: Collection[str]) -> Hashes | None:
    """Return the documents of files of a corpus; None if some of their text cannot be had, or is too much."""
    corpus, found = Corpus.open(store.place(record.ref)), Hashes()
    shards = [one for one in corpus.shards(source) if any(part.file in files for part in one.segments)]
    if sum(shard.num_bytes for shard in shards) > _MOST_BYTES:
        return None
    for shard in shards:
        documents = _from_text(record, corpus, shard) or decoded_text(store, shard)
        if documents is None:
            return None
        if documents:
            names, at, rows = corpus.locate(source, shard.index, np.array([*documents], np.int64))
            places = ((names[file], row) for file, row in zip(at.tolist(), rows.tolist(), strict=True))
            found |= {
                place: digest
                for place, digest in zip(places, documents.values(), strict=True)
                if place[0] in files
            }
    return found


def _from_text(record: Record, corpus: Corpus, shard: Shard) -> dict[int, bytes] | None:
    """Read a shard's digests by ordinal where it was ingested; None if its files are gone, or others now."""
    name = shard.segments[0].file
    origin = file_origins(record, corpus).get((shard.source, name), "")
    if not origin.endswith(name):
        return None
    found = dict[int, bytes]()
    try:
        for batch in read_shard(shard, {shard.source: origin[: -len(name)]}):
            texts = [batch.data[start:end].tobytes() for start, end in pairwise(batch.offsets.tolist())]
            found |= digests_of(batch.ordinals, texts)
    except (TaskError, OSError):
        return None
    return found


def decoded_text(store: Store, shard: Shard) -> dict[int, bytes] | None:
    """Return a shard's digests by ordinal from its tokens; None if no encoding in the store lost nothing."""
    for row in store.catalog.query(_ENCODINGS, {"digest": shard.digest}):
        try:
            decoded = _decoded(store, store.record(ArtifactRef(**row)))
        except (TaskError, TokenizerError, OSError):
            continue
        if decoded is not None:
            return decoded
    return None


def _decoded(store: Store, record: Record) -> dict[int, bytes] | None:
    """Decode an encoded shard; None if it does not have all of the text."""
    tokenizer = record_of(store, record.refs("tokenizer")[0])
    if tokenizer is None or not (is_whole(store, record) and is_whole(store, tokenizer)):
        return None
    shard = EncodedShard.open(store.path(record.ref))
    facts = shard.statistics
    if facts.num_dropped_documents or facts.num_fim_tokens:
        return None
    tok = open_tokenizer(store.path(tokenizer.ref))
    first, last = int(facts.num_begin_tokens > 0), int(facts.num_end_tokens > 0)
    documents = map(shard.document, range(shard.num_documents))
    texts = [tok.decode_bytes(ids[first : len(ids) - last]) for ids in documents]
    if sum(map(len, texts)) != facts.num_bytes:  # what normalization or an unknown token has taken is lost
        return None
    return digests_of(shard.ordinals, texts)


def digests_of(ordinals: NDArray[Any], texts: Iterable[bytes]) -> dict[int, bytes]:
    """What identifies the texts of documents, by ordinal."""
    digests = (blake2b(text, digest_size=16).digest() for text in texts)
    return dict(zip(ordinals.tolist(), digests, strict=True))
