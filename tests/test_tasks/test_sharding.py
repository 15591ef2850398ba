"""Where shards end: sizes, independence of batches, and changes that affect only nearby shards."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.hostile_names import HOSTILE
from tests.test_tasks.reading import COMPRESSORS
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.detection import Contents
from tokmill.tasks.formats.text.documents import file_batch
from tokmill.tasks.formats.text.shards import (
    MAX_SHARDS_FROM_START,
    Cutter,
    FileSegment,
    Limits,
    Shard,
    ShardHasher,
    default_shard_bytes,
    may_end,
    name_may_end,
    read_shard,
)
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tasks.ingest.scan import DraftedShard, FileScan, SourceShards, scan_file

SMALL = Limits(400)
LINES = ReadOptions(format="lines")
MIB = 1 << 20


def batches(texts: list[bytes], size: int):
    for start in range(0, len(texts), size):
        part = texts[start : start + size]
        yield file_batch(part, np.arange(start, start + len(part)))


def marks_of(texts: list[bytes], size: int) -> list[bool]:
    return [mark for one in batches(texts, size) for mark in may_end(one.data, one.offsets, SMALL).tolist()]


def reference(texts: list[bytes]) -> list[int]:
    """The rule, one document at a time."""
    found, size = [], 0
    for index, (text, may) in enumerate(zip(texts, marks_of(texts, 1), strict=True)):
        if size and size + len(text) + 1 > SMALL.maximum:
            found.append(index)
            size = 0
        size += len(text) + 1
        if size >= SMALL.minimum and may:
            found.append(index + 1)
            size = 0
    return [cut for cut in found if cut < len(texts)]


DOCUMENTS = st.lists(
    st.one_of(st.binary(max_size=30), st.integers(0, 2500).map(lambda size: b"x" * size), st.just(b"")),
    max_size=60,
)


@given(DOCUMENTS, st.integers(1, 61))
@example([b"x" * 9] * (SMALL.maximum // 10 + 40), 7)  # exactly the maximum
def test_the_rule_whatever_the_batches(texts: list[bytes], size: int) -> None:
    cutter, found = Cutter(SMALL), []
    for one in batches(texts, size):
        cuts = cutter.cuts(one.lengths + 1, may_end(one.data, one.offsets, SMALL))
        found += [int(one.rows[0]) + cut for cut in cuts]

    assert [cut for cut in found if cut < len(texts)] == reference(texts)


def test_whether_a_document_may_end_a_shard_depends_on_it_alone() -> None:
    texts = [b"%d %s" % (number, b"text " * (number % 11)) for number in range(2000)]
    texts += [b"", b"a", b"1234567"]

    marks = marks_of(texts, len(texts))

    assert marks == marks_of(texts, 1)
    # A document of n bytes may end a shard with probability (n + 1) / (average - minimum).
    expected = sum(min(1.0, (len(text) + 1) / (SMALL.average - SMALL.minimum)) for text in texts)
    assert abs(sum(marks) - expected) < 4 * expected**0.5


def numbered(numbers: range, words: int = 12) -> list[bytes]:
    return [b"document %d: %s" % (number, b"some words " * (1 + number * 7919 % words)) for number in numbers]


def scanned(folder: Path, texts: list[bytes], limits: Limits) -> list[DraftedShard]:
    (folder / "a.txt").write_bytes(b"".join(text + b"\n" for text in texts))
    return scan_file(folder / "a.txt", "a.txt", "s", LINES, limits).shards


def test_a_changed_document_changes_only_the_shards_around_it(tmp_path: Path) -> None:
    texts, limits = numbered(range(3000)), Limits(8192)
    before = {shard.digest for shard in scanned(tmp_path, texts, limits)}
    changed = []
    for at in range(0, 3000, 100):
        for new, removed in (([b"something new"], 0), ([], 1), ([b"something else"], 1)):
            after = scanned(tmp_path, [*texts[:at], *new, *texts[at + removed :]], limits)
            changed.append(len({shard.digest for shard in after} - before))

    # One shard has to change; if the change is at an end, one or two more, until an old end is met again.
    assert sum(changed) / len(changed) < 1.3
    assert max(changed) <= 5


def grouped(files: dict[str, bytes], limits: Limits) -> list[DraftedShard]:
    shards = SourceShards(limits)
    for name in sorted(files):
        scan = FileScan(name, Contents("text", None), Limits(1 << 30))
        scan.add(file_batch([files[name]], np.zeros(1, dtype=np.int64)))
        shards.add(scan)
    return shards.shards


def test_small_files_are_grouped_and_changes_stay_in_their_group() -> None:
    limits = Limits(8192)
    files = {f"folder/{number:04d}.txt": b"x" * (100 + number * 7919 % 900) for number in range(600)}
    before = {draft.digest for draft in grouped(files, limits)}
    assert 20 < len(before) < 120

    variants = [
        variant
        for name in sorted(files)[::37]
        for variant in (
            {**files, name: files[name] + b"y"},
            {**files, name + "x": b"new"},
            {key: value for key, value in files.items() if key != name},
        )
    ]
    changed = [len({draft.digest for draft in grouped(after, limits)} - before) for after in variants]

    assert sum(changed) / len(changed) < 1.3
    assert max(changed) <= 4


def test_groups_are_bounded_and_hold_every_file_once() -> None:
    limits = Limits(4096)
    files = {f"{number}.txt": b"x" * (number * 31 % 4000) for number in range(300)}
    never = (name for name in map(str, range(400)) if not name_may_end(name, 1000, limits))
    files |= dict.fromkeys(never, b"x" * 999)  # groups of these end where they are full

    drafts = grouped(files, limits)

    assert [segment.file for draft in drafts for segment in draft.segments] == sorted(files)
    assert all(draft.weight <= limits.maximum for draft in drafts)
    assert all(draft.weight >= limits.minimum for draft in drafts[:-1])
    for draft in drafts:
        assert [one.first_ordinal for one in draft.segments] == list(range(len(draft.segments)))


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESSORS if suffix])
def test_a_compressed_file_has_sixteen_shards_at_most(tmp_path: Path, suffix: str) -> None:
    # So repetitive that its text is a hundred times its size: the rule must hold anyway.
    content = b"".join(b"document %d\n" % (number % 50) + b"x" * 300 + b"\n" for number in range(4000))
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESSORS[suffix](content))

    shards = scan_file(path, path.name, "s", LINES, Limits(4096)).shards

    assert 1 < len(shards) <= MAX_SHARDS_FROM_START
    assert sum(shard.num_documents for shard in shards) == 8000


@pytest.mark.parametrize(
    ("size", "how", "average", "most"),
    [
        (9999, {"compressed": False}, 4, None),
        (8, {"compressed": True}, 4, MAX_SHARDS_FROM_START),
        (9, {"compressed": True}, 8, MAX_SHARDS_FROM_START),
        (10, {"compressed": True}, 8, MAX_SHARDS_FROM_START),  # a little more changes nothing
        (0, {"compressed": False, "row_group_bytes": 65 * MIB}, 8, None),
    ],
)
def test_limits_of_files_that_are_read_from_their_start(size, how, average, most) -> None:
    assert Limits(4 * MIB).of_file(size * MIB, **how) == Limits(average * MIB, most)


def digest(texts: list[bytes], size: int, ordinals: list[int] | None = None) -> str:
    hasher = ShardHasher()
    for one in batches(texts, size):
        hasher.update(one.rows if ordinals is None else np.array(ordinals), one.offsets, one.data)
    return hasher.hexdigest()


@given(st.lists(st.binary(max_size=6), max_size=12), st.integers(1, 13))
def test_the_digest_does_not_depend_on_batches(texts: list[bytes], size: int) -> None:
    assert digest(texts, size) == digest(texts, len(texts) + 1)


def test_the_digest_tells_documents_and_ordinals_apart() -> None:
    variants = [([], []), ([b""], [0]), ([b"ab"], [0]), ([b"a", b"b"], [0, 1]), ([b"a", b"b"], [0, 2])]
    variants += [([b"ab", b""], [0, 1]), ([b"", b"ab"], [0, 1])]
    assert len({digest(texts, 3, ordinals) for texts, ordinals in variants}) == len(variants)
    # This digest must never change: shards of this content have it in every store.
    golden = "ca3b10694dce42cf52ce771d81ddd8f200e87c1cd66f9f754dd281abcfb9a1f5"
    assert digest([b"a", b"b"], 3, [0, 2]) == golden


@pytest.mark.parametrize(
    "name", [name for name in HOSTILE.values() if ".." in name.split("/") or name[:1] == "/"]
)
@pytest.mark.parametrize("root", ["folder", "s3://bucket/folder"])
def test_a_corpus_from_elsewhere_has_no_file_outside_of_its_root_read(tmp_path, root, name):
    segment = FileSegment(file=name, format="text", first_ordinal=0, first_row=0, num_rows=1)
    about = {"digest": "", "options": LINES, "num_documents": 1, "num_bytes": 1}
    shard = Shard(source="s", index=0, segments=[segment], **about)
    with pytest.raises(SourceError, match="leads out of"):
        next(read_shard(shard, {"s": tmp_path if root == "folder" else root}))


@pytest.mark.parametrize(
    ("text_mib", "shard_mib"),
    [(1, 8), (63, 8), (64, 32), (511, 32), (512, 64), (4095, 64), (4096, 256), (65_535, 256), (65_536, 1024)],
)
def test_the_default_takes_few_steps_as_a_corpus_grows(text_mib: int, shard_mib: int) -> None:
    assert default_shard_bytes(text_mib * MIB) == shard_mib * MIB
