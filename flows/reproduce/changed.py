"""Finds the row in which a source file differs from what it was when it was ingested.

No store keeps the text. But an encoded shard keeps the tokens of each of its documents, and they are the same
as long as the text is. So the shards that the file is a part of are encoded again, with what the file holds
now, and the first document whose tokens are others is the one. Without an encoded shard, the shard's digest
tells between which rows the difference is.
"""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from tokmill.flows.reproduce.inputs import Wanted
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.encode.stage import ENCODE_SHARD
from tokmill.tasks.formats.corpus import Corpus, Shard
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.shard import FileSegment
from tokmill.tasks.formats.text.sharding import ShardHasher
from tokmill.tasks.remote.location import Location
from tokmill.tasks.store import Store
from tokmill.tasks.store.record import Record
from tokmill.tokenizer.core.errors import TokenizerError

_ENCODED = """
    SELECT a.kind, a.fingerprint FROM inputs i JOIN artifacts a USING (fingerprint)
    WHERE i.digest = $digest AND a.stage = 'encode_shard' ORDER BY a.ended DESC
"""


class Changed(NamedTuple):
    """Where a file differs: from row `first` on, or somewhere from there to row `last`; rows count from 0."""

    file: Location
    first: int | None
    last: int | None = None

    def __str__(self) -> str:
        """Say it."""
        if self.first is None:
            return f"{self.file} is another one"
        if self.last is None:
            return f"{self.file} has another row {self.first} (rows count from 0)"
        return f"{self.file} has another row between {self.first} and {self.last} (rows count from 0)"


def find_change(store: Store, one: Wanted, file: Location) -> Changed:
    """Compare a file with what was ingested of it.

    Args:
        store: the store of the originals.
        one: the file, as the corpus's record has it.
        file: where a file of its name lies, whose content is another.
    """
    try:
        corpus = Corpus.open(store.path(one.record.ref))
        root = str(file).removesuffix(f"/{one.name}")
        for shard, segment in _segments(corpus, one):
            found = _in_segment(store, shard, segment, file, root)
            if found is not None:
                return found
    except (TaskError, TokenizerError, OSError):  # the corpus is gone, or the file is no longer of its format
        return Changed(file, None)
    return Changed(file, None)


def _segments(corpus: Corpus, one: Wanted) -> Iterator[tuple[Shard, FileSegment]]:
    """Yield the parts of shards that are of a file, in the order of rows."""
    for shard in corpus.shards(one.source):
        yield from ((shard, segment) for segment in shard.segments if segment.file == one.name)


def _in_segment(
    store: Store, shard: Shard, segment: FileSegment, file: Location, root: str
) -> Changed | None:
    """Return where a segment differs; None if its documents are the same."""
    last = segment.first_row + segment.num_rows - 1
    alone = shard.model_copy(update={"segments": [segment]})
    now = _digest(alone, file)
    if len(shard.segments) == 1 and now == shard.digest:
        return None
    row = _first_row(store, shard, segment, alone.model_copy(update={"digest": now}), root)
    if row is not None:
        return Changed(file, row)
    return Changed(file, segment.first_row, last) if len(shard.segments) == 1 else None


def _digest(shard: Shard, file: Location) -> str:
    """Return the digest that a shard of one segment has, as the file is now."""
    hasher, (segment,) = ShardHasher(), shard.segments
    for batch in read_file_batches(file, segment.format, shard.options, segment.span()):
        hasher.update(batch.rows - segment.first_row + segment.first_ordinal, batch.offsets, batch.data)
    return hasher.hexdigest()


def _first_row(store: Store, shard: Shard, segment: FileSegment, alone: Shard, root: str) -> int | None:
    """Return the first row whose tokens are not those of the encoded shard; None if there is none."""
    for row in store.catalog.query(_ENCODED, {"digest": shard.digest}):
        before = store.read(row["kind"], row["fingerprint"])
        with TemporaryDirectory(prefix="tokmill-changed-") as folder:
            after = _encoded_again(store, before, alone, root, Path(folder))
            ordinal = _first_difference(EncodedShard.open(store.path(before.ref)), after, segment)
        if ordinal is not None:
            return ordinal - segment.first_ordinal + segment.first_row
    return None


def _encoded_again(store: Store, before: Record, shard: Shard, root: str, folder: Path) -> EncodedShard:
    (tokenizer,) = before.refs("tokenizer")
    value = {"shard": shard.model_dump(mode="json"), "roots": {shard.source: root}}
    params = ENCODE_SHARD.params.model_validate(before.params)
    ENCODE_SHARD.run(params, out=folder, tokenizer=store.path(tokenizer), shard=value)
    return EncodedShard.open(folder)


def _first_difference(before: EncodedShard, after: EncodedShard, segment: FileSegment) -> int | None:
    """Return the least ordinal of a segment whose document is another, or on one side only."""
    ours, theirs = (_documents(shard, segment) for shard in (before, after))
    different = (k for k in sorted(ours.keys() | theirs.keys()) if not _same(ours.get(k), theirs.get(k)))
    return next(different, None)


def _documents(shard: EncodedShard, segment: FileSegment) -> dict[int, Any]:
    first, after = segment.first_ordinal, segment.first_ordinal + segment.num_rows
    return {
        int(ordinal): shard.document(k).copy()
        for k, ordinal in enumerate(shard.ordinals.tolist())
        if first <= ordinal < after
    }


def _same(one: Any, other: Any) -> bool:
    return one is not None and other is not None and np.array_equal(one, other)
