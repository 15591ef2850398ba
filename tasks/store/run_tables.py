"""The catalog's tables of runs, and the rows of one run's record.

`runs` has one row per attempt, and so have the tables of what an attempt had: `run_artifacts`, `run_inputs`,
`run_metrics`. `run_parameters` has one row per run and field of its profile, `run_tags` one per tag that it
began with, and `run_annotations` one per tag and note that came later (`tasks.store.runs`).
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from tokmill.tasks.core.stage import Scalar
from tokmill.tasks.store.runs import Attempt, Remark, Run

Row: TypeAlias = dict[str, Any]

RUN_TABLES: Final[dict[str, dict[str, str]]] = {
    "runs": {
        "run_id": "VARCHAR",
        "attempt": "BIGINT",
        "is_latest": "BOOLEAN",
        "name": "VARCHAR",
        "profile": "VARCHAR",
        "experiment": "VARCHAR",
        "state": "VARCHAR",
        "message": "VARCHAR",
        "started": "TIMESTAMP",
        "ended": "TIMESTAMP",
        "parameters": "VARCHAR",
        "overrides": "VARCHAR",
        "notes": "VARCHAR",
        "started_by": "VARCHAR",
        "user_name": "VARCHAR",
        "command": "VARCHAR",
        "url": "VARCHAR",
        "deployment_id": "VARCHAR",
        "tokmill": "VARCHAR",
        "git_commit": "VARCHAR",
        "git_dirty": "BOOLEAN",
        "dirty_digest": "VARCHAR",
        "python": "VARCHAR",
        "packages": "VARCHAR",
        "host": "VARCHAR",
        "num_made": "BIGINT",
        "num_cached": "BIGINT",
        "num_waited": "BIGINT",
        "peak_bytes": "BIGINT",
    },
    "run_artifacts": {
        "run_id": "VARCHAR",
        "attempt": "BIGINT",
        "position": "BIGINT",
        "task": "VARCHAR",
        "kind": "VARCHAR",
        "name": "VARCHAR",
        "fingerprint": "VARCHAR",
        "content_digest": "VARCHAR",
        "how": "VARCHAR",
        "seconds": "DOUBLE",
        "peak_bytes": "BIGINT",
    },
    "run_inputs": {
        "run_id": "VARCHAR",
        "attempt": "BIGINT",
        "position": "BIGINT",
        "role": "VARCHAR",
        "kind": "VARCHAR",
        "name": "VARCHAR",
        "fingerprint": "VARCHAR",
        "digest": "VARCHAR",
        "num_files": "BIGINT",
        "num_bytes": "BIGINT",
        "origin": "VARCHAR",
    },
    "run_metrics": {
        "run_id": "VARCHAR",
        "attempt": "BIGINT",
        "name": "VARCHAR",
        "value": "DOUBLE",
        "text": "VARCHAR",
    },
    "run_parameters": {
        "run_id": "VARCHAR",
        "name": "VARCHAR",
        "value": "DOUBLE",
        "text": "VARCHAR",
    },
    "run_tags": {"run_id": "VARCHAR", "tag": "VARCHAR", "moment": "TIMESTAMP"},
    "run_annotations": {
        "key": "VARCHAR",
        "run_id": "VARCHAR",
        "moment": "TIMESTAMP",
        "user_name": "VARCHAR",
        "action": "VARCHAR",
        "text": "VARCHAR",
    },
}

RUN_KEYS: Final[dict[str, str]] = dict.fromkeys(RUN_TABLES, "run_id") | {"run_annotations": "key"}
"""The column that identifies a file's rows: the run's id, or the name of a remark's file."""

RUN_TREES: Final[dict[str, str]] = dict.fromkeys(RUN_TABLES, "runs") | {"run_annotations": "annotations"}
"""The folder below the store whose files a table's rows come from."""


def run_rows(run: Run) -> dict[str, list[Row]]:
    """Return the rows of a run's record; attempts are numbered from 1."""
    attempts = list(enumerate([*run.earlier, run], 1))
    parts: Mapping[str, Iterator[Row]] = {
        "runs": (_attempt_row(run, number, attempt) for number, attempt in attempts),
        "run_artifacts": (row for number, attempt in attempts for row in _artifacts(run, number, attempt)),
        "run_inputs": (row for number, attempt in attempts for row in _inputs(run, number, attempt)),
        "run_metrics": (
            {"run_id": run.run_id, "attempt": number, "name": name, **scalar_columns(value)}
            for number, attempt in attempts
            for name, value in attempt.metrics.items()
        ),
        "run_parameters": (
            {"run_id": run.run_id, "name": name, **scalar_columns(value)}
            for name, value in flat(run.parameters)
        ),
        "run_tags": (
            {"run_id": run.run_id, "tag": tag, "moment": (*run.earlier, run)[0].started}
            for tag in dict.fromkeys(run.tags)
        ),
    }
    return {table: list(rows) for table, rows in parts.items()}


def remark_row(key: str, remark: Remark) -> Row:
    """Return the row of a remark; `key` is its file's name."""
    return {
        "key": key,
        "run_id": remark.run_id,
        "moment": remark.moment,
        "user_name": remark.user,
        "action": remark.action,
        "text": remark.text,
    }


def flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of nested tables by dotted names; a list, and an empty table, is one value."""
    for key, value in values.items():
        name = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{name}.")
        else:
            yield name, value


def scalar_columns(value: object) -> Row:
    """Return a value's columns: numbers in both (the text is exact), all else in the second only."""
    number = _double(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    return {"value": number, "text": value if isinstance(value, str) else as_json(value)}


def _double(number: float) -> float:
    """Return a number as a double; an integer beyond all of them, which a record may hold, as an infinity."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def scalar_of(number: float | None, text: str) -> Scalar:
    """Return the value of such columns; the texts "true" and "false" count as truth values."""
    if number is None:
        return {"true": True, "false": False}.get(text, text)
    value: int | float = json.loads(text)
    return value


def as_json(value: object) -> str:
    """Return a value as JSON on one line, keys sorted."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _attempt_row(run: Run, number: int, attempt: Attempt) -> Row:
    made, by = attempt.provenance, attempt.started_by
    return {
        "run_id": run.run_id,
        "attempt": number,
        "is_latest": number == len(run.earlier) + 1,
        "name": run.name or run.profile,
        "profile": run.profile,
        "experiment": run.experiment,
        "state": attempt.state,
        "message": attempt.message,
        "started": attempt.started,
        "ended": attempt.ended,
        "parameters": as_json(dict(run.parameters)),
        "notes": run.notes,
        "overrides": as_json({each.field: each.after for each in run.overrides}),
        "started_by": by.how,
        "user_name": by.user or made.user,
        "command": made.command,
        "url": run.url,
        "deployment_id": made.deployment_id,
        "tokmill": made.packages.get("tokmill"),
        "git_commit": made.git_commit,
        "git_dirty": made.git_dirty,
        "dirty_digest": made.dirty_digest,
        "python": made.python,
        "packages": as_json(dict(attempt.packages or made.packages)),
        "host": attempt.machine.host,
        "num_made": attempt.num("made"),
        "num_cached": attempt.num("cached"),
        "num_waited": attempt.num("waited"),
        "peak_bytes": attempt.peak_bytes,
    }


def _artifacts(run: Run, number: int, attempt: Attempt) -> Iterator[Row]:
    for position, item in enumerate(attempt.artifacts):
        yield {
            "run_id": run.run_id,
            "attempt": number,
            "position": position,
            "task": item.task,
            "kind": item.ref.kind,
            "name": item.ref.name,
            "fingerprint": item.ref.fingerprint,
            "content_digest": item.ref.content_digest,
            "how": item.how,
            "seconds": item.seconds,
            "peak_bytes": item.peak_bytes,
        }


def _inputs(run: Run, number: int, attempt: Attempt) -> Iterator[Row]:
    for position, item in enumerate(attempt.inputs):
        own = {"run_id": run.run_id, "attempt": number, "position": position}
        yield own | item.model_dump()
