"""What a person does in the page with a run: Retry, Cancel, Pause, Resume, another value, a lost artifact.

A run costs seconds, so each line of the matrix (a runner, and a store in a folder or a bucket) is one run
that is interrupted again and again, and then another one:

    fail      a gate fails; the profile is changed, and the run is retried
    cancel    in the middle of a stage: the run is Cancelled at Prefect and in the store, and none of its
              processes and tasks is left; then it is retried
    pause     what is in work is finished, and nothing begins any more; then it is resumed
    at last   a new run with another sequence length, after an artifact was deleted and one damaged

What was published is never made again, and the artifacts are those of a run that was left alone. In a
bucket, it is another machine that goes on: another worker, with a cache of its own.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pytest

from tests.object_server import ObjectServer
from tests.test_flows.commands import Tokmill, finished
from tests.test_flows.corpora import write_project
from tests.test_flows.page import Person, browser_found, find, open_browser
from tests.test_flows.served import Service
from tests.test_flows.stopped import (
    LENIENT,
    TOO_STRICT,
    Artifact,
    BucketSeen,
    FolderSeen,
    Running,
    SeenStore,
    served,
    set_gate,
    wait_until,
    worker,
    write_profile,
    write_text,
)
from tokmill.flows.profile.served import ServedFolder

pytestmark = [pytest.mark.server, pytest.mark.slow, pytest.mark.objects]

Interruption: TypeAlias = str
"""How, and in which stage: `cancel train`, `pause encode`, `fail`."""

STATES = {"cancel": "cancelled", "pause": "suspended", "fail": "failed"}
IN_THE_STORE = {"ingest", "count", "balance", "mix"}
AFTER_PACK = {"pack_plan", "packed_shard", "packed", "card"}


class Line(NamedTuple):
    """A line of the matrix.

    Attributes:
        place: of the store, `folder` or `bucket`.
        interruptions: in this order.
    """

    runner: str
    place: str
    interruptions: tuple[Interruption, ...]

    @property
    def name(self) -> str:
        """A file's name."""
        return f"{self.runner}-{self.place}"


LINES = [
    Line("processes", "folder", ("cancel count", "fail", "pause encode")),
    Line("threads", "bucket", ("cancel ingest", "cancel train", "cancel pack")),
]


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

    def bucket(self) -> BucketSeen:
        """Return a new store in a bucket."""
        bucket = self.objects.make_bucket()
        return BucketSeen(f"{bucket.url}/team", bucket, self.caches)

    @contextmanager
    def machine(self, name: str, queue: str, pool: str = "") -> Iterator[Tokmill]:
        """Have a machine, with a cache of its own, take the runs of a queue in this block."""
        own = {"TOKMILL_CACHE": str(self.caches / name)}
        machine = Tokmill(self.folder, {**self.service.tokmill.environment, **own})
        with worker(machine, self.service, queue, pool):
            yield machine


@pytest.fixture(scope="module")
def project(
    migrated_home: Path, object_server: ObjectServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Project]:
    """A served project with a profile for each line, and two small ones for runs at once."""
    base = tmp_path_factory.mktemp("reruns")
    folder, caches = base / "project", base / "caches"
    write_project(folder, num_documents=60)
    text = (folder / "tiny.toml").read_text("utf-8") + SETTINGS
    for name, length in (("tiny", 128), ("longer", 160)):
        given = text.replace('name = "tiny"', f'name = "{name}"').replace(
            "length = 128", f"length = {length}"
        )
        (folder / f"{name}.toml").write_text(given, "utf-8")
    write_text(folder)
    for line in LINES:
        write_profile(folder, line.name)
    write_profile(folder, "page", "pages")
    shutil.copytree(folder / "library", folder / "pages", copy_function=os.link)
    environment = object_server.environment() | {"TOKMILL_CACHE": str(caches / "served")}
    with served(folder, migrated_home, environment) as service:
        alone = FolderSeen(str(folder / "alone"))
        profile = f"{LINES[0].name}.toml"
        done = finished(service.tokmill.start("run", profile, "--no-prefect", "--store", alone.url))
        assert done.code == 0, done.err
        yield Project(service, alone.digests(), object_server, caches)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_an_interrupted_run_goes_on_without_making_anything_again(line: Line, project: Project) -> None:
    in_folder = line.place == "folder"
    store = FolderSeen(str(project.folder / f"store-of-{line.name}")) if in_folder else project.bucket()
    settings = [f"execution.runner={line.runner}", "execution.workers=2"]
    with ExitStack() as machines:
        run = interrupted(line, project, store, settings, machines)
        lost = damaged(store, project.expected)
        more = {"more": settings, "pack": {"sequence_length": 128}}
        again = Running.start(project.service, f"{line.name}.toml", store, **more)
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
    working = machines.enter_context(ExitStack())
    if queue is not None:
        working.enter_context(project.machine(f"{line.name}-1", queue))
    run, kept = Running.start(project.service, profile, store, queue, more=settings), []
    for interruption in line.interruptions:
        interrupt(run, line, interruption, project)
        kept.append(store.records())
        if queue is not None and len(kept) == 1:
            working.close()
            machines.enter_context(project.machine(f"{line.name}-2", queue))
        run.go_on()
    noted, published = run.completed(), store.records()

    states = [STATES[each.partition(" ")[0]] for each in line.interruptions]
    assert (noted["name"], [attempt["state"] for attempt in noted["earlier"]]) == ("for the board", states)
    assert all(before.items() <= published.items() for before in kept)
    assert got(noted, "cached") == kept[-1].keys() & project.expected.keys()
    assert project.expected.items() <= store.digests().items()
    return run


def interrupt(run: Running, line: Line, interruption: Interruption, project: Project) -> None:
    """Interrupt a run, and check what becomes of it."""
    how, _, stage = interruption.partition(" ")
    if how == "fail":
        run.ended("FAILED")
        assert run.noted["state"] == "failed"
        set_gate(project.folder, line.name, LENIENT)
    else:
        run.wait_for(stage)
        run.cancelled() if how == "cancel" else run.paused()


def damaged(store: SeenStore, expected: dict[Artifact, str]) -> set[Artifact]:
    """Delete an artifact and damage another, of kinds that much depends on; return both."""
    removed, cut = (
        min(each for each in expected if each[0] == kind) for kind in ("encoded_shard", "tokenizer")
    )
    store.remove(removed)
    store.damage(cut)
    return {removed, cut}


def shown(run: Running) -> set[str]:
    """Return the states that the page shows of tasks whose artifacts were all in the store."""
    states = run.service.task_states({"id": run.id})
    return {state for name, state in states.items() if name.partition("[")[0] in IN_THE_STORE}


def got(noted: dict[str, Any], how: str) -> set[Artifact]:
    """Return the artifacts that a run got in a way, by its record."""
    rows = [row["ref"] for row in noted["artifacts"] if row["how"] == how]
    return {(ref["kind"], ref["fingerprint"]) for ref in rows}


AT_ONCE = 2  # of each deployment: each queue has a run
SETTINGS = f"\n[schedule]\nruns_at_once = {AT_ONCE}\n[execution]\nworkers = 1\n"
ELSEWHERE = ("second", "third")
MADE = "SELECT fingerprint, count(*) AS times FROM run_artifacts WHERE how = 'made' GROUP BY fingerprint"


def test_runs_at_once_of_two_deployments_publish_every_artifact_once(project: Project) -> None:
    """By workers of three machines, which share a bucket and the server, and nothing else.

    Those of the second deployment have a pool of their own: `tokmill up`'s worker takes all runs of its pool.
    A machine makes nothing twice: whoever needs what another run of it is making waits for it. A run of
    another flow, which has a limit of its own, goes on beside them.
    """
    store, service = project.bucket(), project.service
    folder = project.folder.with_name("elsewhere")
    write_project(folder, num_documents=60)
    shutil.copy(project.folder / "longer.toml", folder)
    api = {"PREFECT_API_URL": f"{service.url}/api"}
    team = Tokmill(folder, {**service.tokmill.environment, **api})
    pool = team("server", "deploy", "--store", store.url, "--json").document["pool"]
    theirs = ServedFolder.of(folder, store.url).name

    def start(deployment: str, queue: str, **parameters: str) -> Running:
        found = service.call(f"/deployments/name/{deployment}")["id"]
        asked = {"parameters": {"store": store.url, **parameters}, "work_queue_name": queue}
        return Running(service, store, service.call(f"/deployments/{found}/create_flow_run", asked)["id"])

    with ExitStack() as machines:
        for name in ELSEWHERE:
            machines.enter_context(project.machine(name, name, pool))
        runs = [Running.start(service, "tiny.toml", store) for _ in range(AT_ONCE)]
        runs += [start(f"build-corpus/{theirs}.longer", ELSEWHERE[number % 2]) for number in range(AT_ONCE)]
        runs.append(start(f"train-tokenizer/{theirs}", "third", profile="longer.toml"))
        noted = [run.completed() for run in runs]

    assert {each["state"] for each in noted} == {"completed"}

    def table(query: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = service.tokmill("sql", query, "--json", TOKMILL_STORE=store.url).document
        return rows

    made = {row["fingerprint"]: row["times"] for row in table(MADE)}
    assert max(made.values()) <= 1 + len(ELSEWHERE)
    assert {row["fingerprint"] for row in table("SELECT fingerprint FROM artifacts")} == set(made)
    assert {fingerprint for _, fingerprint in store.records()} == set(made)
    for name in ELSEWHERE:  # each of them has worked
        assert any((project.caches / name).rglob("record.json"))


@pytest.mark.browser
@pytest.mark.skipif(not browser_found(), reason="needs chromium and chromedriver on the PATH")
def test_a_person_runs_reruns_cancels_retries_and_reads(project: Project, tmp_path: Path) -> None:
    """In a real browser, from the form to the report."""
    service, pages = project.service, project.folder / "pages"
    store = FolderSeen(str(service.tokmill.store))
    with open_browser(tmp_path / "browser") as browser:
        person = Person(browser, service, "page.toml")

        cancelled = Running(service, store, person.start())
        person.open(cancelled.id)  # before the stage, which may be over when a page has come
        cancelled.wait_for("count")
        person.choose("Cancel", "Cancel Flow Run")
        cancelled.ended("CANCELLED")
        person.open(cancelled.id)
        person.see("Cancelled")

        whole = pages.rename(pages.with_name("gone"))
        failed = Running(service, store, person.start())
        failed.ended("FAILED")
        person.open(failed.id)
        person.see("Failed")
        whole.rename(pages)
        person.choose("Retry", "Retry")
        wait_until(lambda: failed.state["type"] != "FAILED", "it was retried")
        failed.completed()
        person.open(failed.id)
        person.see("Completed")

        again = Running(service, store, person.start(sequence_length=320))
        again.completed()
        assert service.started_by(again.id) == "page"
        assert service.call(f"/flow_runs/{again.id}")["name"] == "long · sequence length 320"
        states = service.ended_task_states({"id": again.id})
        ran = {name.partition("[")[0] for name, state in states.items() if state != "Cached"}
        assert ran == {"pack", "card"}
        person.open(again.id, "TaskRuns")
        person.see("Cached")

        person.open(again.id, "Artifacts")
        person.see("audit-long")
        tasks = service.call("/task_runs/filter", {"flow_runs": {"id": {"any_": [again.id]}}, "limit": 200})
        (audit,) = [task["id"] for task in tasks if task["name"] == "audit"]
        browser.get(f"{service.url}/v2/runs/task-run/{audit}?tab=Artifacts")
        person.see("audit-long")
        person.follow(lambda url: "/v2/artifacts/artifact/" in url and is_text(service, url))
        person.follow(lambda url: "/tokmill/report/" in url)
        assert find(browser, "//*[@id='search']").is_displayed()
        person.picture("report")


def is_text(service: Service, url: str) -> bool:
    """Whether an artifact's page shows a text, and not a table."""
    return bool(service.call(f"/artifacts/{url.rpartition('/')[2]}")["type"] == "markdown")
