"""What a person does in the page with a run: Retry, Cancel, Pause, Resume, another value, a lost artifact.

A run costs seconds, so each line of the matrix (a runner, and a store in a folder or a bucket) is one run
that is interrupted again and again, and then another one:

    fail      a gate fails; the profile is changed, and the run is retried
    cancel    in the middle of a stage: the run is Cancelled at Prefect and in the store, and none of its
              processes and tasks is left; then it is retried
    pause     what is in work is finished, and nothing begins any more; then it is resumed
    at last   a new run with another sequence length, after an artifact was deleted and one damaged

What was published is never made again, and the artifacts are those of a run that was left alone. In a
bucket, it is another machine that goes on: another worker, with a cache of its own. The lines go on side by
side. With TOKMILL_EVERYTHING there are all of them, one by one, each through all that there is.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.effort import EVERYTHING
from tests.object_server import ObjectServer
from tests.test_flows.commands import Tokmill, finished
from tests.test_flows.seen_stores import Artifact, BucketSeen, FolderSeen, SeenStore
from tests.test_flows.served import Service
from tests.test_flows.stopped import (
    KIND_OF,
    LENIENT,
    TOO_STRICT,
    Running,
    served,
    set_gate,
    write_profile,
    write_text,
)
from tests.test_flows.test_eight_runs import worker
from tests.test_flows.test_runners import CLUSTERS

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.objects]

Interruption: TypeAlias = str
"""How, and in which stage: `cancel train`, `pause encode`, `fail`."""

ALL = [
    "cancel ingest",
    "cancel count",
    "cancel train",
    "fail",
    "cancel encode",
    "pause encode",
    "cancel pack",
]
STATES = {"cancel": "cancelled", "pause": "suspended", "fail": "failed"}
IN_THE_STORE = {"ingest", "count", "balance", "mix"}
AFTER_PACK = {"pack_plan", "packed_shard", "packed", "card"}


@dataclass(frozen=True)
class Line:
    """A line of the matrix.

    Attributes:
        runner: `dask` is a cluster of the run's own, `dask at` one that is at an address.
        place: of the store, `folder` or `bucket`.
        interruptions: in this order.
    """

    runner: str
    place: str
    interruptions: tuple[Interruption, ...]

    @property
    def name(self) -> str:
        """A file's name."""
        return f"{self.runner.replace(' ', '-')}-{self.place}"


DEFAULT = [
    Line("processes", "folder", ("cancel count", "fail", "pause encode")),
    Line("threads", "bucket", ("cancel train", "cancel pack")),
]
RUNNERS = ("threads", "processes", "dask", "ray", "dask at", "ray at")


def lines() -> list[Line]:
    """Return what is tried."""
    if not EVERYTHING:
        return DEFAULT
    return [Line(runner, place, tuple(ALL)) for runner in RUNNERS for place in ("folder", "bucket")]


def marked(line: Line) -> object:
    """Return a parameter for a line; clusters are no part of the default run."""
    clustered = line.runner.partition(" ")[0] in CLUSTERS
    return pytest.param(line, id=line.name, marks=[pytest.mark.clusters] if clustered else [])


@dataclass(frozen=True)
class Project:
    """A served project, and what its runs make if they are left alone."""

    service: Service
    expected: dict[Artifact, str]
    objects: ObjectServer
    caches: Path

    @property
    def folder(self) -> Path:
        """The served folder."""
        return self.service.tokmill.folder

    def store(self, line: Line) -> SeenStore:
        """Return a new store for a line."""
        if line.place == "folder":
            return FolderSeen(str(self.folder / f"store-of-{line.name}"))
        bucket = self.objects.make_bucket()
        return BucketSeen(f"{bucket.url}/team", bucket, self.caches)

    def machine(self, line: Line, number: int) -> Tokmill:
        """Return a machine with a cache of its own."""
        own = self.caches / f"{line.name}-{number}"
        own.mkdir(parents=True)
        environment = {**self.service.tokmill.environment, "TOKMILL_CACHE": str(own)}
        return Tokmill(self.folder, environment)

    @contextmanager
    def worker_of(self, line: Line, number: int, queue: str) -> Iterator[None]:
        """Have a machine of its own take the runs of a queue, in this block."""
        pool, api = self.service.served.work_pool, {"PREFECT_API_URL": f"{self.service.url}/api"}
        with worker(self.machine(line, number), pool, queue, api):
            yield


@pytest.fixture(scope="module")
def project(
    migrated_home: Path, object_server: ObjectServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Project]:
    """A served project with a profile for each line."""
    base = tmp_path_factory.mktemp("reruns")
    folder, caches = base / "project", base / "caches"
    write_text(folder)
    for line in lines():
        write_profile(folder, line.name)
    environment = object_server.environment() | {"TOKMILL_CACHE": str(caches / "served")}
    with served(folder, migrated_home, environment) as service:
        alone = FolderSeen(str(folder / "alone"))
        profile = f"{lines()[0].name}.toml"
        done = finished(service.tokmill.start("run", profile, "--no-prefect", "--store", alone.url))
        assert done.code == 0, done.err
        yield Project(service, alone.digests(), object_server, caches)


@pytest.fixture(scope="module")
def walked(request: pytest.FixtureRequest, project: Project) -> Iterator[Callable[[Line], None]]:
    """Return what waits for the end of a line; those that are asked for go on side by side."""
    asked = [item.callspec.params["line"] for item in request.session.items if _is_of(item)]
    with ThreadPoolExecutor(1 if EVERYTHING else 3) as threads:
        walks: dict[Line, Future[None]] = {line: threads.submit(walk, line, project) for line in asked}
        yield lambda line: walks[line].result()
        threads.shutdown(cancel_futures=True)


def _is_of(item: pytest.Item) -> bool:
    function = getattr(item, "function", None)
    return function is test_an_interrupted_run_goes_on_without_making_anything_again


@pytest.mark.parametrize("line", [marked(line) for line in lines()])
def test_an_interrupted_run_goes_on_without_making_anything_again(
    line: Line, walked: Callable[[Line], None]
) -> None:
    walked(line)


def walk(line: Line, project: Project) -> None:
    """Go through a line of the matrix."""
    store = project.store(line)
    with on(line.runner, project) as settings, ExitStack() as machines:
        run = interrupted(line, project, store, settings, machines)
        lost = damaged(store, project.expected)
        again = Running.start(
            project.service, f"{line.name}.toml", store, more=settings, pack={"sequence_length": 128}
        )
        made = got(again.completed(), "made")
        project.service.until(partial(shown, again), lambda states: states == {"Cached"})

    assert run.completed()["earlier"]
    assert made & project.expected.keys() == lost
    assert {kind for kind, _ in made - project.expected.keys()} == AFTER_PACK
    assert project.expected.items() <= store.digests().items()


def interrupted(
    line: Line, project: Project, store: SeenStore, settings: list[str], machines: ExitStack
) -> Running:
    """Interrupt a run again and again; return it when it has completed."""
    profile, queue = f"{line.name}.toml", line.name if line.place == "bucket" else None
    set_gate(project.folder, line.name, TOO_STRICT if "fail" in line.interruptions else LENIENT)
    working = ExitStack()
    if queue is not None:
        machines.enter_context(working)
        working.enter_context(project.worker_of(line, 1, queue))
    run, kept = Running.start(project.service, profile, store, queue, more=settings), []
    for interruption in line.interruptions:
        interrupt(run, line, interruption, project)
        kept.append(store.records())
        if queue is not None and len(kept) == 1:
            working.close()
            machines.enter_context(project.worker_of(line, 2, queue))
        run.go_on()
    noted, published = run.completed(), store.records()

    states = [STATES[each.partition(" ")[0]] for each in line.interruptions]
    assert [attempt["state"] for attempt in noted["earlier"]] == states
    assert all(before.items() <= published.items() for before in kept)
    assert got(noted, "cached") == kept[-1].keys() & project.expected.keys()
    assert project.expected.items() <= store.digests().items()
    return run


def interrupt(run: Running, line: Line, interruption: Interruption, project: Project) -> None:
    """Interrupt a run, and check what becomes of it."""
    how, _, stage = interruption.partition(" ")
    if how == "fail":
        seconds = run.failed()
        set_gate(project.folder, line.name, LENIENT)
    else:
        run.wait_for(stage)
        seconds = run.cancelled() if how == "cancel" else run.paused()
    kind = KIND_OF.get(stage)
    wanted = {each for each in project.expected if each[0] == kind}
    over = ", which had just ended" if wanted and wanted <= run.store.records().keys() else ""
    load = os.getloadavg()[0]
    print(f"{line.name}: {interruption}{over}: {seconds:.1f} s at load {load:.0f}")  # noqa: T201 - for the record


def damaged(store: SeenStore, expected: dict[Artifact, str]) -> set[Artifact]:
    """Delete an artifact and damage another, of kinds that much depends on; return both."""
    removed = min(each for each in expected if each[0] == "encoded_shard")
    cut = min(each for each in expected if each[0] == "tokenizer")
    store.remove(removed)
    store.damage(cut)
    return {removed, cut}


def shown(run: Running) -> set[str]:
    """Return the states that the page shows of tasks whose artifacts were all in the store."""
    states = run.service.task_states({"id": run.id})
    return {state for name, state in states.items() if name.partition("[")[0] in IN_THE_STORE}


def got(noted: dict[str, object], how: str) -> set[Artifact]:
    """Return the artifacts that a run got in a way, by its record."""
    rows = noted["artifacts"]
    assert isinstance(rows, list)
    return {(row["ref"]["kind"], row["ref"]["fingerprint"]) for row in rows if row["how"] == how}


@contextmanager
def on(runner: str, project: Project) -> Iterator[list[str]]:
    """Yield the settings of a runner, whose cluster is up in this block if it has an address."""
    name, _, address = runner.partition(" ")
    with ExitStack() as until_done:
        settings = [f"execution.runner={name}", "execution.workers=2"]
        if name in CLUSTERS:
            pytest.importorskip(f"prefect_{name}", exc_type=ImportError)
        if address:
            api = {"PREFECT_API_URL": f"{project.service.url}/api"}
            cache = {"TOKMILL_CACHE": str(project.caches / f"cluster-of-{name}")}
            environment = {**project.service.tokmill.environment, **api, **cache}
            found, _ = until_done.enter_context(CLUSTERS[name](environment))
            settings.append(f"execution.address={found}")
        yield settings
