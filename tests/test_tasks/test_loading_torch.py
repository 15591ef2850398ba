"""The loader's torch adapter, where torch is installed: the same batches whatever the workers, and places."""

import json

import numpy as np
import pytest

from tests.test_tasks.fabricated import FIELDS, packed_folder, sequences
from tokmill.tasks.core.errors import LoadingError
from tokmill.tasks.loading import PackedDataset

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),  # on one core
]


@pytest.fixture(scope="module")
def packed(tmp_path_factory):
    return packed_folder(tmp_path_factory.mktemp("torch"))


def loader(dataset, num_workers=0, **options):
    if num_workers:
        options["multiprocessing_context"] = "fork"
    return torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=num_workers, **options)


def test_tensors_hold_what_the_arrays_hold(packed):
    arrays = list(PackedDataset(packed, batch_size=3, fields=FIELDS))
    tensors = list(loader(PackedDataset(packed, batch_size=3, fields=FIELDS).to_torch()))
    assert len(arrays) == len(tensors)
    for expected, found in zip(arrays, tensors, strict=True):
        assert expected.keys() == found.keys()
        assert found["input_ids"].dtype == torch.int64
        assert type(found["max_seqlen"]) is int
        for name, values in expected.items():
            np.testing.assert_array_equal(np.asarray(found[name]), values)


@pytest.mark.parametrize("num_workers", [1, 2])
def test_worker_processes_change_nothing(packed, num_workers):
    options = {"batch_size": 3, "shuffle": True, "rank": 1, "world_size": 2}
    expected = sequences(PackedDataset(packed, **options))
    found = loader(PackedDataset(packed, **options).to_torch(), num_workers)
    assert sequences(found) == expected


def test_a_state_with_worker_processes_is_true_or_refused(packed):
    dataset = PackedDataset(packed, batch_size=2).to_torch()
    batches = loader(dataset, 2)
    assert len(batches) == len(dataset) == len(list(batches))
    dataset.set_epoch(1)
    assert dataset.state_dict()["position"] == 0
    next(iter(batches))

    with pytest.raises(LoadingError, match=r"state_dict\(num_batches=n\)"):
        dataset.state_dict()
    assert dataset.state_dict(1)["position"] == 2


def test_workers_that_live_on_go_on_with_the_next_epoch(packed):
    alone = PackedDataset(packed, batch_size=4, shuffle=True)
    batches = loader(PackedDataset(packed, batch_size=4, shuffle=True).to_torch(), 2, persistent_workers=True)
    assert [sequences(batches) for _ in range(2)] == [sequences(alone) for _ in range(2)]


def test_a_state_from_among_workers_goes_on_elsewhere(packed):
    dataset = PackedDataset(packed, batch_size=2, shuffle=True).to_torch()
    taken = [batch for batch, _ in zip(loader(dataset, 2), range(5), strict=False)]
    state = json.loads(json.dumps(dataset.state_dict(5)))
    rest = PackedDataset(packed, batch_size=3, shuffle=True).to_torch()
    rest.load_state_dict(state)
    assert sequences(taken) + sequences(rest) == sequences(PackedDataset(packed, shuffle=True))
