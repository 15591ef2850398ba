"""Commands over a store in a bucket, from a machine that has none of its files."""

from pathlib import Path

import pytest

from tests.object_server import Bucket
from tests.test_flows.commands import Tokmill, clean_environment

pytestmark = [pytest.mark.objects, pytest.mark.slow, pytest.mark.usefixtures("prefect_server")]  # it forks


def test_commands_fetch_what_they_read_and_show_urls(bucket: Bucket, tmp_path: Path) -> None:
    url = f"{bucket.url}/team"
    here, there = (
        Tokmill(
            tmp_path,
            clean_environment(
                HOME=str(tmp_path), TOKMILL_CACHE=str(tmp_path / cache), **bucket.server.environment()
            ),
            forks=True,
        )
        for cache in ("here", "there")
    )
    here.run("smoke", "--no-prefect", "--store", url)

    shown = there("show", "packed/smoke", "--json", "--store", url).document
    assert shown["path"].startswith(f"{url}/files/packed/")
    manifest = f"{shown['path'].removeprefix(bucket.url + '/')}/packed.json"
    assert manifest in set(bucket.keys())
    assert bucket.num_sent(key="team/files/packed/*") == 0

    traced = there("trace", "packed/smoke", "-s", "3", "--json", "--store", url).document
    name = traced["pieces"][0]["name"]
    (tmp_path / "names.txt").write_text(f"{name}\n", encoding="utf-8")
    taken = there("data", "takedown", "packed/smoke", "-d", "names.txt", "--json", "--store", url).document
    assert taken["version"]["path"].startswith(f"{url}/files/packed/")
    assert "packed/smoke@v1" in taken["holders"]

    hotter = ["--set", "balance.temperature=5", "--until", "tokenizer"]
    here.run("smoke", "--no-prefect", "--store", url, *hotter)
    compared = there("compare", "tokenizer/smoke@v1", "latest", "--json", "--store", url).document
    assert [cause["field"] for cause in compared["runs"][1]["causes"]] == ["balance.temperature"]
    assert there("runs", "tag", "latest", "hotter", "--store", url).code == 0
    (tagged,) = there("runs", "--tag", "hotter", "--json", "--store", url).document
    assert tagged["run_id"] == compared["runs"][1]["run_id"]

    for command in (
        ["show", "packed/smoke"],
        ["store", "rebuild"],
        ["store", "du"],
        ["store", "gc"],
        ["store", "verify"],
    ):
        outcome = there(*command, "--store", url)
        assert outcome.code == 0, outcome.err
        assert str(tmp_path / "there") not in outcome.out + outcome.err
