"""The catalog's rows of one file of the store (`tasks.store.tables`)."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias, get_args

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.stage import How, Scalar
from tokmill.tasks.store import disk
from tokmill.tasks.store.disk import reported_as
from tokmill.tasks.store.labels import read_name, version_number
from tokmill.tasks.store.layout import ALIASES, LABELS, Layout
from tokmill.tasks.store.names import check_alias, check_kind, check_label, check_name
from tokmill.tasks.store.record import Record, read_record, read_tombstone, tombstone_path
from tokmill.tasks.store.runs import Attempt, Run, read_remark, read_run
from tokmill.tasks.store.snapshot import Row

Rows: TypeAlias = dict[str, list[Row]]


def rows_of(layout: Layout, path: Path) -> tuple[str, Rows]:
    """Return the key and the rows of one file; StoreError if it cannot be read, or belongs elsewhere."""
    relative = path.relative_to(layout.root)
    tree = relative.parts[0]
    if tree in (LABELS, ALIASES):
        return _name_rows(relative, path)
    if tree == layout.runs.name:
        run = read_run(path)
        if run.run_id != path.stem:
            raise StoreError(f"it is the run {run.run_id}, which does not belong there")
        return run.run_id, run_rows(run)
    if tree == layout.annotations.name:
        remark = read_remark(path).model_dump()
        return path.name, {"run_annotations": [{"key": path.name, "user_name": remark.pop("user"), **remark}]}
    if tree == layout.removed.name:
        stone = read_tombstone(path)
        if tombstone_path(layout, stone.record.kind, stone.record.fingerprint) != path:
            raise StoreError(f"it is the tombstone of {stone.record.reference}, which does not belong there")
        key, why = relative.as_posix(), {"removed": stone.removed, "user_name": stone.by}
        row = {"key": key, **_head(stone.record), **why, "command": stone.command, "reason": stone.reason}
        inputs = [{"key": key, **each} for each in _input_rows(stone.record)]
        return key, {"removed": [row], "removed_inputs": inputs}
    record = read_record(path.parent)
    if layout.artifact(record.kind, record.fingerprint) != path.parent:
        raise StoreError(f"it is the record of {record.reference}, which does not belong there")
    return record.fingerprint, artifact_rows(record)


def _name_rows(relative: Path, path: Path) -> tuple[str, Rows]:
    tree, kind, name = relative.parts[0], relative.parts[1], "/".join(relative.parts[2:-1])
    check_kind(kind)
    check_name(name)
    label, fingerprint = read_name(path)
    (check_label if tree == LABELS else check_alias)(label)
    key = f"{kind}/{name}@{label}"
    if not fingerprint:
        with reported_as(f"it names nothing: {key}"):
            if disk.read(path, 1 << 20):
                raise StoreError("it holds no fingerprint, so it names nothing")
        return key, {}  # its writer died while writing; the label is never given out again
    row: Row = {"key": key, "kind": kind, "name": name, "fingerprint": fingerprint}
    row |= {"label": label, "number": version_number(label)} if tree == LABELS else {"alias": label}
    return key, {tree: [row]}


def artifact_rows(record: Record) -> Rows:
    """Return the rows of one record; a row may have more than the table's columns."""
    own, made = {"fingerprint": record.fingerprint}, record.provenance
    artifact = {
        **made.model_dump(),
        **record.timings.model_dump(),
        **_head(record),
        "record_digest": record.record_digest,
        "stage_version": record.payload.get("version"),
        "payload": as_json(record.payload),
        "params": as_json(record.params),
        "user_name": made.user,
        "run_id": made.run_id or made.flow_run_id,
        "format_version": record.format_version,
    }
    return {
        "artifacts": [artifact],
        "inputs": _input_rows(record),
        "files": [
            {**own, "path": entry.path, "size_bytes": entry.size_bytes, "digest": entry.digest}
            for entry in record.files
        ],
        "metrics": [{**own, "name": name, **_scalar(value)} for name, value in record.metrics.items()],
        "accounts": [
            {**own, "source": each.source, "unit": each.unit, "side": side, "name": name, "amount": amount}
            for each in record.accounts
            for side, amounts in (("in", {"in": each.num_in}), ("added", each.added), ("became", each.became))
            for name, amount in amounts.items()
        ],
    }


def _head(record: Record) -> Row:
    return {
        **record.ref.model_dump(),
        "label": record.label,
        "num_files": len(record.files),
        "num_bytes": record.num_bytes,
        "stage": record.payload.get("stage"),
        "content_id": content_id(record.kind, record.content_digest),
    }


def content_id(kind: str | None, digest: str) -> int:
    """Return the number of a content of a kind, or of one from outside of the store (None): 64 bits."""
    hashed = hashlib.blake2b(f"{kind or ''}/{digest}".encode(), digest_size=8)
    return int.from_bytes(hashed.digest(), "little")


def _input_rows(record: Record) -> list[Row]:
    number = content_id(record.kind, record.content_digest)
    rows = []
    for entry in record.inputs:
        file_digest = entry.about.get("digest") if isinstance(entry.about, dict) else None
        is_file = isinstance(file_digest, str) and entry.origin is not None
        rows.append({
            **{name: getattr(entry, name) for name in ("role", "position", "digest", "origin")},
            "fingerprint": record.fingerprint,
            "input_kind": entry.kind,
            "input_name": entry.name,
            "input_fingerprint": entry.fingerprint,
            "file_digest": file_digest if is_file else None,
            "input_content_id": content_id(entry.kind, entry.digest),
            "content_id": number,
        })  # fmt: skip
    return rows


def run_rows(run: Run) -> Rows:
    """Return the rows of a run's record; attempts are numbered from 1."""
    rows: Rows = {
        "runs": [],
        "run_artifacts": [],
        "run_inputs": [],
        "run_metrics": [],
        "run_parameters": [
            {"run_id": run.run_id, "name": name, **_scalar(value)} for name, value in flat(run.parameters)
        ],
        "run_tags": [
            {"run_id": run.run_id, "tag": tag, "moment": (*run.earlier, run)[0].started}
            for tag in dict.fromkeys(run.tags)
        ],
    }
    for number, attempt in enumerate((*run.earlier, run), 1):
        own = {"run_id": run.run_id, "attempt": number}
        rows["runs"].append(_attempt_row(run, attempt) | own | {"is_latest": attempt is run})
        rows["run_artifacts"] += [
            {**own, "position": place, **item.ref.model_dump(), **item.model_dump(exclude={"ref"})}
            for place, item in enumerate(attempt.artifacts)
        ]
        rows["run_inputs"] += [
            {**own, "position": place, **item.model_dump()} for place, item in enumerate(attempt.inputs)
        ]
        rows["run_metrics"] += [
            {**own, "name": name, **_scalar(value)} for name, value in attempt.metrics.items()
        ]
    return rows


def _attempt_row(run: Run, attempt: Attempt) -> Row:
    made, by = attempt.provenance, attempt.started_by
    return {
        **made.model_dump(),
        **attempt.model_dump(include={"state", "message", "started", "ended"}),
        **run.model_dump(include={"profile", "experiment", "notes", "url"}),
        "name": run.name or run.profile,
        "parameters": as_json(dict(run.parameters)),
        "overrides": as_json({each.field: each.after for each in run.overrides}),
        "started_by": by.how,
        "user_name": by.user or made.user,
        "tokmill": made.packages.get("tokmill"),
        "packages": as_json(dict(attempt.packages or made.packages)),
        "host": attempt.machine.host,
        **{f"num_{how}": attempt.num(how) for how in get_args(How)},
        "peak_bytes": attempt.peak_bytes,
    }


def flat(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the fields of nested tables by dotted names; a list, and an empty table, is one value."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flat(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def _scalar(value: object) -> Row:
    """Return a value's columns: numbers in both (the text is exact), all else in the second only."""
    number = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:  # an integer beyond all doubles, which a record may hold
            number = math.inf if value > 0 else -math.inf
    return {"value": number, "text": value if isinstance(value, str) else as_json(value)}


def scalar_of(number: float | None, text: str) -> Scalar:
    """Return the value of such columns; the texts "true" and "false" count as truth values."""
    if number is None:
        return {"true": True, "false": False}.get(text, text)
    value: int | float = json.loads(text)
    return value


def as_json(value: object) -> str:
    """Return a value as JSON on one line, keys sorted."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
