"""Compares artifacts that were made again with their records, and says why one differs.

An artifact differs if its content digest does. The reasons are looked for only where the difference begins:
at artifacts of which no input differs. What else was different there is in the records, and named: the
version or parameters of the stage, packages, Python, the platform, Unicode tables.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from tokmill.flows.reproduce.inputs import Wanted
from tokmill.flows.reproduce.known import inputs_of
from tokmill.tasks.comparing.causes import environment_changes
from tokmill.tasks.comparing.walk import own_causes
from tokmill.tasks.core.errors import TaskError
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.encode.stage import ENCODE_SHARD
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.shard import FileSegment, Shard
from tokmill.tasks.formats.text.sharding import ShardHasher
from tokmill.tasks.remote.location import Location
from tokmill.tasks.store import Store
from tokmill.tasks.store.digest import FileEntry
from tokmill.tasks.store.record import Record
from tokmill.tokenizer.core.errors import TokenizerError

Verdict: TypeAlias = Literal["equal", "differs", "not made"]

_WITH_UNICODE = ("regex", "unicodedata2")
_FILES_SHOWN = 5
_ENCODED = """
    SELECT a.kind, a.fingerprint FROM inputs i JOIN artifacts a USING (fingerprint)
    WHERE i.digest = $digest AND a.stage = 'encode_shard' ORDER BY a.ended DESC
"""


@dataclass(frozen=True)
class Compared:
    """One artifact that was to be made again.

    Attributes:
        record: the original's.
        verdict: whether the content is equal.
        again: the digest of the new content; empty if it was not made.
        files: those that differ, or are on one side only.
        is_first: whether it differs though none of its inputs does.
        reasons: why it may differ, if it is where a difference begins.
    """

    record: Record
    verdict: Verdict
    again: str = ""
    files: Sequence[str] = ()
    is_first: bool = False
    reasons: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it for `--json`."""
        return {
            "artifact": self.record.reference,
            "fingerprint": self.record.fingerprint,
            "verdict": self.verdict,
            "content_digest": self.record.content_digest,
            "again": self.again,
            "files": list(self.files),
            "reasons": list(self.reasons),
        }


def compare(records: Sequence[Record], store: Store, made: Mapping[str, ArtifactRef]) -> list[Compared]:
    """Compare artifacts with what was made of their records.

    Args:
        records: inputs first.
        store: the new store.
        made: the new artifacts by the fingerprints in the records.
    """
    compared: dict[str, Compared] = {}
    for record in records:
        if record.fingerprint not in made:
            compared[record.fingerprint] = Compared(record, "not made")
            continue
        new = store.record(made[record.fingerprint])
        before = [compared[each] for each in inputs_of(record) if each in compared]
        compared[record.fingerprint] = _compared(record, new, before)
    return list(compared.values())


def _compared(record: Record, new: Record, before: Sequence[Compared]) -> Compared:
    digest = new.content_digest
    if record.content_digest == digest:
        return Compared(record, "equal", digest)
    first = all(each.verdict == "equal" for each in before)
    reasons = list(reasons_of(record, new)) if first else []
    return Compared(record, "differs", digest, _differing(record.files, new.files), first, reasons)


def _differing(before: Sequence[FileEntry], after: Sequence[FileEntry]) -> list[str]:
    ours, theirs = ({entry.path: entry.content for entry in files} for files in (before, after))
    return sorted(path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path))


def reasons_of(record: Record, new: Record) -> Iterator[str]:
    """Yield what was different when an artifact was made, in sentences; one says so if nothing was."""
    before, after = record.provenance, new.provenance
    reasons = [cause.text for cause in own_causes(record, new)]
    tables = [str(each.metrics.get("unicode_tables", "unknown")) for each in (record, new)]
    if tables[0] != tables[1]:
        reasons.append(f"Unicode tables {' → '.join(tables)}")
    reasons += [
        f"{each.text}{'; it has Unicode tables' if each.name in _WITH_UNICODE else ''}"
        for each in environment_changes(before, after)
        if each.a and each.b
    ]
    yield from reasons or [
        "nothing that records hold was different: the stage depends on something else, which is a fault "
        "of it, or the original was changed after it was made (`tokmill store verify`)"
    ]


def shown_files(files: Sequence[str]) -> str:
    """Return the first of some files, for a line."""
    more = f" and {len(files) - _FILES_SHOWN} more" if len(files) > _FILES_SHOWN else ""
    return ", ".join(files[:_FILES_SHOWN]) + more


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
