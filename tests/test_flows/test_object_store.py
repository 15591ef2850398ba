"""Whole runs on a store in a bucket: the digests of a folder, cached for others without their files."""

from pathlib import Path

import pytest

from tests.object_server import Bucket
from tests.test_flows.commands import Tokmill, clean_environment
from tokmill.tasks.loading import PackedDataset
from tokmill.tasks.store import Store

pytestmark = [pytest.mark.objects, pytest.mark.slow, pytest.mark.usefixtures("prefect_server")]  # it forks


def digests(store: Store) -> dict[tuple[str, str, str], str]:
    return {(row["kind"], row["name"], row["label"]): row["content_digest"] for row in store.list()}


def test_a_run_in_a_bucket_is_that_in_a_folder_and_cached_for_all(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{bucket.url}/team"
    places = [(str(tmp_path / "folder"), "none"), (url, "here"), (url, "there")]
    for number, (store, cache) in enumerate(places):
        own = bucket.server.environment() | {"TOKMILL_CACHE": str(tmp_path / cache)}
        tokmill = Tokmill(tmp_path, clean_environment(HOME=str(tmp_path), **own), forks=True)
        payload = ("team/files/encoded_shard/*", "team/files/packed*")
        num_sent = [bucket.num_sent(key=key) for key in payload]
        document = tokmill.run("smoke", "--no-prefect", "--store", store)

        assert document["store"] == (url if number else str(tmp_path / "folder"))
        if number == 2:
            assert {task["how"] for task in document["tasks"]} == {"cached"}
            assert [bucket.num_sent(key=key) for key in payload] == num_sent
    monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / "loading"))
    assert digests(Store.open(url)) == digests(Store.open(tmp_path / "folder"))
    with PackedDataset("packed/smoke", store=tmp_path / "folder") as local:
        expected = [batch["input_ids"].tolist() for batch in local]
    bucket.fault("cut", method="GET", key="team/files/packed*", num_bytes=100, times=3)
    with PackedDataset(f"{url}/packed/smoke") as there:
        found = [batch["input_ids"].tolist() for batch in there]

    assert found == expected
    assert Store.open(url).verify() == []
