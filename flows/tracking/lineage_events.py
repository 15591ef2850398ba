"""Events of OpenLineage for an attempt of a run and for each of its tasks.

Each has a START and one of COMPLETE, FAIL and ABORT, in the order of the run; a task that was cached has both
at once, and what was begun when the attempt ended has an ABORT. The shards of a stage are runs of one job.
Source: https://openlineage.io/spec/2-0-2/OpenLineage.json
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from importlib import metadata
from typing import Any, Final

from filelock import FileLock
from openlineage.client import facet_v2 as facets
from openlineage.client.client import OpenLineageClient
from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import HttpConfig, HttpTransport, create_token_provider

from tokmill.flows.credentials import kept
from tokmill.flows.profile.sections import ENVIRONMENT, OpenLineage
from tokmill.flows.results import RunRow
from tokmill.flows.tracking.attempt import Asked, Attempt, End, Outbox, flat
from tokmill.flows.tracking.datasets import PRODUCER, Datasets

_ENDS: Final = {"completed": RunState.COMPLETE, "failed": RunState.FAIL, "stopped": RunState.ABORT}
_SECONDS, _HURRIED_SECONDS = 60.0, 1.5
_SILENCE_SECONDS = 10.0  # as long as the client's first five attempts at one event


class LineageEvents:
    """Sends the events of one attempt; its methods are called from any thread.

    Args:
        wanted: where the events go.
        attempt: of which run.
        warn: called with one sentence if events were not taken.
    """

    def __init__(self, wanted: OpenLineage, attempt: Attempt, warn: Callable[[str], None]) -> None:
        self._wanted, self._attempt = wanted, attempt
        self._datasets = Datasets(attempt.store)
        self._asked: dict[str, Asked] = {}
        self._open: dict[str, datetime] = {}
        self._lock = threading.Lock()
        self._client: OpenLineageClient | None = None
        self._outbox = Outbox("openlineage", warn)

    def begin(self) -> None:
        """Tell that the attempt begins."""
        given = {"executionParameters": _parameters(self._attempt.begun.parameters)}
        self._put(lambda: self._of_run(RunState.START, self._attempt.began, given))

    def asked(self, task: Asked) -> None:
        """Note what a task is to make, for its events."""
        with self._lock:
            self._asked[task.title] = task

    def started(self, title: str) -> None:
        """Tell that a task begins to work."""
        self._start(title, datetime.now(UTC))

    def finished(self, row: RunRow) -> None:
        """Tell that a task has its artifact."""
        now = datetime.now(UTC)
        self._start(row.task, now - timedelta(seconds=row.seconds))
        with self._lock:
            self._open.pop(row.task, None)
        self._put(lambda: self._complete(row, now))

    def failed(self, title: str, message: str) -> None:
        """Tell that a task has failed."""
        now = datetime.now(UTC)
        self._start(title, now)
        self._end_early(title, now, RunState.FAIL, message)

    def end(self, end: End, message: str = "") -> None:
        """Tell how the attempt ended, and wait for the events to be sent."""
        now = datetime.now(UTC)
        with self._lock:
            unfinished = list(self._open)
        for title in unfinished:
            self._end_early(title, now, RunState.ABORT, message)
        self._put(lambda: self._of_run(_ENDS[end], now, _error(message)))
        self._outbox.close(_HURRIED_SECONDS if end == "stopped" else _SECONDS, _SILENCE_SECONDS)

    def _start(self, title: str, when: datetime) -> None:
        with self._lock:
            if title in self._open:
                return
            self._open[title] = when
        self._put(lambda: self._promise(title, RunState.START, when, {}))

    def _end_early(self, title: str, when: datetime, state: RunState, message: str) -> None:
        with self._lock:
            self._open.pop(title, None)
        self._put(lambda: self._promise(title, state, when, _error(message)))

    def _put(self, make: Callable[[], RunEvent]) -> None:
        self._outbox.put(lambda: self._emit(make()))

    def _emit(self, event: RunEvent) -> None:
        self._client = self._client or _client_for(self._wanted)
        to = self._wanted.to or ""  # other runs may add lines to the same file
        with FileLock(f"{to.removeprefix('file:')}.lock") if to.startswith("file:") else nullcontext():
            self._client.emit(event)

    def _of_run(self, state: RunState, when: datetime, of_run: Mapping[str, Any]) -> RunEvent:
        attempt = self._attempt
        tags = {"run": attempt.run_id, "attempt": str(attempt.number), "name": attempt.begun.name}
        tags |= {"page": attempt.begun.url or "", "experiment": attempt.begun.experiment}
        run = Run(str(attempt.id), {"tags": _tags(tags), **of_run})
        return self._event(state, when, run, (attempt.begun.profile, "DAG"))

    def _promise(self, title: str, state: RunState, when: datetime, of_run: Mapping[str, Any]) -> RunEvent:
        """Return an event of a task without artifact: what it is to make, and of what."""
        task = self._asked.get(title)
        if task is None:
            return self._of_task(title, state, when, of_run)
        return self._of_task(
            *(title, state, when, {"executionParameters": _parameters(task.params), **of_run}),
            inputs=self._datasets.inputs(task.inputs, task.lists),
            outputs=[self._datasets.promised(task.kind, task.name)],
        )

    def _complete(self, row: RunRow, when: datetime) -> RunEvent:
        record, task = self._attempt.store.record(row.ref), self._asked.get(row.task)
        lists = () if task is None else task.lists
        tags = {"how": row.how, "seconds": f"{row.seconds:.3f}", "artifact": record.reference}
        of_run = {"executionParameters": _parameters(record.params), "tags": _tags(tags)}
        return self._of_task(
            *(row.task, RunState.COMPLETE, when, of_run),
            inputs=self._datasets.inputs(record.inputs, lists),
            outputs=[self._datasets.output(record, lists)],
        )

    def _of_task(
        self, title: str, state: RunState, when: datetime, of_run: Mapping[str, Any], **datasets: list[Any]
    ) -> RunEvent:
        attempt, of = self._attempt, facets.parent_run
        job = of.Job(self._wanted.namespace, attempt.begun.profile)
        parent = of.ParentRunFacet(of.Run(str(attempt.id)), job)
        stage, shard, _ = title.partition("[")
        name = f"{attempt.begun.profile}.{stage}{'.shards' if shard else ''}"
        run = Run(str(attempt.task_id(title)), {"parent": parent, **of_run})
        return self._event(state, when, run, (name, "TASK"), **datasets)

    def _event(
        self, state: RunState, when: datetime, run: Run, job: tuple[str, str], **datasets: list[Any]
    ) -> RunEvent:
        name, kind = job
        versions = metadata.version("tokmill"), "tokmill", metadata.version("openlineage-python")
        run.facets = {
            "processing_engine": facets.processing_engine_run.ProcessingEngineRunFacet(*versions),
            **(run.facets or {}),
        }
        kinds: dict[str, Any] = {"jobType": facets.job_type_job.JobTypeJobFacet("BATCH", "TOKMILL", kind)}
        return RunEvent(
            eventType=state,
            eventTime=when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            run=run,
            job=Job(self._wanted.namespace, name, kinds),
            producer=PRODUCER,
            **datasets,
        )


def _client_for(wanted: OpenLineage) -> OpenLineageClient:
    to = wanted.to or ENVIRONMENT
    if to == ENVIRONMENT:
        return OpenLineageClient()
    if to.startswith("file:"):
        return OpenLineageClient(transport=FileTransport(FileConfig(to.removeprefix("file:"), append=True)))
    key = {} if wanted.api_key is None else {"type": "api_key", "apiKey": kept(wanted.api_key)}
    config = HttpConfig(url=to, timeout=wanted.timeout, auth=create_token_provider(key))
    return OpenLineageClient(transport=HttpTransport(config))


def _tags(tags: Mapping[str, str]) -> Any:
    of = facets.tags_run
    return of.TagsRunFacet([of.TagsRunFacetFields(*tag, "TOKMILL") for tag in tags.items() if tag[1]])


def _error(message: str) -> dict[str, Any]:
    error = facets.error_message_run.ErrorMessageRunFacet
    return {"errorMessage": error(message, "PYTHON")} if message else {}


def _parameters(values: Mapping[str, Any]) -> Any:
    of = facets.execution_parameters_run
    return of.ExecutionParametersRunFacet([of.ExecutionParameter(*pair) for pair in flat(values).items()])
