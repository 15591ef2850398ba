"""Events of OpenLineage for an attempt of a run and for each of its tasks.

Each has a START and one of COMPLETE, FAIL and ABORT, in the order of the run; a task that was cached has both
at once, and what was begun when the attempt ended has an ABORT. The shards of a stage are runs of one job.
Datasets are `kind/name` in a store, whose versions are artifacts by their content digests, and files.
Sources: https://openlineage.io/spec/2-0-2/OpenLineage.json and https://openlineage.io/docs/spec/naming
"""

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid5

import numpy as np
import pyarrow.parquet as pq
from filelock import FileLock
from openlineage.client import facet_v2 as facets
from openlineage.client.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import HttpConfig, HttpTransport, create_token_provider

from tokmill.flows.credentials import kept
from tokmill.flows.profile.sections import ENVIRONMENT, OpenLineage
from tokmill.flows.results import RunRow
from tokmill.flows.tracking.attempt import Asked, Attempt, End, Follower, Outbox, texts_of
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store
from tokmill.tasks.store.record import InputEntry, Record

_ENDS: Final = {"completed": RunState.COMPLETE, "failed": RunState.FAIL, "stopped": RunState.ABORT}
_SECONDS, _HURRIED_SECONDS = 60.0, 1.5
_SILENCE_SECONDS = 10.0  # as long as the client's first five attempts at one event
PRODUCER: Final = f"pkg:pypi/tokmill@{metadata.version('tokmill')}"
"""The URI by which events and facets say who made them: a package URL, which needs no server."""
facets.set_producer(PRODUCER)
_ROWS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("corpus", "hashes_shard", "encoded_shard", "encoded", "mixture"), "num_documents"),
    **dict.fromkeys(("pack_plan", "packed_shard", "packed"), "num_sequences"),
    "counts_shard": "num_distinct",
    "counts": "num_distinct_by_source",
    "tokenizer": "vocab_size",
}
"""By kind, the metric that counts what an artifact consists of; other kinds have no rows."""
_POINTED_AT: Final = {
    "corpus": ("text", "string", "the files that the corpus points at"),
    "packed": ("input_ids", "integer", "the packed sequences"),
    "packed_shard": ("input_ids", "integer", "the packed sequences"),
}
"""Columns whatever the format: name, type, and where they are."""
_ORIGINS: Final[Mapping[str, Mapping[str, tuple[str, str, str]]]] = {
    "corpus": {"text": ("", "text", "IDENTITY")},
    "counts_shard": {
        "pretoken": ("corpus", "text", "TRANSFORMATION"),
        "count": ("corpus", "text", "AGGREGATION"),
    },
    "counts": {
        column: ("counts_shard", column, how)
        for column, how in (("pretoken", "IDENTITY"), ("count", "AGGREGATION"))
    },
    "encoded_shard": {"tokens": ("corpus", "text", "TRANSFORMATION")},
    "packed_shard": {"input_ids": ("encoded_shard", "tokens", "IDENTITY")},
    "packed": {"input_ids": ("packed_shard", "input_ids", "IDENTITY")},
}
"""By kind and column: the kind and column that it is made of (a file for no kind), and how."""


class LineageEvents(Follower):
    """Sends the events of one attempt."""

    def __init__(self, wanted: OpenLineage, attempt: Attempt, warn: Callable[[str], None]) -> None:
        self._wanted, self._attempt = wanted, attempt
        self._datasets = Datasets(attempt.store)
        self._asked: dict[str, Asked] = {}
        self._open: set[str] = set()  # titles of tasks that have begun
        self._lock = threading.Lock()
        self._client: OpenLineageClient | None = None
        self._outbox = Outbox("openlineage", warn)

    def begin(self) -> None:
        """Tell that the attempt begins."""
        self._put(RunState.START, self._attempt.began)

    def asked(self, task: Asked) -> None:
        """Note what a task is to make, for its events."""
        self._asked[task.title] = task

    def started(self, title: str, when: datetime | None = None) -> None:
        """Tell that a task begins to work, unless that was told."""
        with self._lock:
            if title in self._open:
                return
            self._open.add(title)
        self._put(RunState.START, when or datetime.now(UTC), title)

    def finished(self, row: RunRow) -> None:
        """Tell that a task has its artifact."""
        now = datetime.now(UTC)
        self.started(row.task, now - timedelta(seconds=row.seconds))
        self._put(RunState.COMPLETE, now, row.task, row=row)

    def failed(self, title: str, message: str) -> None:
        """Tell that a task has failed."""
        self.started(title)
        self._put(RunState.FAIL, datetime.now(UTC), title, message)

    def end(self, end: End, message: str = "") -> None:
        """Tell how the attempt ended, and wait for the events to be sent."""
        now = datetime.now(UTC)
        with self._lock:
            unfinished = list(self._open)
        for title in unfinished:
            self._put(RunState.ABORT, now, title, message)
        self._put(_ENDS[end], now, message=message)
        self._outbox.close(_HURRIED_SECONDS if end == "stopped" else _SECONDS, _SILENCE_SECONDS)

    def _put(
        self, state: RunState, when: datetime, title: str = "", message: str = "", row: RunRow | None = None
    ) -> None:
        """Have an event made and sent: of the attempt, or of a task with a title."""
        if state != RunState.START:
            with self._lock:
                self._open.discard(title)

        def send() -> None:
            of_run, datasets = self._of_task(title, row) if title else (self._of_attempt(state), {})
            if message:
                of_run["errorMessage"] = facets.error_message_run.ErrorMessageRunFacet(message, "PYTHON")
            event = RunEvent(
                eventType=state,
                eventTime=when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
                run=self._run(title, of_run),
                job=self._job(title),
                producer=PRODUCER,
                **datasets,
            )
            self._client = self._client or _client_for(self._wanted)
            to = self._wanted.to or ""  # other runs may add lines to the same file
            with FileLock(f"{to.removeprefix('file:')}.lock") if to.startswith("file:") else nullcontext():
                self._client.emit(event)

        self._outbox.put(send)

    def _run(self, title: str, of_run: dict[str, Any]) -> Run:
        versions = metadata.version("tokmill"), "tokmill", metadata.version("openlineage-python")
        engine = facets.processing_engine_run.ProcessingEngineRunFacet(*versions)
        run_id = uuid5(self._attempt.id, title) if title else self._attempt.id
        return Run(str(run_id), {"processing_engine": engine, **of_run})

    def _job(self, title: str) -> Job:
        stage, shard, _ = title.partition("[")
        below = f".{stage}{'.shards' if shard else ''}" if title else ""
        kind = facets.job_type_job.JobTypeJobFacet("BATCH", "TOKMILL", "TASK" if title else "DAG")
        return Job(self._wanted.namespace, f"{self._attempt.begun.profile}{below}", {"jobType": kind})

    def _of_attempt(self, state: RunState) -> dict[str, Any]:
        begun, number = self._attempt.begun, str(self._attempt.number)
        tags = {"run": self._attempt.run_id, "attempt": number, "name": begun.name}
        found = {"tags": _tags({**tags, "page": begun.url or "", "experiment": begun.experiment})}
        begins = state == RunState.START
        return {**found, "executionParameters": _parameters(begun.parameters)} if begins else found

    def _of_task(self, title: str, row: RunRow | None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the facets and datasets of a task: of its artifact, or else of what it is to make."""
        attempt, datasets, of, task = self._attempt, self._datasets, facets.parent_run, self._asked.get(title)
        job = of.Job(self._wanted.namespace, attempt.begun.profile)
        found: dict[str, Any] = {"parent": of.ParentRunFacet(of.Run(str(attempt.id)), job)}
        lists, inputs = ((), ()) if task is None else (task.lists, task.inputs)
        if row is not None:
            record = attempt.store.record(row.ref)
            tags = {"how": row.how, "seconds": f"{row.seconds:.3f}", "artifact": record.reference}
            found |= {"executionParameters": _parameters(record.params), "tags": _tags(tags)}
            inputs, output = tuple(record.inputs), datasets.output(record, lists)
        elif task is not None:
            found["executionParameters"] = _parameters(task.params)
            output = OutputDataset(*datasets.place(task.kind, task.name))
        else:
            return found, {}
        return found, {"inputs": datasets.inputs(inputs, lists), "outputs": [output]}


def _client_for(wanted: OpenLineage) -> OpenLineageClient:
    to = wanted.to or ENVIRONMENT
    if to == ENVIRONMENT:
        return OpenLineageClient()
    if to.startswith("file:"):
        return OpenLineageClient(transport=FileTransport(FileConfig(to.removeprefix("file:"), append=True)))
    key = {} if wanted.api_key is None else {"type": "api_key", "apiKey": kept(wanted.api_key)}
    config = HttpConfig(url=to, timeout=wanted.timeout, auth=create_token_provider(key))
    return OpenLineageClient(transport=HttpTransport(config))


def _tags(tags: Mapping[str, str], of: Any = facets.tags_run, name: str = "TagsRunFacet") -> Any:
    field = getattr(of, f"{name}Fields")
    return getattr(of, name)([field(*tag, "TOKMILL") for tag in tags.items() if tag[1]])


def _parameters(values: Mapping[str, Any]) -> Any:
    of = facets.execution_parameters_run
    return of.ExecutionParametersRunFacet([of.ExecutionParameter(*pair) for pair in texts_of(values).items()])


def named(location: str) -> tuple[str, str]:
    """Return the namespace and the name of a path or URL."""
    if "://" not in location:
        return "file", str(Path(location).absolute())
    parts = urlsplit(location)
    if parts.scheme == "file":
        return "file", parts.path
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{parts.hostname or ''}{port}", parts.path.lstrip("/")


class Datasets:
    """The datasets of one store; `lists` are artifacts that list inputs which are none themselves."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._namespace, self._base = named(store.location)

    def output(self, record: Record, lists: Sequence[ArtifactRef]) -> OutputDataset:
        """Return an artifact as the output of the task that made it."""
        tags = {"kind": record.kind, "label": record.label, "fingerprint": record.fingerprint}
        of, statistics = facets.schema_dataset, facets.output_statistics_output_dataset
        found = {
            "version": _version(record.content_digest),
            "datasetType": facets.dataset_type_dataset.DatasetTypeDatasetFacet("FILE"),
            "tags": _tags(tags, facets.tags_dataset, "TagsDatasetFacet"),
        }
        if columns := self._columns(record):
            found["schema"] = of.SchemaDatasetFacet([of.SchemaDatasetFacetFields(*each) for each in columns])
        if lineage := dict(self._lineage(record, lists)):
            found["columnLineage"] = facets.column_lineage_dataset.ColumnLineageDatasetFacet(lineage)
        figures = statistics.OutputStatisticsOutputDatasetFacet(**_statistics(record))
        place = self.place(record.kind, record.name)
        return OutputDataset(*place, facets=found, outputFacets={"outputStatistics": figures})

    def inputs(self, entries: Sequence[InputEntry], lists: Sequence[ArtifactRef]) -> list[InputDataset]:
        """Return inputs that are artifacts or files."""
        of, found = facets.input_statistics_input_dataset, list[InputDataset]()
        given: list[InputEntry | ArtifactRef] = [*entries, *lists]
        for one in given:
            ref = one.ref if isinstance(one, InputEntry) else one
            if ref is not None:
                figures = of.InputStatisticsInputDatasetFacet(**_statistics(self._store.record(ref)))
                about: Any = {"inputFacets": {"inputStatistics": figures}}
                about["facets"] = {"version": _version(ref.content_digest)}
                found.append(InputDataset(*self.place(ref.kind, ref.name), **about))
            elif isinstance(one, InputEntry) and one.origin:
                found.append(InputDataset(*named(one.origin), facets={"version": _version(one.digest)}))
        return found

    def place(self, kind: str, name: str) -> tuple[str, str]:
        """Return the namespace and the name of an artifact, which is no version yet."""
        path = f"{self._base.rstrip('/')}/{kind}/{name}"
        return self._namespace, path if self._namespace == "file" else path.lstrip("/")

    def _columns(self, record: Record) -> list[tuple[str, str, str]]:
        """Return name, type and file of each column; files that differ only by numbers count as one."""
        folder = self._store.layout.artifact(record.kind, record.fingerprint)
        alike = {re.sub(r"\d+", "0", entry.path): entry.path for entry in reversed(record.files)}
        columns = [_POINTED_AT[record.kind]] if record.kind in _POINTED_AT else []
        for path in reversed(alike.values()):
            if (folder / path).is_file():
                columns += _headers(folder / path, path)
        return list({column[0]: column for column in reversed(columns)}.values())[::-1]

    def _lineage(
        self, record: Record, lists: Sequence[ArtifactRef]
    ) -> Iterator[tuple[str, facets.column_lineage_dataset.Fields]]:
        of = facets.column_lineage_dataset
        for column, (kind, field, subtype) in _ORIGINS.get(record.kind, {}).items():
            how = [of.Transformation("DIRECT", subtype)]
            inputs: list[InputEntry | ArtifactRef] = [*record.inputs, *lists]
            names = [entry.name for entry in inputs if entry.kind == kind and entry.name]
            files = [entry.origin for entry in record.inputs if not kind and not entry.kind and entry.origin]
            places = dict.fromkeys([*(self.place(kind, name) for name in names), *map(named, files)])
            if places:
                fields = [of.InputField(*place, field, transformations=how) for place in places]
                yield column, of.Fields(fields)


def _headers(path: Path, name: str) -> Iterator[tuple[str, str, str]]:
    if path.suffix == ".parquet":
        for column in pq.read_schema(path):
            yield column.name, str(column.type), name
    elif path.suffix == ".npy":
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        yield path.name.split(".")[-2], str(array.dtype), name


def _version(digest: str) -> Any:
    return facets.dataset_version_dataset.DatasetVersionDatasetFacet(digest)


def _statistics(record: Record) -> dict[str, Any]:
    number: Any = record.metrics.get(_ROWS.get(record.kind, ""))
    rows = None if number is None else int(number)
    return {"rowCount": rows, "size": record.num_bytes, "fileCount": len(record.files)}
