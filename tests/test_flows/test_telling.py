"""What runs and their tasks in other processes tell each other, over a folder and over a bucket.

With a bucket, the run and the task are on machines that share nothing else: each has a mirror of its own.
"""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.object_server import Bucket
from tokmill.flows.run.elsewhere import (
    Pace,
    asked_of_tasks,
    hold_here,
    listening,
    telling,
    telling_folder,
)
from tokmill.flows.run.tasks import CALLBACKS, TaskCallbacks
from tokmill.tasks.core.context import StageProgress
from tokmill.tasks.store import Store
from tokmill.tasks.store.layout import Layout
from tokmill.tasks.store.retention import Policy
from tokmill.tokenizer.core.stopping import StopRequested, allow_work, raise_if_stopped

WAIT_SECONDS = 60
NOTHING_TOLD: list[str] = []


class Sides(NamedTuple):
    """The store as the run sees it, and as a task does; and what is left of what they told."""

    run: Layout
    task: Layout
    left: Callable[[], list[str]]

    def folder(self) -> Path:
        """Where the run tells."""
        return telling_folder(self.run, "run", far=True)

    def seen_by_task(self, folder: Path) -> Path:
        """The same place, where the task looks."""
        return self.task.root / folder.relative_to(self.run.root)


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.objects)])
def sides(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sides]:
    """A run and a task that share a folder, or only a bucket."""

    def layout(machine: str, url: str) -> Layout:
        monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / machine))
        return Store.open(url).layout

    if request.param == "folder":
        shared = Layout(tmp_path / "store")
        yield Sides(shared, shared, lambda: [str(path) for path in shared.telling.rglob("*")])
    else:
        bucket: Bucket = request.getfixturevalue("bucket")
        urls = f"{bucket.url}/store"
        yield Sides(
            layout("here", urls),
            layout("there", urls),
            lambda: [found for found in sorted(bucket.keys()) if "/telling/" in found],
        )
    allow_work()
    hold_here(False)


def wait_for(happened: Callable[[], bool]) -> None:
    """Wait until something has happened."""
    until = time.monotonic() + WAIT_SECONDS
    while not happened():
        assert time.monotonic() < until, "it did not happen in time"
        threading.Event().wait(0.05)


def stopped() -> bool:
    """Whether work is to stop."""
    try:
        raise_if_stopped()
    except StopRequested:
        return True
    return False


class Heard:
    """Notes what the callbacks are told."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def callbacks(self) -> TaskCallbacks:
        """Callbacks that note everything."""
        return TaskCallbacks(
            lambda title: self.said.append((title,)),
            lambda title, progress: self.said.append((title, progress)),
            lambda title, how: self.said.append((title, how)),
        )


def test_a_task_elsewhere_is_heard(sides: Sides) -> None:
    heard, progress = Heard(), StageProgress(3, 7, "merges")
    with heard.callbacks().installed(), listening(sides.run, sides.folder()) as listener:
        listener.take_callbacks()
        with telling(sides.seen_by_task(listener.folder), "train"):
            callbacks = CALLBACKS.get()
            assert callbacks is not None
            callbacks.on_start("train")
            callbacks.on_progress("train", progress)
            wait_for(lambda: ("train", progress) in heard.said)
            callbacks.on_end("train", "made")
        last = listener.last("train")
        again = listener.last("train")

    assert heard.said[0] == ("train",)
    assert last is not None
    assert (last.how, last.progress) == ("made", progress)
    assert last.seconds > 0
    assert again is None
    assert sides.left() == NOTHING_TOLD


def test_an_interrupted_run_stops_its_tasks_elsewhere_and_leaves_nothing(sides: Sides) -> None:
    with listening(sides.run, sides.folder()) as heard:
        folder = sides.seen_by_task(heard.folder)
        with telling(folder, "train"):
            heard.ask("stop")
            wait_for(stopped)
        assert asked_of_tasks(folder) == "stop"

    assert sides.left() == NOTHING_TOLD


def test_a_task_stops_when_its_attempt_is_over_and_the_next_one_begins(sides: Sides) -> None:
    with listening(sides.run, sides.folder()) as first:
        folder = sides.seen_by_task(first.folder)
    with telling(folder, "train"):
        wait_for(stopped)

    with listening(sides.run, sides.folder()) as again:
        with telling(sides.seen_by_task(again.folder), "train"):
            assert not stopped()
        assert asked_of_tasks(folder) == "stop"
    assert sides.left() == NOTHING_TOLD


def test_a_paused_run_begins_no_task_elsewhere(sides: Sides) -> None:
    with listening(sides.run, sides.folder()) as heard:
        folder = sides.seen_by_task(heard.folder)
        before = asked_of_tasks(folder)
        heard.ask("hold")
        after = asked_of_tasks(folder)

    assert (before, after, asked_of_tasks(None)) == ("go", "hold", "go")
    hold_here()
    assert asked_of_tasks(None) == "hold"


def test_what_a_killed_run_left_goes_with_the_garbage(sides: Sides) -> None:
    with listening(sides.run, sides.folder()) as heard, telling(sides.seen_by_task(heard.folder), "train"):
        store = Store.open(sides.task.location)
        found = store.collect(Policy()).leftovers  # no lease of such a run

    assert [each.path.name for each in found] == ["run"]
    assert sides.left() == NOTHING_TOLD


@pytest.mark.objects
def test_a_short_task_costs_few_requests(bucket: Bucket) -> None:
    layout = Store.open(f"{bucket.url}/store").layout
    with listening(layout, telling_folder(layout, "run", far=True)) as heard:
        before = len(bucket.requests(key="*telling*"))
        for number in range(10):
            with telling(heard.folder, f"encode[{number}]"):
                pass
            heard.last(f"encode[{number}]")
        during = bucket.requests(key="*telling*")[before:]

    assert [request.method for request in during].count("PUT") == 10
    assert len(during) <= 25  # each is written and read once; and the run has looked now and then


def test_looks_become_rarer() -> None:
    pace, pauses = Pace(1.0, 3.0), [1.0]
    while sum(pauses) < 3600:
        pauses.append(pace.after(pauses[-1]))

    assert pauses[:4] == [1.0, 1.5, 2.25, 3.0]
    assert len(pauses) < 1210
