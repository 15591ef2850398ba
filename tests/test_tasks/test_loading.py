"""The loader: every epoch once over all ranks and workers, places to go back to, threads that end."""

import gc
import json
import pickle
import shutil
from collections import Counter

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.test_tasks.fabricated import FIELDS, loading_ends, numbered, packed_folder, published, sequences
from tokmill.tasks.core.errors import LoadingError, StoreError
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.loading import PackedDataset
from tokmill.tasks.loading.rows import PackedRows, read_ahead
from tokmill.tasks.loading.split import Order


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Some dozens of sequences in several shards; not to be changed."""
    return packed_folder(tmp_path_factory.mktemp("loading"))


def size_of(packed):
    return len(PackedReader.open(packed))


class TestBatches:
    @pytest.mark.parametrize("shuffle", [False, True])
    @pytest.mark.parametrize("dtype", ["stored", "int32", "int64"])
    def test_hold_what_the_reader_gives(self, packed, shuffle, dtype):
        reader = PackedReader.open(packed)
        dataset = PackedDataset(
            packed, batch_size=3, fields=(*FIELDS, "bounds"), dtype=dtype, shuffle=shuffle, prefetch=64
        )
        seen = []
        for batch in dataset:
            assert batch["input_ids"].dtype == (np.uint16 if dtype == "stored" else np.dtype(dtype))
            for row, number in enumerate(batch["sequence"].tolist()):
                expected = reader[number]
                for name in ("input_ids", "position_ids", "segment_ids", "loss_mask", "labels"):
                    np.testing.assert_array_equal(batch[name][row], getattr(expected, name))
                assert (batch["loss_mask"].dtype, batch["labels"].dtype) == (np.bool_, np.int64)
                np.testing.assert_array_equal(batch["bounds"][row], expected.cu_seqlens)
                seen.append(number)
        assert sorted(seen) == list(range(len(reader)))
        assert (seen == sorted(seen)) != shuffle

    def test_a_field_alone_is_what_it_is_among_all(self, packed):
        fields = (*FIELDS, "bounds")
        for field in fields:
            alone = PackedDataset(packed, batch_size=3, fields=[field])
            for one, batch in zip(alone, PackedDataset(packed, batch_size=3, fields=fields), strict=True):
                assert one.keys() - {"max_seqlen"} == {"sequence", field}
                np.testing.assert_equal(one[field], batch[field])

    def test_what_is_kept_of_them_stays_as_it_is(self, packed):
        batches = PackedDataset(packed, batch_size=3, fields=FIELDS, prefetch=1)
        kept = [
            (batch["sequence"], batch["labels"].T, batch["loss_mask"].view(np.uint8)) for batch in batches
        ]
        reader = PackedReader.open(packed)
        for numbers, labels, mask in kept:
            expected = [reader[number] for number in numbers.tolist()]
            np.testing.assert_array_equal(labels.T, [one.labels for one in expected])
            np.testing.assert_array_equal(mask, [one.loss_mask for one in expected])

    @pytest.mark.parametrize("first", [0, 1, 100, 1 << 31])
    def test_a_shard_alone_is_counted_from_its_first_sequence(self, packed, tmp_path, first):
        folder = shutil.copytree(packed, tmp_path / "alone")
        manifest = json.loads((folder / "packed.json").read_text())
        for entry in manifest["shards"]:
            entry["first_sequence"] += first
        (folder / "packed.json").write_text(json.dumps(manifest))
        reader, expected = PackedReader.open(folder), PackedReader.open(packed)
        for batch in PackedDataset(folder, shuffle=True, dtype="int64"):
            for row, number in enumerate(batch["sequence"].tolist()):
                np.testing.assert_array_equal(batch["input_ids"][row], expected[number].input_ids)
                np.testing.assert_array_equal(reader[number].input_ids, expected[number].input_ids)

    def test_wide_vocabularies(self, tmp_path):
        path = packed_folder(tmp_path, [40], vocab_size=70_000, strategy="concat", shuffle_window=0)
        documents = numbered([40], vocab_size=70_000)
        for dtype, expected in (("stored", np.uint32), ("int32", np.int32), ("int64", np.int64)):
            (batch,) = PackedDataset(path, dtype=dtype)
            assert batch["input_ids"].dtype == expected
            assert batch["input_ids"].reshape(-1)[:40].tolist() == documents[0]


MOST = ((1 << 31) - 1) // 16
"""The largest batch whose bounds are of 32 bits."""


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rank": 2, "world_size": 2}, r"rank=2 must be in \[0, 2\), as world_size=2"),
        ({"rank": -1}, r"rank=-1 must be in \[0, 1\)"),
        ({"world_size": 0}, "world_size=0 must be at least 1"),
        ({"batch_size": 0}, "batch_size=0 must be at least 1"),
        ({"batch_size": MOST + 1, "fields": ["cu_seqlens"]}, f"use a batch_size of at most {MOST}"),
        ({"remainder": "pad"}, "remainder='pad' must be one of keep, drop, wrap"),
        ({"fields": ["targets"]}, "fields has 'targets'; choose from input_ids"),
        ({"fields": []}, "fields is empty"),
        ({"dtype": "int16"}, "dtype='int16' must be one of stored, int32, int64"),
        ({"seed": -1}, "seed=-1 must be at least 0"),
        ({"prefetch": 0}, "prefetch=0 must be at least 1"),
        ({"sequence_lengths": [(5, 8)]}, "begin at 5; the first must be at 0"),
        ({"sequence_lengths": [(0, 8), (0, 16)]}, "have 0 after 0; starts must ascend"),
        ({"sequence_lengths": [(0, 8), (9, 16), (4, 8)]}, "have 4 after 9; starts must ascend"),
        ({"sequence_lengths": [(0, 12)]}, "have 12, which must be at least 8 and divide .* own 16"),
        ({"sequence_lengths": [(0, 4)]}, "have 4, which must be at least 8"),
        ({"sequence_lengths": [(0, 32)]}, "have 32, which must be at least 8 and divide"),
    ],
)
def test_what_is_out_of_range(packed, given, message):
    PackedDataset(packed, batch_size=MOST, fields=["cu_seqlens"])
    with pytest.raises(LoadingError, match=message):
        PackedDataset(packed, **given)


worlds = st.fixed_dictionaries({"batch_size": st.integers(1, 5), "world_size": st.integers(1, 9)})


class TestEpochs:
    @pytest.mark.parametrize("remainder", ["keep", "drop", "wrap"])
    @settings(max_examples=25)
    @given(worlds, st.integers(1, 3), st.booleans(), st.integers(0, 2), st.none() | st.integers(1, 9))
    def test_any_world_covers_an_epoch(
        self, packed, remainder, world, num_workers, shuffle, num_threads, prefetch
    ):
        options = {**world, "shuffle": shuffle, "num_threads": num_threads, "prefetch": prefetch}
        options["remainder"] = remainder
        found, numbers = Counter(), set()
        for rank in range(world["world_size"]):
            whole = PackedDataset(packed, rank=rank, **options)
            alone = batches_of(whole)
            workers = (PackedDataset(packed, rank=rank, **options) for _ in range(num_workers))
            parts = [batches_of(one.for_worker(k, num_workers)) for k, one in enumerate(workers)]
            assert in_turn(parts) == alone
            assert (whole.epoch, whole.num_batches, len(whole)) == (1, len(alone), len(alone))
            assert remainder == "keep" or {len(batch) for batch in alone} <= {world["batch_size"]}
            numbers.add(len(alone))
            found.update(number for batch in alone for number in batch)
        size, stride = size_of(packed), world["batch_size"] * world["world_size"]
        wanted = {"keep": size, "drop": size // stride * stride, "wrap": -(-size // stride) * stride}
        assert found.total() == wanted[remainder]
        assert max(found.values(), default=0) <= (-(-stride // size) + 1 if remainder == "wrap" else 1)
        assert remainder == "drop" or len(found) == size
        assert max(numbers) - min(numbers) <= (remainder == "keep")

    def test_each_has_an_order_of_its_own(self, packed):
        dataset = PackedDataset(packed, shuffle=True, seed=3)
        epochs = [sequences(dataset) for _ in range(3)]
        assert len({tuple(epoch) for epoch in epochs}) == 3
        assert dataset.epoch == 3
        again = PackedDataset(packed, shuffle=True, seed=3)
        again.set_epoch(2)
        next(iter(again))
        again.set_epoch(2)  # changes nothing
        assert again.position == 8
        assert sequences(again) == epochs[2][8:]
        with pytest.raises(LoadingError, match="epoch=-1"):
            again.set_epoch(-1)
        assert sequences(PackedDataset(packed, shuffle=True, seed=4)) != epochs[0]

    def test_the_orders_are_pinned(self):
        """If these change, every training run that goes on from a state would read other sequences."""
        order = Order(10, True, 7)
        assert order.sequences(0, np.arange(10)).tolist() == [7, 3, 2, 9, 0, 5, 4, 1, 8, 6]
        large = Order(3_000_000, True, 7)
        assert large.sequences(1, np.arange(4)).tolist() == [2581798, 1551821, 1089922, 2460704]


def batches_of(dataset):
    return [batch["sequence"].tolist() for batch in dataset]


def in_turn(parts):
    """What a DataLoader makes of its workers' batches: one of each in turn, until none has any."""
    longest = max(map(len, parts))
    return [part[k] for k in range(longest) for part in parts if k < len(part)]


class TestState:
    @settings(max_examples=25)
    @given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 30), st.integers(0, 2))
    @example(1, 1, 34, 0)  # a step is left
    def test_going_on_gives_what_would_have_come(self, packed, batch_size, world_size, stop, num_threads):
        options = {"batch_size": batch_size, "world_size": world_size, "num_threads": num_threads}
        options |= {"shuffle": True, "remainder": "drop"}
        for rank in range(world_size):
            undisturbed = PackedDataset(packed, rank=rank, **options)
            expected = [batch for _ in range(3) for batch in batches_of(undisturbed)]
            first, state = taken(PackedDataset(packed, rank=rank, **options), stop, num_epochs=3)
            second = PackedDataset(packed, rank=rank, **options)
            second.load_state_dict(json.loads(json.dumps(state)))
            rest = []
            while second.epoch < 3:
                rest += batches_of(second)
            assert first + rest == expected

    @settings(max_examples=25)
    @given(worlds, worlds, st.integers(1, 3), st.integers(0, 6), st.booleans())
    def test_another_world_gets_exactly_what_is_left(
        self, packed, before, after, num_workers, num_steps, shuffle
    ):
        seen, states = [], []
        for rank in range(before["world_size"]):
            dataset = PackedDataset(packed, rank=rank, shuffle=shuffle, **before)
            batches, state = taken(dataset, num_steps)
            seen += [number for batch in batches for number in batch]
            states.append(state)
        state = states[0]
        assert state["epoch"] == 0 or sorted(seen) == list(range(size_of(packed)))
        for rank in range(after["world_size"] if state["epoch"] == 0 else 0):
            dataset = PackedDataset(packed, rank=rank, shuffle=shuffle, **after)
            dataset.load_state_dict(state)
            for worker in range(num_workers):
                seen += sequences(dataset.for_worker(worker, num_workers))
        assert sorted(seen) == list(range(size_of(packed)))

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"dataset": "0" * 64}, "the state is of the dataset 0000000000000000"),
            ({"seed": 1}, "seed=1.*seed=0"),
            ({"shuffle": True}, "taken with shuffle=True"),
            ({"position": 10_000}, "position=10000 is not a place among"),
            ({"position": "0"}, "position missing or mistyped"),
            ({"epoch": None}, "epoch missing or mistyped"),
            ({"format": 2}, "has format 2, and this tokmill reads 1"),
        ],
    )
    def test_what_is_no_state_of_this_dataset(self, packed, change, message):
        dataset = PackedDataset(packed)
        with pytest.raises(LoadingError, match=message):
            dataset.load_state_dict(dataset.state_dict() | change)
        with pytest.raises(LoadingError, match="state of a PackedDataset"):
            dataset.load_state_dict({})

    def test_a_copy_is_at_the_same_place(self, packed):
        dataset = PackedDataset(packed, batch_size=3, shuffle=True)
        iterator = iter(dataset)
        next(iterator)
        copy = pickle.loads(pickle.dumps(dataset))
        fresh = PackedDataset(packed, batch_size=3, shuffle=True)
        assert copy.state_dict() == dataset.state_dict() == fresh.state_dict(1)
        assert sequences(copy) == sequences(iterator)


def taken(dataset, number, num_epochs=1):
    """The sequences of the first `number` batches, or of all batches of some epochs, and the state then."""
    found = []
    while len(found) < number and dataset.epoch < num_epochs:
        for batch in dataset:
            found.append(batch["sequence"].tolist())
            if len(found) == number:
                break
    return found, dataset.state_dict()


class TestThreads:
    def test_end_when_nobody_holds_the_iterator(self, packed):
        iterator = iter(PackedDataset(packed, batch_size=1, prefetch=4))
        next(iterator)
        del iterator
        gc.collect()
        assert loading_ends()

    def test_another_iteration_ends_the_one_before(self, packed):
        dataset = PackedDataset(packed, batch_size=1, prefetch=4)
        first = iter(dataset)
        numbers = sequences([next(first), next(first)])
        second = iter(dataset)
        assert next(first, None) is None
        assert numbers + sequences(second) == list(range(size_of(packed)))

    def test_end_with_what_went_wrong_in_one_of_them(self, packed, tmp_path):
        copied = tmp_path / "packed"
        shutil.copytree(packed, copied)
        dataset = PackedDataset(copied, batch_size=1, prefetch=4)
        (copied / "shard-00001.bin").unlink()
        found = []
        with pytest.raises(StoreError, match=r"shard-00001\.bin"):
            found.extend(dataset)
        assert sequences(found) == list(range(len(found)))
        assert dataset.position == len(found) <= 7
        assert loading_ends()

    def test_give_all_items_in_order_even_if_they_cannot_read_them(self):
        numbers = read_ahead(lambda listed: 1 // (listed[0] % 3), range(99), num_threads=2, ahead=3, most=4)
        assert list(numbers) == list(range(99))

    def test_what_they_have_touched_needs_the_files_no_more(self, packed, tmp_path):
        copied = shutil.copytree(packed, tmp_path / "packed")
        rows, numbers = PackedRows(copied, PackedReader.open(packed).manifest), np.arange(size_of(packed))
        rows.touch(numbers)
        for file in copied.glob("shard-*"):
            file.unlink()
        tokens = np.empty((len(numbers), 16), dtype=np.uint16)
        rows.read_tokens(numbers[::-1], tokens)
        np.testing.assert_array_equal(tokens[::-1], [one.input_ids for one in PackedReader.open(packed)])


class TestFiles:
    def test_parquet_alone_is_not_loaded(self, tmp_path):
        path = packed_folder(tmp_path, formats=["parquet"])
        with pytest.raises(LoadingError, match=r"as parquet only.*formats = \['memmap'\], or export"):
            PackedDataset(path)

    def test_without_a_record_sizes_are_compared(self, packed, tmp_path):
        copied = tmp_path / "packed"
        shutil.copytree(packed, copied)
        with (copied / "shard-00002.bin").open("ab") as file:
            file.write(b"\0")
        with pytest.raises(StoreError, match=r"shard-00002\.bin: 225 bytes must be 224"):
            PackedDataset(copied)

    def test_with_a_record_digests_are_compared(self, packed, tmp_path):
        place = published(packed, tmp_path / "store")
        moved = tmp_path / "called otherwise"
        shutil.copytree(place, moved)
        state = PackedDataset(place).state_dict()
        PackedDataset(moved).load_state_dict(state)
        data = bytearray((moved / "shard-00000.bin").read_bytes())
        data[5] ^= 1
        (moved / "shard-00000.bin").write_bytes(data)
        assert len(list(PackedDataset(moved, verify=False))) > 0
        dataset = PackedDataset(moved)
        with pytest.raises(StoreError, match=r"shard-00000\.bin: the file has digest .* was published with"):
            next(iter(dataset))
        (moved / "shard-00000.bin").write_bytes(data[:-1])
        with pytest.raises(StoreError, match=r"shard-00000\.bin: has 223 bytes"):
            PackedDataset(moved)
