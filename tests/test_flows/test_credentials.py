"""Credentials in a block of the Prefect server: enough for a run in a bucket, and written nowhere."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.object_server import Bucket
from tests.test_flows.commands import Tokmill
from tests.test_flows.corpora import write_project
from tokmill.flows.credentials import checked
from tokmill.flows.errors import ProfileError, UsageError
from tokmill.flows.prefect.flow import ONLY_IN_FILES
from tokmill.flows.profile import load_profile

KEY, SECRET = "key-of-the-block", "hunter2-of-the-block"
SAVE = """
import json, sys
from prefect.blocks.system import Secret
Secret(value=json.loads(sys.argv[2])).save(sys.argv[1], overwrite=True)
"""


def saved(name: str, value: object, environment: dict[str, str]) -> None:
    code = [sys.executable, "-c", SAVE, name, json.dumps(value)]
    subprocess.run(code, env=environment, check=True, capture_output=True)


def project(folder: Path, *execution: str) -> Path:
    write_project(folder, num_documents=30)
    profile = folder / "ours.toml"
    profile.write_text("\n".join(['extends = "tiny.toml"', "[execution]", *execution]) + "\n")
    return profile


@pytest.mark.objects
@pytest.mark.server
@pytest.mark.slow
def test_a_block_is_enough_for_a_run_and_its_secret_is_nowhere(
    prefect_server: dict[str, str], bucket: Bucket, tmp_path: Path
) -> None:
    url = f"{bucket.url}/team"
    given = (
        prefect_server
        | bucket.server.environment()
        | {"HOME": str(tmp_path), "TOKMILL_CACHE": str(tmp_path / "cache")}
    )
    environment = {name: value for name, value in given.items() if "ACCESS_KEY" not in name}
    tokmill = Tokmill(tmp_path, environment, forks=True)
    profile = project(tmp_path, 'credentials = "block:team-bucket"', 'runner = "processes"')

    missing = tokmill("run", str(profile), "--store", url)
    values = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    saved("team-bucket", values, environment)
    made, again, planned = (tokmill(word, str(profile), "--store", url) for word in ("run", "run", "plan"))

    assert missing.code != 0
    assert "block:team-bucket" in missing.err
    assert [made.code, again.code, planned.code] == [0, 0, 0], made.err + again.err + planned.err
    used = [request.headers.get("authorization", "") for request in bucket.requests()]
    assert used
    assert all(f"Credential={KEY}/" in header for header in used)
    written = [bucket.get(key) for key in bucket.keys()]  # noqa: SIM118 - a method of a bucket
    written += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    written += [outcome.out.encode() + outcome.err.encode() for outcome in (missing, made, again, planned)]
    homes = [Path(value) for name, value in prefect_server.items() if name == "PREFECT_HOME"]
    written += [path.read_bytes() for home in homes for path in home.rglob("*") if path.is_file()]
    assert len(written) > 50
    assert not [data for data in written if SECRET.encode() in data]


@pytest.mark.parametrize("value", ['credentials="block:others"', 'address="tcp://10.0.0.7:8786"'])
def test_a_run_of_one_page_cannot_name_the_secrets_of_another_or_a_cluster(value: str) -> None:
    with pytest.raises(ProfileError, match="cannot be set for one run"):
        load_profile("smoke", [f"execution.{value}"], fixed=ONLY_IN_FILES)


@pytest.mark.parametrize("given", ["AKIA/secret", "env:AWS_SECRET_ACCESS_KEY", "block:", "block:a/b"])
def test_a_credential_in_a_profile_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(ProfileError, match=r"execution\.credentials"):
        load_profile(project(tmp_path, f'credentials = "{given}"'))


def test_what_changes_programs_is_not_taken_from_a_block() -> None:
    for value in ({"PATH": "/tmp"}, {"AWS_X": 1}, ["AWS_X"], "no json", '{"LD_PRELOAD": "x"}'):
        with pytest.raises(UsageError) as refused:
            checked("block:b", value)
        assert "/tmp" not in str(refused.value)
    assert checked("block:b", '{"AWS_PROFILE": "x"}') == {"AWS_PROFILE": "x"}
