"""Eight runs at once on one store in a bucket, from machines that share nothing else.

Each machine has a cache and locks of its own. In the end all runs and all artifacts are in the catalog, and
no two runs have made the same artifact: whoever needs one that another machine is making waits for it.
"""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.object_server import Bucket
from tests.test_flows.commands import Tokmill, finished
from tests.test_flows.corpora import write_project

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.objects]

RUNS, MACHINES = 8, 3


def test_eight_runs_at_once_make_every_artifact_once(
    prefect_server: dict[str, str], bucket: Bucket, tmp_path: Path
) -> None:
    url = f"{bucket.url}/store"
    machines = [machine(tmp_path, number, prefect_server, bucket) for number in range(MACHINES)]

    started = [
        machines[number % MACHINES].start(
            "run", ("tiny.toml", "longer.toml")[number % 2], "--json", "--workers", "1", TOKMILL_STORE=url
        )
        for number in range(RUNS)
    ]
    runs = [finished(process).document for process in started]

    def table(query: str) -> list[dict[str, str]]:
        found: list[dict[str, str]] = json.loads(machines[0]("sql", query, "--json", TOKMILL_STORE=url).out)
        return found

    made = Counter(task["fingerprint"] for run in runs for task in run["tasks"] if task["how"] == "made")
    assert [row["state"] for row in table("SELECT state FROM runs")] == ["completed"] * RUNS
    assert {row["fingerprint"] for row in table("SELECT fingerprint FROM artifacts")} == set(made)
    assert set(made.values()) == {1}


def machine(folder: Path, number: int, environment: dict[str, str], bucket: Bucket) -> Tokmill:
    """A machine: its copy of the sources, and its cache."""
    own = folder / str(number)
    write_project(own, num_documents=60)
    text = (own / "tiny.toml").read_text("utf-8")
    (own / "longer.toml").write_text(text.replace("sequence_length = 128", "sequence_length = 160"), "utf-8")
    return Tokmill(own, {**environment, **bucket.server.environment(), "TOKMILL_CACHE": str(own / "cache")})
