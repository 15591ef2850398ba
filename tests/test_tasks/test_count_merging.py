"""Merging counts: in any blocks and any tree the sum is that of all counts at once, in bounded memory."""

import subprocess
import sys
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.tasks.count.counter import add_up
from tokmill.tasks.count.merging import FAN_IN, MOST_LEVELS, level_of, merge_streams, parts_of, streams_of
from tokmill.tasks.count.stage import MergeParams, run_merge
from tokmill.tasks.formats.counts import (
    COUNTS_FILE,
    CountsStatistics,
    read_counts,
    write_counts,
)
from tokmill.tokenizer import PretokenCounts

PRETOKENS = st.dictionaries(st.binary(max_size=4), st.integers(1, 1 << 40), max_size=40)
CHECKOUT = Path(__file__).parents[2]
PEAK = """
import sys
from itertools import pairwise
from pathlib import Path
from tests.peak import peak_bytes
from tokmill.tasks.count.counter import add_up
file, number, num_pretokens, memory_bytes = Path(sys.argv[1]), *map(int, sys.argv[2:])
add_up([file] * number, file.with_name("sum.parquet"), num_pretokens, memory_bytes)
print(peak_bytes())
"""


def blocks_of(counts: PretokenCounts, ends: list[int]) -> list[PretokenCounts]:
    """Counts in blocks that end there; some are empty."""
    bounds = [0, *sorted(min(end, len(counts)) for end in ends), len(counts)]
    return [
        PretokenCounts(
            counts.data[counts.offsets[first] : counts.offsets[end]],
            counts.offsets[first : end + 1] - counts.offsets[first],
            counts.counts[first:end],
        )
        for first, end in pairwise(bounds)
    ]


@given(st.lists(st.tuples(PRETOKENS, st.lists(st.integers(0, 40), max_size=5)), max_size=6))
def test_blocks_do_not_change_a_sum(streams: list[tuple[dict[bytes, int], list[int]]]) -> None:
    given_blocks = [blocks_of(PretokenCounts.from_dict(words), ends) for words, ends in streams]
    found: list[tuple[bytes, int]] = []
    for part in merge_streams(given_blocks):
        found += part.to_dict().items()
    expected: Counter[bytes] = Counter()
    for words, _ in streams:
        expected.update(words)
    assert found == sorted(expected.items())


@given(st.integers(0, 3 * FAN_IN**3))
def test_a_tree_has_every_shard_once_and_in_order(num_shards: int) -> None:
    for level in range(MOST_LEVELS):
        groups = level_of(num_shards, level)
        assert [part for group in groups for part in group] == parts_of(num_shards, level)
        assert all(len(group) <= FAN_IN for group in groups)
    parts = parts_of(num_shards)
    assert [shard for part in parts for shard in part] == list(range(num_shards))
    assert len(parts) <= FAN_IN


@pytest.mark.parametrize(
    ("num_shards", "merges"),
    [
        (FAN_IN, [0, 0, 0]),
        (FAN_IN + 1, [1, 0, 0]),
        (FAN_IN + 2, [2, 0, 0]),
        (FAN_IN**2, [FAN_IN, 0, 0]),
        (FAN_IN**2 + 1, [FAN_IN, 1, 0]),
        (FAN_IN**3 + 1, [FAN_IN**2, FAN_IN, 1]),
    ],
)
def test_a_level_is_there_only_where_the_last_one_left_too_many(num_shards: int, merges: list[int]) -> None:
    found = [sum(len(group) > 1 for group in level_of(num_shards, level)) for level in range(MOST_LEVELS)]
    assert found == merges


def write_shard(folder: Path, words: dict[bytes, int]) -> Path:
    folder.mkdir()
    totals = write_counts(folder / COUNTS_FILE, PretokenCounts.from_dict(words))
    statistics = CountsStatistics(num_documents=2, num_bytes=5, **totals._asdict())
    statistics.save(folder)
    return folder


@pytest.mark.parametrize(
    "number", [1, 2, FAN_IN - 1, FAN_IN, FAN_IN + 1, pytest.param(FAN_IN**2 + 1, marks=pytest.mark.slow)]
)
def test_files_add_up_to_the_same_bytes_whatever_the_memory(tmp_path: Path, number: int) -> None:
    words = [
        {f"{index * 37 % 5000}".encode(): 1, bytes([index % 251]) * 9: 3, b"": index + 1}
        for index in range(number)
    ]
    paths = [tmp_path / f"{index}.parquet" for index in range(number)]
    for path, counts in zip(paths, words, strict=True):
        write_counts(path, PretokenCounts.from_dict(counts))
    expected: Counter[bytes] = Counter()
    for counts in words:
        expected.update(counts)
    write_counts(tmp_path / "expected", PretokenCounts.from_dict(expected))
    for memory_bytes in (0, 1 << 30):
        add_up(paths, tmp_path / "sum", expected.total(), memory_bytes)
        assert (tmp_path / "sum").read_bytes() == (tmp_path / "expected").read_bytes()
    assert not list(tmp_path.glob(".sums-*"))


def test_files_of_many_blocks_add_up(tmp_path: Path) -> None:
    shards = [{f"{word * step:06}".encode(): step for word in range(3_000)} for step in (1, 2, 3)]
    expected: Counter[bytes] = Counter()
    for index, words in enumerate(shards):
        write_counts(tmp_path / f"{index}.parquet", PretokenCounts.from_dict(words))
        expected.update(words)
    paths = [tmp_path / f"{index}.parquet" for index in range(3)]
    for num_rows in (1, 999, 1000, 3_001):
        parts = list(merge_streams(streams_of(paths, num_rows)))
        assert {key: count for part in parts for key, count in part.to_dict().items()} == expected
    add_up(paths, tmp_path / "sum.parquet", expected.total(), 0)
    assert read_counts(tmp_path / "sum.parquet").to_dict() == expected


def test_merged_shards_are_a_shard(tmp_path: Path) -> None:
    shards = [write_shard(tmp_path / "a", {b"x": 1, b"y": 2}), write_shard(tmp_path / "b", {b"y": 5})]
    (tmp_path / "out").mkdir()
    outcome = run_merge(MergeParams(), out=tmp_path / "out", shards=shards)
    assert read_counts(tmp_path / "out" / COUNTS_FILE).to_dict() == {b"x": 1, b"y": 7}
    assert outcome.metrics == {"num_documents": 4, "num_bytes": 10, "num_pretokens": 8, "num_distinct": 2}
    assert all(account.balanced for account in outcome.accounts)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    def peak(num_words: int, num_files: int) -> int:
        words = {f"{word * 7919:012}".encode(): 1 for word in range(num_words)}
        write_counts(tmp_path / "a.parquet", PretokenCounts.from_dict(words))
        numbers = [num_files, num_files * num_words, 16 << 20]
        command = [sys.executable, "-c", PEAK, str(tmp_path / "a.parquet"), *map(str, numbers)]
        return int(subprocess.run(command, cwd=CHECKOUT, check=True, capture_output=True, text=True).stdout)

    few, many = peak(200_000, 2), peak(1_000_000, FAN_IN)
    assert many - few < 160 << 20  # 32 million counts take more than 800 MiB
