"""What a run shows of itself in the Prefect UI while it works: logs, artifacts and progress.

A `Page` listens in the run's own process, whichever runner executes the tasks, on whichever machine. It
attaches to each task run the artifact that describes its result, also if it was cached (Prefect itself shows
nothing of a task that did not run). All shards of a stage have one table, and only a shard that took long has
an artifact of its own: each costs the server a request. A group that works for more than ten seconds has a
progress artifact, which is updated once per second, and more slowly the longer the run takes.

Requests are sent by one thread, so the run does not wait for them until its end. A request that fails is
logged once; it never makes a run fail.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context
from queue import Empty, SimpleQueue
from typing import Any, Final
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.logging import get_logger
from prefect.states import Failed

from tokmill.flows.figures import key_figures, span
from tokmill.flows.prefect.artifact_page import Piece, pieces, producers, shards_table
from tokmill.flows.prefect.links import Links, key_of
from tokmill.flows.results import RunRow
from tokmill.flows.run.events import Event, RunState
from tokmill.flows.run.progress import Group
from tokmill.tasks.core.stage import How
from tokmill.tasks.store import Store

_LOG = logging.getLogger(__name__)
_TASKS = get_logger("prefect.task_runs")
_LONG_SECONDS: Final = 10.0
_UPDATE_SECONDS: Final = 1.0
_SLOWEST_UPDATE_SECONDS: Final = 10.0
_UPDATES_IN_ITS_AGE: Final = 60
"""Each update is a request, and nobody sees the hundredth part of a percent move."""
_LAST_SECONDS: Final = 60.0
"""How long the end of a run waits for a slow server to take the last artifacts."""

Send = Callable[[SyncPrefectClient], object]
_HOW: dict[How, str] = {"made": "made", "cached": "cached", "waited": "made by another run"}


class Page:
    """Reports a run to the Prefect server; see the module."""

    def __init__(
        self, store: Store, run_id: str, profile: str, links: Links, task_runs: Mapping[str, UUID]
    ) -> None:
        """Begin to report."""
        self.links = links
        self.task_runs = task_runs
        self._store = store
        self._run_id = UUID(run_id)
        self._profile = profile
        self._run = RunState()
        self._progress: dict[str, UUID] = {}
        self._waiting: SimpleQueue[Send | None] = SimpleQueue()
        self._failed = False

    def __call__(self, event: Event, run: RunState) -> None:
        """Show an event; Prefect logs the error of a task itself."""
        self._run = run
        if event.row is not None and event.group is not None:
            self._finished(event.row, event.group)
        elif event.what == "refused" and event.task in self.task_runs:  # the task run is shown as failed, too
            task_run, message = self.task_runs[event.task], event.text
            self._waiting.put(
                lambda client: client.set_task_run_state(task_run, Failed(message=message), force=True)
            )
        elif event.what == "noted":
            _LOG.warning("%s", event.text)

    def _finished(self, row: RunRow, group: Group) -> None:
        self._log(row)
        if group.name == row.task or (row.how == "made" and row.seconds >= _LONG_SECONDS):
            self._waiting.put(lambda client: self._show(client, row))
        with self._run.lock:  # of many shards, only the last one copies what the others did
            rows = list(group.rows) if group.complete and group.name != row.task else []
        if any(each.how != "cached" for each in rows):
            self._waiting.put(lambda client: self._publish(client, [shards_table(group.name, rows)], None))

    def publish(self, made: Callable[[], list[Piece]]) -> None:
        """Publish what describes the whole run, made when its turn has come."""
        self._waiting.put(lambda client: self._publish(client, made(), None))

    def learn(self, ids: set[str]) -> None:
        """Ask for the names of flow runs before something is published that links them."""
        self._waiting.put(lambda client: self._learn(client, ids))

    def send(self) -> None:
        """Send what is waiting, and progress from time to time, until `close`."""
        began = time.monotonic()
        due = began + _UPDATE_SECONDS
        with get_client(sync_client=True) as client:
            while True:
                try:
                    send = self._waiting.get(timeout=max(due - time.monotonic(), 0))
                except Empty:
                    self._attempt(client, self._show_progress)
                    now = time.monotonic()
                    due = now + _pause(now - began)
                    continue
                if send is None:
                    self._attempt(client, self._show_progress)
                    return
                self._attempt(client, send)

    def close(self) -> None:
        """Have `send` return when everything was sent."""
        self._waiting.put(None)

    def _attempt(self, client: SyncPrefectClient, send: Send) -> None:
        """Send something; only the first failure is logged, since the next ones have the same reason."""
        try:
            send(client)
        except Exception as error:
            if not self._failed:
                _LOG.warning("the server does not take what the run shows: %s", error)
            self._failed = True

    def _log(self, row: RunRow) -> None:
        """Log a task's result, as a message of its task run and its flow run."""
        took = f" in {span(row.seconds)}" if row.how != "cached" else ""
        figures = key_figures(row.ref.kind, row.metrics)
        label = self._store.label(row.ref, row.name)
        _TASKS.info(
            "%s: %s%s · %s/%s@%s%s",
            *(row.task, _HOW[row.how], took, row.ref.kind, row.name, label),
            f" · {figures}" if figures else "",
            extra={
                "flow_run_id": str(self._run_id),
                "task_run_id": str(self.task_runs[row.task]) if row.task in self.task_runs else None,
                "task_run_name": row.task,
                "task_name": row.ref.kind,
            },
        )

    def _show(self, client: SyncPrefectClient, row: RunRow) -> None:
        self._learn(client, producers(self._store, self._store.record(row.ref)))
        self._publish(client, pieces(self._store, row, self.links), self.task_runs.get(row.task))

    def _learn(self, client: SyncPrefectClient, ids: set[str]) -> None:
        """Ask the server once for the names of flow runs that it may know."""
        asked = self.links.unknown(ids)
        if not asked:
            return
        wanted = FlowRunFilter(id=FlowRunFilterId(any_=[UUID(run_id) for run_id in asked]))
        found = client.read_flow_runs(flow_run_filter=wanted, limit=200)
        self.links.learn(asked, {str(run.id): run.name for run in found})

    def _publish(self, client: SyncPrefectClient, made: list[Piece], task_run: UUID | None) -> None:
        for piece in made:
            self._create(client, task_run, **piece._asdict())

    def _create(self, client: SyncPrefectClient, task_run: UUID | None, **shown: Any) -> UUID:
        """Create an artifact and return its id.

        Not by `create_artifact`, which would also emit an event that no page shows.
        """
        artifact = ArtifactCreate(flow_run_id=self._run_id, task_run_id=task_run, **shown)
        answer = client.request(
            "POST", "/artifacts/", json=artifact.model_dump(mode="json", exclude_unset=True)
        )
        return UUID(answer.json()["id"])

    def _show_progress(self, client: SyncPrefectClient) -> None:
        """Create or update the progress artifacts of the groups that have worked for long."""
        now = time.monotonic()
        with self._run.lock:
            states = {
                name: (round(100 * group.share, 1), group.words(now), group.complete)
                for name, group in self._run.groups.items()
                if group.began is not None
                and (name in self._progress or (group.age(now) > _LONG_SECONDS and not group.complete))
            }
        for group, (percent, words, complete) in states.items():
            self._put_progress(client, group, {"data": percent, "description": words})
            if complete:
                del self._progress[group]

    def _put_progress(self, client: SyncPrefectClient, group: str, shown: dict[str, Any]) -> None:
        known = self._progress.get(group)
        if known is not None:
            # Not by `update_artifact`, which would emit an event each second.
            client.request("PATCH", "/artifacts/{id}", path_params={"id": known}, json=shown)
            return
        key = key_of(f"progress-{group}", self._profile)
        self._progress[group] = self._create(
            client, self.task_runs.get(group), type="progress", key=key, **shown
        )


def _pause(age: float) -> float:
    """Return the seconds between two updates of the progress of a run of that age, in seconds."""
    return min(max(_UPDATE_SECONDS, age / _UPDATES_IN_ITS_AGE), _SLOWEST_UPDATE_SECONDS)


@contextmanager
def shown_to(page: Page) -> Iterator[Page]:
    """Send what a page shows in a thread of its own; the end of the block waits until all is sent."""
    context = copy_context()
    sender = threading.Thread(target=context.run, args=(page.send,), name="page", daemon=True)
    sender.start()
    patience = _LAST_SECONDS
    try:
        yield page
    except BaseException as error:
        patience = _LAST_SECONDS if isinstance(error, Exception) else _UPDATE_SECONDS
        raise
    finally:
        page.close()
        sender.join(patience)
