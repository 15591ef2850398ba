"""The totals of a run, and where Prefect's results are."""

import base64
import json
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.test_tasks.store_stages import ask
from tokmill.flows.prefect.task import FingerprintPolicy, Sealed, results_folder
from tokmill.flows.results import RunRow, wall_seconds
from tokmill.flows.run.tasks import TaskSettings, TaskSpec
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store

REF = ArtifactRef(kind="counts_shard", name="x", fingerprint="0" * 64, content_digest="1" * 64)


def test_shards_side_by_side_take_the_time_from_the_first_to_the_last():
    side_by_side = [RunRow("count[a/0]", REF, "made", 4.0, {}, began=10.0)]
    side_by_side += [RunRow("count[a/1]", REF, "made", 3.0, {}, began=11.0)]
    side_by_side += [RunRow("count[a/2]", REF, "made", 1.0, {}, began=14.0)]

    assert wall_seconds(side_by_side) == 5.0


def test_a_task_that_is_sent_looks_for_results_in_the_mirror_of_the_machine_it_arrives_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("s3fs", reason="s3fs is not installed: pip install -e '.[test]'")
    monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / "here"))
    sent = pickle.dumps([results_folder("s3://team/store"), results_folder(str(tmp_path / "store"))])
    monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / "there"))

    in_the_mirror, in_the_folder = pickle.loads(sent)

    assert in_the_mirror.is_relative_to(tmp_path / "there")
    assert in_the_mirror == results_folder("s3://team/store")
    assert in_the_folder == results_folder(str(tmp_path / "store"))


class Harm:
    """What makes a folder once it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def test_a_result_that_came_with_the_store_is_replaced_unread(tmp_path: Path) -> None:
    store, victim = Store.open(tmp_path / "store"), tmp_path / "victim"
    store.realize(ask())
    inputs = {"sealed": Sealed([TaskSpec("write", ask(), str(store.root), TaskSettings())])}
    key = FingerprintPolicy().compute_key(None, inputs, {})  # type: ignore[arg-type]
    file = store.layout.results / str(key)
    written = file.read_bytes()
    harmful = json.loads(written)
    harmful["metadata"]["serializer"] = {"type": "pickle", "picklelib": "pickle"}
    harmful["result"] = base64.encodebytes(pickle.dumps(Harm(tmp_path / "harm"))).decode()
    file.write_text(json.dumps(harmful))
    FingerprintPolicy().compute_key(None, inputs, {})  # type: ignore[arg-type]
    assert not (tmp_path / "harm").exists()
    assert file.read_bytes() == written

    victim.write_text("precious")
    file.unlink()
    file.symlink_to(victim)
    FingerprintPolicy().compute_key(None, inputs, {})  # type: ignore[arg-type]
    assert file.read_bytes() == written
    assert victim.read_text() == "precious"
