"""Where shards end: sizes, independence of batches, and changes that affect only nearby shards."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.hostile_names import HOSTILE
from tests.test_tasks.reading import COMPRESSORS, ingested
from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.detection import Contents
from tokmill.tasks.formats.text.documents import documents_of, file_batch
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


def cut_points(texts: list[bytes], limits: Limits, batch: int) -> list[int]:
    """Return the indices of documents that begin a shard, given `batch` documents at a time."""
    cutter, found = Cutter(limits), []
    for start in range(0, len(texts), batch):
        one_batch = file_batch(texts[start : start + batch], np.arange(len(texts[start : start + batch])))
        cuts = cutter.cuts(one_batch.lengths + 1, may_end(one_batch.data, one_batch.offsets, limits))
        found += [start + cut for cut in cuts]
    return [cut for cut in found if cut < len(texts)]


def reference(texts: list[bytes], limits: Limits) -> list[int]:
    """The rule, one document at a time."""
    found: list[int] = []
    size = 0
    for index, text in enumerate(texts):
        one_batch = file_batch([text], np.zeros(1, dtype=np.int64))
        weight = len(text) + 1
        if size and size + weight > limits.maximum:
            found.append(index)
            size = 0
        size += weight
        if size >= limits.minimum and may_end(one_batch.data, one_batch.offsets, limits)[0]:
            found.append(index + 1)
            size = 0
    return [cut for cut in found if cut < len(texts)]


DOCUMENTS = st.lists(
    st.one_of(st.binary(max_size=30), st.integers(0, 2500).map(lambda size: b"x" * size), st.just(b"")),
    max_size=60,
)


@given(DOCUMENTS, st.integers(1, 61))
@example([b"x" * 9] * (SMALL.maximum // 10 + 40), 7)  # exactly the maximum
def test_the_rule_whatever_the_batches(texts: list[bytes], batch: int) -> None:
    assert cut_points(texts, SMALL, batch) == reference(texts, SMALL)


def test_whether_a_document_may_end_a_shard_depends_on_it_alone() -> None:
    texts = [b"%d %s" % (number, b"text " * (number % 11)) for number in range(2000)] + [
        b"",
        b"a",
        b"1234567",
    ]
    together = file_batch(texts, np.arange(len(texts)))
    alone = [file_batch([text], np.zeros(1, dtype=np.int64)) for text in texts]

    marks = may_end(together.data, together.offsets, SMALL)

    assert marks.tolist() == [bool(may_end(one.data, one.offsets, SMALL)[0]) for one in alone]
    # A document of n bytes may end a shard with probability (n + 1) / (average - minimum).
    expected = sum(min(1.0, (len(text) + 1) / (SMALL.average - SMALL.minimum)) for text in texts)
    assert abs(marks.sum() - expected) < 4 * expected**0.5


def numbered(numbers: range, words: int = 12) -> list[bytes]:
    return [b"document %d: %s" % (number, b"some words " * (1 + number * 7919 % words)) for number in numbers]


def digests(folder: Path, texts: list[bytes], limits: Limits, name: str = "a.txt") -> list[str]:
    path = folder / name
    path.write_bytes(b"".join(text + b"\n" for text in texts))
    return [shard.digest for shard in scan_file(path, name, "s", LINES, limits).shards]


def test_a_changed_document_changes_only_the_shards_around_it(tmp_path: Path) -> None:
    limits = Limits(8192)
    texts = numbered(range(3000))
    before = digests(tmp_path, texts, limits)
    changed = []
    for at in range(0, 3000, 100):
        changes = (
            [*texts[:at], b"something new", *texts[at:]],
            texts[:at] + texts[at + 1 :],
            [*texts[:at], b"something else", *texts[at + 1 :]],
        )
        changed += [len(set(digests(tmp_path, after, limits)) - set(before)) for after in changes]

    # One shard has to change; if the change is at an end, one or two more, until an old end is met again.
    assert sum(changed) / len(changed) < 1.3
    assert max(changed) <= 5


@settings(max_examples=25)
@given(st.integers(0, 400), st.lists(st.binary(max_size=900).map(lambda b: b.hex().encode()), max_size=3))
def test_shards_before_a_change_stay(scratch: Path, at: int, new: list[bytes]) -> None:
    limits = Limits(2048)
    texts = numbered(range(400))
    path = scratch / "a.txt"
    path.write_bytes(b"\n".join(texts))
    before = scan_file(path, "a.txt", "s", LINES, limits).shards

    after = digests(scratch, texts[:at] + new + texts[at:], limits)

    ends = [shard.segments[0].first_row + shard.segments[0].num_rows for shard in before]
    untouched = [shard.digest for shard, end in zip(before, ends, strict=True) if end < at]
    assert after[: len(untouched)] == untouched


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scratch")


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

    changed = []
    for number in range(0, 600, 37):
        name = f"folder/{number:04d}.txt"
        changes = (
            {**files, name: files[name] + b"y"},
            {**files, name + "x": b"new"},
            {key: value for key, value in files.items() if key != name},
        )
        changed += [len({draft.digest for draft in grouped(one, limits)} - before) for one in changes]

    assert sum(changed) / len(changed) < 1.3
    assert max(changed) <= 4


def test_groups_are_bounded_and_hold_every_file_once() -> None:
    limits = Limits(4096)
    files = {f"{number}.txt": b"x" * (number * 31 % 4000) for number in range(300)}
    never = (name for name in map(str, range(400)) if not name_may_end(name, 1000, limits))
    files |= dict.fromkeys(never, b"x" * 999)  # groups of these end where they are full

    drafts = grouped(files, limits)

    names = [segment.file for draft in drafts for segment in draft.segments]
    assert names == sorted(files)
    assert all(draft.num_bytes + draft.num_documents <= limits.maximum for draft in drafts)
    assert all(draft.num_bytes + draft.num_documents >= limits.minimum for draft in drafts[:-1])
    for draft in drafts:
        firsts = [segment.first_ordinal for segment in draft.segments]
        assert firsts == list(range(len(firsts)))


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESSORS if suffix])
def test_a_compressed_file_has_sixteen_shards_at_most(tmp_path: Path, suffix: str) -> None:
    # So repetitive that its text is a hundred times its size: the rule must hold anyway.
    content = b"".join(b"document %d\n" % (number % 50) + b"x" * 300 + b"\n" for number in range(4000))
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESSORS[suffix](content))

    shards = scan_file(path, path.name, "s", LINES, Limits(4096)).shards

    assert 1 < len(shards) <= MAX_SHARDS_FROM_START
    assert sum(shard.num_documents for shard in shards) == 8000


def test_limits_of_files_that_are_read_from_their_start() -> None:
    limits = Limits(4 << 20)
    mib = 1 << 20

    assert limits.of_file(9999 * mib, compressed=False) == limits
    assert limits.of_file(8 * mib, compressed=True).average == 4 * mib
    assert limits.of_file(9 * mib, compressed=True).average == 8 * mib
    assert limits.of_file(10 * mib, compressed=True).average == 8 * mib  # a little more changes nothing
    assert limits.of_file(0, compressed=False, row_group_bytes=65 * mib).average == 8 * mib
    assert limits.of_file(0, compressed=False, row_group_bytes=65 * mib).max_shards is None


@given(st.lists(st.binary(max_size=6), max_size=12), st.integers(1, 13))
def test_the_digest_does_not_depend_on_batches(texts: list[bytes], batch: int) -> None:
    def digest(size: int) -> str:
        hasher = ShardHasher()
        for start in range(0, len(texts), size):
            one_batch = file_batch(
                texts[start : start + size], np.arange(start, min(start + size, len(texts)))
            )
            assert documents_of(one_batch.data, one_batch.offsets) == texts[start : start + size]
            hasher.update(one_batch.rows, one_batch.offsets, one_batch.data)
        return hasher.hexdigest()

    assert digest(batch) == digest(len(texts) + 1)


def test_the_digest_tells_documents_and_ordinals_apart() -> None:
    def digest(texts: list[bytes], ordinals: list[int]) -> str:
        hasher = ShardHasher()
        one_batch = file_batch(texts, np.array(ordinals, dtype=np.int64))
        hasher.update(one_batch.rows, one_batch.offsets, one_batch.data)
        return hasher.hexdigest()

    variants = [
        ([], []),
        ([b""], [0]),
        ([b"ab"], [0]),
        ([b"a", b"b"], [0, 1]),
        ([b"a", b"b"], [0, 2]),
        ([b"ab", b""], [0, 1]),
        ([b"", b"ab"], [0, 1]),
    ]
    assert len({digest(*one) for one in variants}) == len(variants)
    # This digest must never change: shards of this content have it in every store.
    assert digest([b"a", b"b"], [0, 2]) == "ca3b10694dce42cf52ce771d81ddd8f200e87c1cd66f9f754dd281abcfb9a1f5"


def test_a_source_that_grows_keeps_most_of_its_shards(tmp_path: Path) -> None:
    lines = [f"line {number} " + "x" * (number * 7919 % 5000) for number in range(20_000)]
    (tmp_path / "a.txt").write_text("\n".join(lines[:15_000]))
    before = ingested(tmp_path, {"s": {"files": ["a.txt"], "format": "lines"}}, out="one", shard_bytes=None)
    (tmp_path / "a.txt").write_text("\n".join(lines))
    after = ingested(tmp_path, {"s": {"files": ["a.txt"], "format": "lines"}}, out="two", shard_bytes=None)

    digests = [{shard.digest for shard in made.corpus.shards("s")} for made in (before, after)]
    assert len(digests[0]) >= 3
    assert len(digests[0] - digests[1]) == 1  # the last


@pytest.mark.parametrize(
    "name", [name for name in HOSTILE.values() if ".." in name.split("/") or name[:1] == "/"]
)
@pytest.mark.parametrize("root", ["folder", "s3://bucket/folder"])
def test_a_corpus_from_elsewhere_has_no_file_outside_of_its_root_read(tmp_path, root, name):
    segment = FileSegment(file=name, format="text", first_ordinal=0, first_row=0, num_rows=1)
    shard = Shard(
        source="s", index=0, digest="", options=LINES, segments=[segment], num_documents=1, num_bytes=1
    )
    with pytest.raises(SourceError, match="leads out of"):
        next(read_shard(shard, {"s": tmp_path if root == "folder" else root}))


def test_the_default_takes_few_steps_as_a_corpus_grows() -> None:
    sizes = [default_shard_bytes(round(1e6 * 1.1**power)) for power in range(150)]

    assert sizes == sorted(sizes)
    assert len(set(sizes)) == 5


# Measured (benchmarks/log/measurements.md), in CPU seconds: artifacts, a megabyte's work, a run's own part.
def seconds_of_artifacts(number: float) -> float:
    return 0.0013 * number + 0.0003 * number**2


SECONDS_OF_A_MEGABYTE, SECONDS_OF_A_RUN, ARTIFACTS_OF_A_RUN = 0.04, 20, 11


@pytest.mark.parametrize(
    "text_bytes", [30_000_000, *(part << 20 for part in (63, 64, 511, 512, 4096, 63 << 10, 64 << 10)), 10**12]
)
def test_the_default_keeps_orchestration_small_and_leaves_work_for_many(text_bytes: int) -> None:
    num_shards = text_bytes / default_shard_bytes(text_bytes)
    work = SECONDS_OF_A_RUN + SECONDS_OF_A_MEGABYTE * text_bytes / 1e6

    assert seconds_of_artifacts(2 * num_shards + ARTIFACTS_OF_A_RUN) < 0.05 * work
    assert num_shards > (1.9 if text_bytes < 1 << 27 else 5)
    assert num_shards < 1_000
