"""What a run shows of itself in the Prefect UI while it works: logs, artifacts and progress.

A `Page` listens in the run's own process, whichever runner executes the tasks. One thread sends its requests;
one that fails is logged once, and never makes a run fail.
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

from prefect.artifacts import create_markdown_artifact
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import ArtifactCreate
from prefect.logging import get_logger
from prefect.states import Failed

from tokmill.flows.figures import key_figures, span
from tokmill.flows.prefect.artifact_page import Links, Piece, key_of, piece, shards_table
from tokmill.flows.prefect.run_page import failure_summary, refusal_summary
from tokmill.flows.results import RunRow
from tokmill.flows.run.events import Event, RunState
from tokmill.flows.run.progress import Group

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


class Page:
    """Reports a run to the Prefect server; see the module."""

    def __init__(
        self, run_id: str, profile: str, links: Links, run: RunState, task_runs: Mapping[str, UUID]
    ) -> None:
        self.links = links
        self._run_id = UUID(run_id)
        self._profile = profile
        self._run = run
        self._task_runs = task_runs
        self._progress: dict[str, UUID] = {}
        self._waiting: SimpleQueue[Send | None] = SimpleQueue()
        self._failed = False

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Send what the page shows in a thread; the end of the block waits until all is sent.

        If the block fails, a summary of the failure is published.
        """
        sender = threading.Thread(target=copy_context().run, args=(self._send,), name="page", daemon=True)
        sender.start()
        patience = _UPDATE_SECONDS
        try:
            yield
            patience = _LAST_SECONDS
        except Exception as error:
            failure = failure_summary(self._profile, self.links, error, self._run, self._task_runs)
            self.publish(lambda: failure)
            patience = _LAST_SECONDS
            raise
        finally:
            self._waiting.put(None)
            sender.join(patience)

    def __call__(self, event: Event, run: RunState) -> None:
        """Show an event; Prefect logs the error of a task itself."""
        if event.row is not None and event.group is not None:
            self._finished(event.row, event.group)
        elif event.what == "refused" and event.task in self._task_runs:
            task_run, text = self._task_runs[event.task], event.text  # it is shown as failed, too
            self._waiting.put(
                lambda client: client.set_task_run_state(task_run, Failed(message=text), force=True)
            )
        elif event.what == "noted":
            _LOG.warning("%s", event.text)

    def _finished(self, row: RunRow, group: Group) -> None:
        self._log(row)
        if group.name == row.task or (row.how == "made" and row.seconds >= _LONG_SECONDS):
            self.publish(lambda: piece(row, self.links), self._task_runs.get(row.task))
        with self._run.lock:  # of many shards, only the last one copies what the others did
            rows = list(group.rows) if group.complete and group.name != row.task else []
        if any(each.how != "cached" for each in rows):
            self.publish(lambda: shards_table(group.name, rows))

    def _log(self, row: RunRow) -> None:
        """Log a task's result, as a message of its task run and its flow run."""
        took = f" in {span(row.seconds)}" if row.how != "cached" else ""
        how = "made by another run" if row.how == "waited" else row.how
        reference = f"{row.ref.kind}/{row.name}@{self.links.store.label(row.ref, row.name)}"
        figures = key_figures(row.ref.kind, row.metrics)
        task_run = self._task_runs.get(row.task)
        _TASKS.info(
            " · ".join(filter(None, (f"{row.task}: {how}{took}", reference, figures))),
            extra={
                "flow_run_id": str(self._run_id),
                "task_run_id": str(task_run) if task_run else None,
                "task_run_name": row.task,
                "task_name": row.ref.kind,
            },
        )

    def publish(self, made: Callable[[], Piece], task_run: UUID | None = None) -> None:
        """Publish an artifact, made when its turn has come."""
        self._waiting.put(lambda client: self._create(client, task_run, **made()._asdict()))

    def _send(self) -> None:
        """Send what is waiting, and progress from time to time, until the end."""
        began = time.monotonic()
        due = began + _UPDATE_SECONDS
        with get_client(sync_client=True) as client:
            while True:
                try:
                    send = self._waiting.get(timeout=max(due - time.monotonic(), 0))
                except Empty:
                    self._attempt(client, self._show_progress)
                    now = time.monotonic()
                    pause = max(_UPDATE_SECONDS, (now - began) / _UPDATES_IN_ITS_AGE)
                    due = now + min(pause, _SLOWEST_UPDATE_SECONDS)
                    continue
                self._attempt(client, send or self._show_progress)
                if send is None:
                    return

    def _attempt(self, client: SyncPrefectClient, send: Send) -> None:
        """Send something; only the first failure is logged, since the next ones have the same reason."""
        try:
            send(client)
        except Exception as error:
            if not self._failed:
                _LOG.warning("the server does not take what the run shows: %s", error)
            self._failed = True

    def _create(self, client: SyncPrefectClient, task_run: UUID | None, **shown: Any) -> UUID:
        """Create an artifact and return its id.

        Not by `create_artifact`, which would also emit an event that no page shows.
        """
        artifact = ArtifactCreate(flow_run_id=self._run_id, task_run_id=task_run, **shown)
        body = artifact.model_dump(mode="json", exclude_unset=True)
        return UUID(client.request("POST", "/artifacts/", json=body).json()["id"])

    def _show_progress(self, client: SyncPrefectClient) -> None:
        """Create or update the progress artifacts of the groups that have worked for long."""
        now = time.monotonic()
        with self._run.lock:
            groups = {
                name: ({"data": round(100 * group.share, 1), "description": group.words(now)}, group.complete)
                for name, group in self._run.groups.items()
                if name in self._progress or (group.age(now) > _LONG_SECONDS and not group.complete)
            }
        for name, (shown, complete) in groups.items():
            if name in self._progress:  # not by `update_artifact`, which would emit an event each second
                path = {"id": self._progress[name]}
                client.request("PATCH", "/artifacts/{id}", path_params=path, json=shown)
            else:
                key, task_run = key_of(f"progress-{name}", self._profile), self._task_runs.get(name)
                self._progress[name] = self._create(client, task_run, type="progress", key=key, **shown)
            if complete:
                del self._progress[name]


def show_refused(profile: str, error: Exception) -> None:
    """Publish a summary of the current flow run, which is refused before it begins."""
    piece = refusal_summary(profile, error)
    try:
        create_markdown_artifact(piece.data, piece.key, description=piece.description)
    except Exception as unsent:
        _LOG.warning("the server does not take the summary: %s", unsent)
