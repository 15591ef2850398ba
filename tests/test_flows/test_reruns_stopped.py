"""Runs that a person cancels or pauses in the page, and what Retry and Resume make of them.

Cancel: the run is Cancelled at Prefect and in the store, and none of its processes and tasks is left. Pause:
what is in work is finished, and nothing begins any more. What was published is never made again, and the
artifacts are those of a run that was left alone.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.test_flows.served import Service
from tests.test_flows.stopped import EVERYTHING, Running, served, write_long_project
from tests.test_flows.test_runners import CLUSTERS, digests

pytestmark = [pytest.mark.server, pytest.mark.slow]

ON_CLUSTERS = ("dask", "ray", "dask at an address", "ray at an address")
OF_CLUSTERS = [pytest.param(name, marks=pytest.mark.clusters) for name in ON_CLUSTERS if EVERYTHING]


@pytest.fixture(scope="module")
def project(migrated_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A served project with a long profile."""
    folder = tmp_path_factory.mktemp("long") / "project"
    write_long_project(folder)
    with served(folder, migrated_home, {}) as service:
        yield service


@pytest.fixture(scope="module")
def expected(project: Service) -> dict[str, str]:
    """The digests of a run that is left alone, in another store."""
    tokmill = project.tokmill
    done = tokmill("run", "long.toml", "--no-prefect", "--store", str(tokmill.folder / "alone"))
    assert done.code == 0, done.err
    return digests(tokmill.folder / "alone")


@contextmanager
def on(runner: str, project: Service) -> Iterator[list[str]]:
    """Yield the settings of a runner, whose cluster is up in this block if it has an address."""
    name, _, address = runner.partition(" ")
    with ExitStack() as until_done:
        settings = [f"execution.runner={name}", "execution.workers=2"]
        if name in CLUSTERS:
            pytest.importorskip(f"prefect_{name}", exc_type=ImportError)
        if address:
            environment = {**project.tokmill.environment, "PREFECT_API_URL": f"{project.url}/api"}
            found, _ = until_done.enter_context(CLUSTERS[name](environment))
            settings.append(f"execution.address={found}")
        yield settings


def interruptions(runner: str) -> list[tuple[str, str]]:
    """How, and in which stage, a run is interrupted, one time after the other."""
    every = [*(("cancel", stage) for stage in ("ingest", "count", "train", "encode")), ("pause", "encode")]
    if EVERYTHING or runner == "threads":
        return [*every, ("cancel", "pack")]
    return [("pause", "encode"), ("cancel", "pack")]


@pytest.mark.parametrize("runner", ["threads", *OF_CLUSTERS, "processes"])
def test_an_interrupted_run_ends_soon_and_goes_on_without_making_anything_again(
    runner: str, project: Service, expected: dict[str, str], tmp_path: Path
) -> None:
    store, wanted, kept = tmp_path / "store", interruptions(runner), []
    with on(runner, project) as settings:
        run = Running.start(project, store=str(store), more=settings)
        for how, stage in wanted:
            run.wait_for(stage)
            seconds = run.cancelled(store) if how == "cancel" else run.paused(store)
            print(f"{runner}: {how} in {stage}: {seconds:.1f} s")  # noqa: T201 - for the record
            kept.append(records(store))
            run.go_on()
        ended = run.end()

    assert ended["type"] == "COMPLETED"
    noted, published = run.noted(store), records(store)
    states = {"cancel": "cancelled", "pause": "suspended"}
    assert [attempt["state"] for attempt in noted["earlier"]] == [states[how] for how, _ in wanted]
    assert all(before.items() <= published.items() for before in kept)
    cached = {made["ref"]["fingerprint"] for made in noted["artifacts"] if made["how"] == "cached"}
    assert cached == {fingerprint for _, fingerprint in kept[-1]}
    assert digests(store) == expected


def records(store: Path) -> dict[tuple[str, str], int]:
    """Kind and fingerprint of every artifact → when its record was written."""
    found = [(path, json.loads(path.read_bytes())) for path in store.glob("*/*/record.json")]
    return {(record["kind"], record["fingerprint"]): path.stat().st_mtime_ns for path, record in found}
