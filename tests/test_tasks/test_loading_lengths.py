"""A curriculum of sequence lengths: short rows first, every token once, attention within rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_tasks.packings import FIELDS, packed_folder
from tokmill.tasks.core.errors import LoadingError
from tokmill.tasks.formats.packed.reader import PackedReader
from tokmill.tasks.loading import PackedDataset

OWN = 16


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    """Some dozens of sequences of 16 tokens; not to be changed."""
    path = packed_folder(tmp_path_factory.mktemp("lengths"), sequence_length=OWN)
    assert PackedReader.open(path).manifest.sequence_length == OWN
    return path


@pytest.mark.parametrize(
    ("points", "says"),
    [
        ([(5, 8)], "begin at 5; the first must be at 0"),
        ([(0, 8), (0, 16)], "have 0 after 0; starts must ascend"),
        ([(0, 8), (9, 16), (4, 8)], "have 4 after 9; starts must ascend"),
        ([(0, 12)], "have 12, which must be at least 8 and divide the packing's own 16"),
        ([(0, 4)], "have 4, which must be at least 8"),
        ([(0, 32)], "have 32, which must be at least 8 and divide"),
    ],
)
def test_what_makes_no_sense_is_refused(packed, points, says):
    with pytest.raises(LoadingError, match=says):
        PackedDataset(packed, sequence_lengths=points)


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


def test_the_lengths_go_on_from_epoch_to_epoch(packed):
    size = len(PackedReader.open(packed))
    dataset = PackedDataset(packed, batch_size=1, sequence_lengths=[(0, 8), (size + 2, 16)])
    first = [batch["input_ids"].shape for batch in dataset]
    second = [batch["input_ids"].shape for batch in dataset]
    assert first == [(2, 8)] * size
    assert second == [(2, 8)] * 2 + [(1, 16)] * (size - 2)


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(0, 6), st.integers(0, 30), st.integers(1, 3))
def test_another_world_goes_on_with_the_same_rows(packed, world, other, steps, change, batch_size):
    points = [(0, 8), (change + 1, 16)]

    def ranks(number):
        return [
            PackedDataset(
                packed, batch_size=batch_size, rank=rank, world_size=number, sequence_lengths=points
            )
            for rank in range(number)
        ]

    given_out, datasets = [], ranks(world)
    for dataset in datasets:
        for _, batch in zip(range(steps), dataset, strict=False):
            given_out += batch["sequence"].tolist()[:: OWN // batch["input_ids"].shape[1]]
    state = datasets[0].state_dict()
    if state["epoch"]:
        return
    for dataset in ranks(other):
        dataset.load_state_dict(state)
        for batch in dataset:
            given_out += batch["sequence"].tolist()[:: OWN // batch["input_ids"].shape[1]]
    assert sorted(given_out) == list(range(len(PackedReader.open(packed))))
