"""What the loader opens: artifacts by name, exports that go on from a state; docs/loading.md runs."""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

from tests.test_tasks.fabricated import LENGTHS, packed_folder, published, sequences
from tokmill import tokenizer
from tokmill.tasks.core.errors import LoadingError
from tokmill.tasks.core.stage import Request
from tokmill.tasks.formats.packed.manifest import PackedManifest
from tokmill.tasks.loading import Field, PackedDataset, Remainder
from tokmill.tasks.packing.export import EXPORT, EXPORT_SHARD, ExportParams, ExportShardParams
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
    first = exported(store, {"packed": store.resolve("packed/copied")}, ("memmap",))
    request = Request(TAKEDOWN, "less", TakedownParams(), {"packed": first, "documents": listed([])})
    less = store.realize(request).ref
    export = store.path(exported(store, {"packed": less}, ("npy",)))
    state = PackedDataset(place).state_dict()
    PackedDataset(export).load_state_dict(state)
    with pytest.raises(LoadingError, match="open the artifact that the state was taken"):
        PackedDataset(place).load_state_dict(PackedDataset(export).state_dict())


def test_a_name_is_looked_up_in_the_store_of_the_environment(traced, monkeypatch, tmp_path):
    by_folder = tokenizer.load(traced.store.path(traced.store.resolve("tokenizer/line")))
    assert tokenizer.load("tokenizer/line@v1", store=traced.store.root) == by_folder
    monkeypatch.setenv("TOKMILL_STORE", str(traced.store.root))
    assert tokenizer.load("tokenizer/line") == by_folder
    with PackedDataset("packed/line") as dataset:
        assert dataset.path == traced.store.path(traced.packed)
    copy = shutil.copytree(dataset.path, tmp_path / "packed" / "line")  # a folder called like a name
    with PackedDataset(copy) as dataset:
        assert dataset.path == copy


def test_a_name_without_a_store_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("TOKMILL_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        LoadingError, match="packed/line is not a folder, and there is no store at tokmill-store"
    ):
        PackedDataset("packed/line")


BLOCKS = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return (checkout / "docs" / "loading.md").read_text(encoding="utf-8")


def test_the_code_runs(page: str, tmp_path: Path) -> None:
    path = packed_folder(tmp_path, lengths=LENGTHS * 20, sequence_length=1024)
    dataset = PackedDataset(path, shuffle=True, seed=1)
    list(dataset)
    names = {"path": path, "state": dataset.state_dict()}
    blocks, has_torch = BLOCKS.findall(page), importlib.util.find_spec("torch") is not None
    assert len(blocks) >= 4
    for block in (block for block in blocks if has_torch or "torch" not in block):
        scope = {**names, "PackedDataset": PackedDataset}
        exec(compile(block, "docs/loading.md", "exec"), scope)
        if "dataset.epoch" in block:
            assert scope["dataset"].epoch == 3


def test_every_field_and_every_remainder_has_a_row(page: str) -> None:
    rows = set(re.findall(r"^\| `(\w+)`", page, flags=re.MULTILINE)) - {"remainder"}
    assert set(Field.__args__) | {"sequence", "max_seqlen"} | set(Remainder.__args__) == rows
