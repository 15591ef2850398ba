"""Batches whose rows grow, and of shards in a bucket, which come when they are read, a few ahead."""

import re
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.test_tasks.fabricated import FIELDS, LENGTHS, loading_ends, packed_folder, published, sequences
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.loading import PackedDataset
from tokmill.tasks.loading.rows import AHEAD, ShardFetcher

OWN = 16


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Some dozens of sequences of 16 tokens; not to be changed."""
    path = packed_folder(tmp_path_factory.mktemp("lengths"), sequence_length=OWN)
    assert PackedReader.open(path).manifest.sequence_length == OWN
    return path


def one_row(reader, number, first, length):
    """What stands in a row, from the reader's sequence."""
    whole = reader[number]
    stop = first + length
    segments = whole.segment_ids[first:stop]
    begins = np.concatenate([[True], np.diff(segments) != 0])
    starts = np.maximum.accumulate(np.where(begins, np.arange(length), 0))
    is_text = segments > 0
    mask = whole.loss_mask[first:stop].copy()
    mask[0] = False
    return {
        "input_ids": whole.input_ids[first:stop],
        "segment_ids": np.where(is_text, np.cumsum(begins), 0),
        "position_ids": np.where(is_text, np.arange(length) - starts, 0),
        "loss_mask": mask,
    }


@pytest.mark.parametrize("shuffle", [False, True])
def test_rows_are_parts_of_sequences_and_batches_keep_their_tokens(packed, shuffle):
    reader = PackedReader.open(packed)
    points = [(0, 8), (12, 16)]
    dataset = PackedDataset(packed, batch_size=3, fields=FIELDS, shuffle=shuffle, sequence_lengths=points)
    seen = []
    for step, batch in enumerate(dataset):
        length = 8 if 3 * step < 12 else 16
        parts = OWN // length
        assert batch["input_ids"].shape[1] == length
        assert batch["cu_seqlens"][-1] == batch["input_ids"].size
        assert batch["max_seqlen"] <= length
        for row, number in enumerate(batch["sequence"].tolist()):
            expected = one_row(reader, number, row % parts * length, length)
            for name, values in expected.items():
                np.testing.assert_array_equal(batch[name][row], values, err_msg=name)
        seen += batch["sequence"].tolist()[::parts]
    assert sorted(seen) == list(range(len(reader)))


_READ = re.compile(r"/(packed\.json|shard-\d+\.(bin|(cu_seqlens|cu_offsets|document_starts)\.npy))$")


@pytest.fixture(scope="module")
def dozen(tmp_path_factory):
    """A dozen shards; not to be changed."""
    return packed_folder(tmp_path_factory.mktemp("arriving"), LENGTHS * 2)


@pytest.fixture
def there(dozen, bucket, tmp_path, monkeypatch):
    """The artifact's URL in a bucket, for a machine that has nothing of it yet."""
    monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / "publisher"))
    published(dozen, f"{bucket.url}/store")
    monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / "reader"))
    return f"{bucket.url}/store/packed/copied"


def fetched(bucket, ending=".bin"):
    """The numbers of the shards that were asked for."""
    keys = {request.key for request in bucket.requests("GET", f"store/files/*{ending}")}
    return {int(re.search(r"shard-(\d+)", key)[1]) for key in keys}


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.objects
class TestOnABucket:
    @pytest.mark.parametrize("shuffle", [False, True])
    def test_the_first_batch_needs_few_shards(self, dozen, bucket, there, shuffle):
        options = {"batch_size": 2, "shuffle": shuffle, "num_threads": 0, "prefetch": 1}
        with PackedDataset(there, **options) as dataset:
            assert fetched(bucket) == set()
            assert_equal([next(iter(dataset))], [next(iter(PackedDataset(dozen, **options)))])
        assert loading_ends()

        assert len(dataset.manifest.shards) >= 10
        assert 1 <= len(fetched(bucket)) <= 2 + AHEAD
        assert shuffle or fetched(bucket) <= set(range(1 + AHEAD))
        keys = bucket.keys()
        num_bytes = sum(len(bucket.get(key)) for key in keys if key.startswith("store/files/"))
        assert bucket.num_sent(key="store/files/*") < num_bytes / 2

    @pytest.mark.parametrize("shuffle", [False, True])
    @pytest.mark.parametrize("num_threads", [0, 2])
    def test_all_batches_are_the_local_ones_over_lost_connections(
        self, dozen, bucket, there, shuffle, num_threads, monkeypatch
    ):
        monkeypatch.setenv("TOKMILL_CACHE_BYTES", "1KB")  # less than a few shards, which stay nevertheless
        options = {"batch_size": 3, "fields": FIELDS, "shuffle": shuffle, "num_threads": num_threads}
        local, dataset = (PackedDataset(path, prefetch=4, **options) for path in (dozen, there))
        cut = bucket.fault("cut", method="GET", key="store/files/*.bin", num_bytes=100, times=3, skip=2)
        lost = bucket.fault("lose", method="GET", key="store/files/*.npy", times=2, skip=5)
        for _ in range(2):
            assert_equal(list(dataset), list(local))
        assert loading_ends()

        assert (cut.num_applied, lost.num_applied) == (3, 2)
        keys = [request.key for request in bucket.requests("GET", "store/files/*")]
        assert all(map(_READ.search, keys))
        assert fetched(bucket) == set(range(len(dataset.manifest.shards)))
        assert len(list(Path(str(dataset.path)).glob("shard-*.bin"))) == len(dataset.manifest.shards)

    def test_resuming_fetches_what_is_left(self, dozen, bucket, there):
        local = PackedDataset(dozen, batch_size=2)
        first, num_shards = local.manifest.shards[-3].first_sequence, len(local.manifest.shards)
        with PackedDataset(there, batch_size=2) as dataset:
            state = dataset.state_dict() | {"position": first}
            dataset.load_state_dict(state)
            found = sequences(dataset)
        assert loading_ends()

        assert found == list(range(first, local.num_sequences))
        assert fetched(bucket) == set(range(num_shards - 3, num_shards))

    def test_a_changed_object_is_refused_where_it_is_read(self, bucket, there):
        keys = bucket.keys()
        (key,) = (key for key in keys if key.endswith("shard-00004.bin"))
        bucket.put(key, bytes(len(bucket.get(key))))
        dataset = PackedDataset(there, batch_size=1, num_threads=0, prefetch=1)
        seen = []
        with pytest.raises(StoreError, match=r"shard-00004\.bin: has digest .* set aside"):
            seen.extend(batch["sequence"][0] for batch in dataset)

        assert seen == list(range(dataset.manifest.shards[4].first_sequence))


class TestAhead:
    def test_at_most_a_few_come_before_they_are_read(self):
        asked, came = [], threading.Semaphore(0)

        def fetch(position):
            asked.append(position)
            came.release()

        shards = ShardFetcher(fetch, 10)
        shards.follow(iter([3, 3, 1, 4, 1, 5, 9]))
        for _ in range(AHEAD):
            assert came.acquire(timeout=60)
        assert asked == [3, 1]
        shards.need(3)
        assert came.acquire(timeout=60)
        assert asked == [3, 1, 4]
        for needed, next_one in ((5, 5), (1, 9)):  # what was read does not come again
            shards.need(needed)
            assert came.acquire(timeout=60)
            assert asked[-1] == next_one
        shards.stop()
        assert loading_ends()
        assert asked == [3, 1, 4, 5, 9]

    def test_an_error_of_the_thread_is_raised_by_the_reader_once(self):
        threads, failed = [], threading.Event()

        def fetch(position):
            threads.append(threading.current_thread())
            if len(threads) == 1:
                failed.set()
                raise StoreError(f"shard {position} is lost")

        shards = ShardFetcher(fetch, 2)
        shards.follow(iter([0, 1]))
        assert failed.wait(60)
        with pytest.raises(StoreError, match="shard 0 is lost"):
            shards.need(0)
        shards.need(0)
        shards.stop()

        assert threads[0] is not threading.current_thread()
        assert threading.current_thread() in threads
