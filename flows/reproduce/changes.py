"""Says in which row a file from outside the store is not what it was when it was ingested."""

from collections.abc import Callable
from itertools import pairwise

from tokmill.flows.reproduce.inputs import Wanted
from tokmill.tasks.comparing.documents import decoded_text, digest_of
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.shards import FileSegment, Shard, ShardHasher
from tokmill.tasks.remote.location import Location
from tokmill.tasks.store import Store
from tokmill.tokenizer.core.errors import TokenizerError


def explanation_in(store: Store) -> Callable[[Wanted, Location], str]:
    """Return what says how a file differs from the one of its name that the store of the originals knows."""

    def explain(one: Wanted, file: Location) -> str:
        try:
            corpus = Corpus.open(store.path(one.record.ref))
            for shard in corpus.shards(one.source):
                for segment in (each for each in shard.segments if each.file == one.name):
                    if where := _where(store, shard, segment, file):
                        return f"{file} has another row {where} (rows count from 0)"
        except (TaskError, TokenizerError, OSError):  # the corpus is gone, or the file of another format now
            pass
        return f"{file} is another one"

    return explain


def _where(store: Store, shard: Shard, segment: FileSegment, file: Location) -> str:
    """Return the row in which a part of a shard differs, as far as that is known; empty if it does not."""
    hasher, now = ShardHasher(), dict[int, bytes]()
    for batch in read_file_batches(file, segment.format, shard.options, segment.span()):
        ordinals = batch.rows - segment.first_row + segment.first_ordinal
        hasher.update(ordinals, batch.offsets, batch.data)
        texts = (batch.data[start:end].tobytes() for start, end in pairwise(batch.offsets.tolist()))
        now |= dict(zip(ordinals.tolist(), map(digest_of, texts), strict=True))
    alone = len(shard.segments) == 1
    if alone and hasher.hexdigest() == shard.digest:
        return ""
    if (before := decoded_text(store, shard)) is not None:
        for ordinal in range(segment.first_ordinal, segment.first_ordinal + segment.num_rows):
            if now.get(ordinal) != before.get(ordinal):
                return str(ordinal - segment.first_ordinal + segment.first_row)
    last = segment.first_row + segment.num_rows - 1
    return f"between {segment.first_row} and {last}" if alone else ""
