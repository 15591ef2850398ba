"""Events of OpenLineage for an attempt of a run and for each of its tasks.

Each has a START and one of COMPLETE, FAIL and ABORT; a task that was cached has both at once. The order is
that of the run: its START comes first and its end last; a task starts after the ends of those that it depends
on. What was begun when the attempt ended has an ABORT. The shards of a stage are runs of one job
(`quickstart.encode.shards`).

Source: https://openlineage.io/spec/2-0-2/OpenLineage.json
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from importlib import metadata
from typing import Any

from filelock import FileLock
from openlineage.client.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    JobFacet,
    RunFacet,
    error_message_run,
    execution_parameters_run,
    job_type_job,
    parent_run,
    processing_engine_run,
    tags_run,
)
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import HttpConfig, HttpTransport, create_token_provider
from openlineage.client.transport.transport import Transport

from tokmill.flows.kept import kept
from tokmill.flows.profile.tracking import ENVIRONMENT, OpenLineage
from tokmill.flows.results import RunRow
from tokmill.flows.tracking.attempt import Asked, Attempt, End, flat
from tokmill.flows.tracking.datasets import PRODUCER, Datasets
from tokmill.flows.tracking.outbox import Outbox

_ENDS: Mapping[End, RunState] = {
    "completed": RunState.COMPLETE,
    "failed": RunState.FAIL,
    "stopped": RunState.ABORT,
}
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
        self._wanted = wanted
        self._attempt = attempt
        self._datasets = Datasets(attempt.store)
        self._asked: dict[str, Asked] = {}
        self._open: dict[str, datetime] = {}
        self._lock = threading.Lock()
        self._client: OpenLineageClient | None = None
        self._outbox = Outbox("openlineage", warn)

    def begin(self) -> None:
        """Tell that the attempt begins."""
        parameters = _parameters(self._attempt.begun.parameters)
        self._put(lambda: self._of_run(RunState.START, self._attempt.began, executionParameters=parameters))

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
            left = list(self._open)
        for title in left:
            self._end_early(title, now, RunState.ABORT, message)
        self._put(lambda: self._of_run(_ENDS[end], now, **_error(message)))
        self._outbox.close(_HURRIED_SECONDS if end == "stopped" else _SECONDS, _SILENCE_SECONDS)

    def _start(self, title: str, when: datetime) -> None:
        with self._lock:
            if title in self._open:
                return
            self._open[title] = when
        self._put(lambda: self._of_task(title, RunState.START, when))

    def _end_early(self, title: str, when: datetime, state: RunState, message: str) -> None:
        with self._lock:
            self._open.pop(title, None)
        self._put(lambda: self._of_task(title, state, when, **_error(message)))

    def _put(self, make: Callable[[], RunEvent]) -> None:
        self._outbox.put(lambda: self._emit(make()))

    def _emit(self, event: RunEvent) -> None:
        self._client = self._client or client_for(self._wanted)
        with _alone(self._wanted.to or ""):
            self._client.emit(event)

    def _of_run(self, state: RunState, when: datetime, **facets: RunFacet) -> RunEvent:
        attempt = self._attempt
        tags = {"run": attempt.run_id, "attempt": str(attempt.number), "name": attempt.begun.name}
        tags |= {"page": attempt.begun.url or "", "experiment": attempt.begun.experiment}
        run = Run(str(attempt.id), {**_engine(), "tags": _tags(tags), **facets})
        return _event(state, when, run, self._job(attempt.begun.profile, "DAG"), [], [])

    def _of_task(self, title: str, state: RunState, when: datetime, **facets: RunFacet) -> RunEvent:
        task = self._asked.get(title)
        inputs, outputs, parameters = [], [], {}
        if task is not None:
            inputs = self._inputs(task)
            outputs = [self._datasets.promised(task.kind, task.name)]
            parameters = {"executionParameters": _parameters(task.params)}
        return self._task(title, state, when, {**parameters, **facets}, inputs, outputs)

    def _complete(self, row: RunRow, when: datetime) -> RunEvent:
        record, task = self._attempt.store.record(row.ref), self._asked.get(row.task)
        lists = () if task is None else task.lists
        given = [self._datasets.input(entry) for entry in record.inputs]
        inputs = [each for each in given if each] + [self._datasets.artifact(ref) for ref in lists]
        facets = {
            "executionParameters": _parameters(record.params),
            "tags": _tags({"how": row.how, "seconds": f"{row.seconds:.3f}", "artifact": record.reference}),
        }
        outputs = [self._datasets.output(record, lists)]
        return self._task(row.task, RunState.COMPLETE, when, facets, inputs, outputs)

    def _inputs(self, task: Asked) -> list[InputDataset]:
        given = [self._datasets.input(entry) for entry in task.inputs]
        return [each for each in given if each] + [self._datasets.artifact(ref) for ref in task.lists]

    def _task(
        self,
        title: str,
        state: RunState,
        when: datetime,
        facets: Mapping[str, RunFacet],
        inputs: list[InputDataset],
        outputs: list[OutputDataset],
    ) -> RunEvent:
        attempt = self._attempt
        parent = parent_run.ParentRunFacet(
            parent_run.Run(str(attempt.id)),
            parent_run.Job(self._wanted.namespace, attempt.begun.profile),
            producer=PRODUCER,
        )
        run = Run(str(attempt.task_id(title)), {**_engine(), "parent": parent, **facets})
        stage, shard, _ = title.partition("[")
        job = self._job(f"{attempt.begun.profile}.{stage}{'.shards' if shard else ''}", "TASK")
        return _event(state, when, run, job, inputs, outputs)

    def _job(self, name: str, kind: str) -> Job:
        facet: JobFacet = job_type_job.JobTypeJobFacet("BATCH", "TOKMILL", jobType=kind, producer=PRODUCER)
        return Job(self._wanted.namespace, name, {"jobType": facet})


def client_for(wanted: OpenLineage) -> OpenLineageClient:
    """Return a client that sends where it is wanted."""
    to = wanted.to or ENVIRONMENT
    if to == ENVIRONMENT:
        return OpenLineageClient()
    return OpenLineageClient(transport=_transport(wanted, to))


def _transport(wanted: OpenLineage, to: str) -> Transport:
    if to.startswith("file:"):
        return FileTransport(FileConfig(to.removeprefix("file:"), append=True))
    key = {} if wanted.api_key is None else {"type": "api_key", "apiKey": kept(wanted.api_key)}
    return HttpTransport(HttpConfig(url=to, timeout=wanted.timeout, auth=create_token_provider(key)))


def _alone(to: str) -> AbstractContextManager[Any]:
    """Return a lock for a file, to which other runs may add lines, too."""
    return FileLock(f"{to.removeprefix('file:')}.lock") if to.startswith("file:") else nullcontext()


def _event(
    state: RunState,
    when: datetime,
    run: Run,
    job: Job,
    inputs: list[InputDataset],
    outputs: list[OutputDataset],
) -> RunEvent:
    moment = when.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return RunEvent(
        eventType=state, eventTime=moment, run=run, job=job, producer=PRODUCER, inputs=inputs, outputs=outputs
    )


def _engine() -> dict[str, RunFacet]:
    versions = metadata.version("tokmill"), metadata.version("openlineage-python")
    facet = processing_engine_run.ProcessingEngineRunFacet(
        versions[0], "tokmill", versions[1], producer=PRODUCER
    )
    return {"processing_engine": facet}


def _tags(tags: Mapping[str, str]) -> RunFacet:
    fields = [tags_run.TagsRunFacetFields(key, value, "TOKMILL") for key, value in tags.items() if value]
    return tags_run.TagsRunFacet(tags=fields, producer=PRODUCER)


def _error(message: str) -> dict[str, RunFacet]:
    if not message:
        return {}
    return {"errorMessage": error_message_run.ErrorMessageRunFacet(message, "PYTHON", producer=PRODUCER)}


def _parameters(given: Mapping[str, Any]) -> RunFacet:
    values = [
        execution_parameters_run.ExecutionParameter(key=key, value=value)
        for key, value in flat(given).items()
    ]
    return execution_parameters_run.ExecutionParametersRunFacet(parameters=values, producer=PRODUCER)
