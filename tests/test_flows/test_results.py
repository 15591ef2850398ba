"""The totals of a run, and where Prefect's results are."""

import pickle
from pathlib import Path

import pytest

from tokmill.flows.run.prefect_task import results_folder
from tokmill.flows.run.results import RunRow, wall_seconds
from tokmill.tasks.core.stage import ArtifactRef

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
