"""A run in MLflow, from its start: parameters, figures, the data card and the audit's report.

Parameters are the resolved profile by dotted names, metrics the figures of each stage's artifact as the
run's record names them; shards have none. A character that MLflow takes in no name is written by its
number.
"""

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from tokmill.flows.profile.sections import MLflow
from tokmill.flows.results import RunRow
from tokmill.flows.tracking.attempt import Attempt, End, Follower, Outbox, texts_of
from tokmill.tasks.core.stage import ArtifactRef, Scalar
from tokmill.tasks.holdout.stage import TRAINING, VALIDATION

_STATUS: Final[Mapping[End, str]] = {"completed": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}
_PARAMS_AT_ONCE: Final = 100
_METRICS_AT_ONCE: Final = 900
"""A request has at most 1000 entries, tags among them."""
_LONGEST_PARAM, _LONGEST_NAME = 6000, 250
_REFUSED: Final = re.compile(r"[^\w.\- ]")
_SECONDS, _HURRIED_SECONDS = 120.0, 1.5


class MLflowRun(Follower):
    """Logs one attempt."""

    def __init__(self, wanted: MLflow, attempt: Attempt, warn: Callable[[str], None]) -> None:
        self._wanted = wanted
        self._attempt = attempt
        self._refs: dict[str, ArtifactRef] = {}
        self._how: dict[str, int] = {"made": 0, "cached": 0, "waited": 0}
        self._client: MlflowClient | None = None
        self._id = ""
        self._outbox = Outbox("mlflow", warn)

    def begin(self) -> None:
        """Create the run, with its parameters and tags."""
        self._outbox.put(self._create)

    def finished(self, row: RunRow) -> None:
        """Log the figures of an artifact, unless it is a shard's."""
        self._how[row.how] += 1
        kind = self._named_kind(row.task, row.ref.kind)
        if kind is not None:
            self._refs[kind] = row.ref
            self._outbox.put(lambda: self._figures(kind, row.ref))

    def _named_kind(self, title: str, kind: str) -> str | None:
        """Return what the run's record calls a task's artifact; None if it has no figures of it there."""
        stage, _, part = title.partition(".")
        if "[" in title:
            return None
        if stage == "ingest" and self._attempt.begun.parameters.get("holdout"):
            return "ingested"
        named: Mapping[tuple[str, str], str] = {
            ("pack", VALIDATION): "validation",
            ("holdout", TRAINING): kind,
        }
        return named.get((stage, part)) if part else kind

    def end(self, end: End, message: str = "") -> None:
        """Upload what was asked for, and set the run's state."""
        if end == "completed":
            self._outbox.put(self._upload)
        self._outbox.put(lambda: self._close(end, message))
        self._outbox.close(_HURRIED_SECONDS if end == "stopped" else _SECONDS)

    @property
    def _opened(self) -> MlflowClient:
        if self._client is None or not self._id:
            raise ConnectionError("the run could not be created")
        return self._client

    def _create(self) -> None:
        attempt = self._attempt
        # it would print the run's address where scripts read what `--json` prints
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        client = self._client = MlflowClient(tracking_uri=self._wanted.tracking_uri)
        begun = attempt.begun
        tags = {
            "tokmill.run": attempt.run_id,
            "tokmill.attempt": str(attempt.number),
            "tokmill.profile": begun.profile,
            "tokmill.store": attempt.store.location,
            "tokmill.page": begun.url or "",
            "tokmill.tags": ", ".join(begun.tags),
            "mlflow.note.content": begun.notes,
            "mlflow.user": begun.started_by.user or "",
        }
        tags = {name: value for name, value in tags.items() if value}
        experiment = _experiment(client, self._wanted.experiment or begun.experiment or begun.profile)
        began = round(attempt.began.timestamp() * 1000)
        self._id = client.create_run(experiment, began, tags, begun.name).info.run_id
        given = {_named(name): value[:_LONGEST_PARAM] for name, value in texts_of(begun.parameters).items()}
        params = [Param(name, value) for name, value in given.items()]
        for first in range(0, len(params), _PARAMS_AT_ONCE):
            client.log_batch(self._id, params=params[first : first + _PARAMS_AT_ONCE])

    def _figures(self, kind: str, ref: ArtifactRef) -> None:
        record = self._attempt.store.record(ref)
        now = round(self._attempt.began.timestamp() * 1000)
        metrics = [Metric(name, value, now, 0) for name, value in _numbers(kind, record.metrics)]
        tags = [RunTag(f"tokmill.artifact.{kind}", record.reference)]
        for first in range(0, max(1, len(metrics)), _METRICS_AT_ONCE):
            part = metrics[first : first + _METRICS_AT_ONCE]
            self._opened.log_batch(self._id, metrics=part, tags=[] if first else tags)

    def _upload(self) -> None:
        with tempfile.TemporaryDirectory(prefix="tokmill-mlflow-") as folder:
            for path in self._files(Path(folder)):
                self._opened.log_artifact(self._id, str(path))

    def _files(self, folder: Path) -> Iterator[Path]:
        store, wanted = self._attempt.store, self._wanted.artifacts
        if "profile" in wanted:
            profile = folder / "profile.json"
            profile.write_text(
                json.dumps(self._attempt.begun.parameters, indent=1, ensure_ascii=False), "utf-8"
            )
            yield profile
        if "card" in wanted and "card" in self._refs:
            yield from (store.path(self._refs["card"]) / name for name in ("card.md", "card.json"))
        if "report" in wanted and "audit" in self._refs:
            yield _report(self._attempt, self._refs["audit"], folder / "report")

    def _close(self, end: End, message: str) -> None:
        client = self._opened
        for how, number in self._how.items():
            client.set_tag(self._id, f"tokmill.tasks.{how}", str(number))
        if message:
            client.set_tag(self._id, "tokmill.message", message[:_LONGEST_PARAM])
        client.set_terminated(self._id, _STATUS[end])


def _experiment(client: MlflowClient, name: str) -> str:
    """Return the id of an experiment, which is created if need be."""
    for _ in range(2):
        if (found := client.get_experiment_by_name(name)) is not None:
            return str(found.experiment_id)
        with suppress(MlflowException):  # another run was quicker
            return str(client.create_experiment(name))
    return str(client.create_experiment(name))


def _named(name: str) -> str:
    """Return a name that MLflow takes: no slashes either, since it treats names as paths."""
    return _REFUSED.sub(lambda found: f"u{ord(found[0]):04X}", name)[:_LONGEST_NAME]


def _numbers(kind: str, metrics: Mapping[str, Scalar]) -> Iterator[tuple[str, float]]:
    for name, value in metrics.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield _named(f"{kind}.{name}"), float(value)


def _report(attempt: Attempt, audit: ArtifactRef, out: Path) -> Path:
    """Write the report of an audit, as `tokmill report` does."""
    from tokmill.tasks.audit.report import write_report  # noqa: PLC0415 - only where it is asked for
    from tokmill.tasks.formats.tokenizer import open_tokenizer  # noqa: PLC0415

    (tokenizer,) = attempt.store.record(audit).refs("tokenizer")
    out.mkdir()
    store: Any = attempt.store
    return write_report(store.path(audit), out, tokenizer=open_tokenizer(store.path(tokenizer)))
