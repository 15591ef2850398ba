"""A place in an export is a place in the artifact that it came from, and back; and so after a takedown."""

import pytest

from tests.test_tasks.packings import packed_folder, published, sequences
from tokmill.tasks.core.errors import LoadingError
from tokmill.tasks.core.stage import Request
from tokmill.tasks.export.stage import EXPORT, EXPORT_SHARD, ExportParams, ExportShardParams
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.loading import PackedDataset
from tokmill.tasks.store import Store
from tokmill.tasks.takedown.request import listed
from tokmill.tasks.takedown.stage import TAKEDOWN, TakedownParams


def exported(store, packed, formats):
    """Publish an export of the artifact `packed`."""
    shards = []
    for entry in PackedManifest.open(store.path(packed["packed"])).shards:
        params = ExportShardParams(index=entry.index, formats=formats)
        shards.append(store.realize(Request(EXPORT_SHARD, f"s{entry.index}", params, packed)).ref)
    request = Request(EXPORT, "out", ExportParams(formats=formats), {**packed, "shards": shards})
    return store.realize(request).ref


def test_a_state_goes_on_in_the_export_and_back(tmp_path):
    place = published(packed_folder(tmp_path, formats=("memmap",)), tmp_path / "store")
    store = Store.open(tmp_path / "store")
    origin = store.resolve("packed/copied")
    npy = store.path(exported(store, {"packed": origin}, ("npy",)))
    both = store.path(exported(store, {"packed": origin}, ("memmap", "npy")))
    for first, second in ((place, npy), (npy, place), (npy, both)):
        whole = sequences(PackedDataset(first, shuffle=True, batch_size=3))
        before = PackedDataset(first, shuffle=True, batch_size=3)
        batches = iter(before)
        taken = sequences([next(batches), next(batches)])
        after = PackedDataset(second, shuffle=True, batch_size=3)
        after.load_state_dict(before.state_dict())
        assert taken + sequences(after) == whole


def test_a_state_of_a_version_taken_down_does_not_go_back(tmp_path):
    place = published(packed_folder(tmp_path, formats=("memmap",)), tmp_path / "store")
    store = Store.open(tmp_path / "store")
    origin = store.resolve("packed/copied")
    request = Request(TAKEDOWN, "less", TakedownParams(), {"packed": origin, "documents": listed([])})
    less = store.realize(request).ref
    export = store.path(exported(store, {"packed": less}, ("npy",)))
    state = PackedDataset(place).state_dict()
    PackedDataset(export).load_state_dict(state)
    with pytest.raises(LoadingError, match="open the artifact that the state was taken"):
        PackedDataset(place).load_state_dict(PackedDataset(export).state_dict())
