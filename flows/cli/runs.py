"""The output of `tokmill runs`: the list, and the sheet of one run."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from rich.table import Table
from rich.text import Text

from tokmill.flows.cli.output import Part, sections, table
from tokmill.flows.figures import counted, outcome_words, size, span
from tokmill.flows.results import group_of
from tokmill.tasks.core.markdown import number
from tokmill.tasks.store import RunArtifact, Store
from tokmill.tasks.store.references import Column, short_ids
from tokmill.tasks.store.rows import flat
from tokmill.tasks.store.runs import Attempt, Remark, Run, RunInput, read_remark, remark_paths

_STYLES = {"completed": "green", "running": "cyan", "suspended": "cyan"}
_WORDS = {
    "command": "at the command line",
    "library": "from Python",
    "page": "at the Prefect UI",
    "program": "by a request to the server",
    "schedule": "by the schedule of",
    "automation": "by the automation",
    "deployment": "through the deployment",
    "retry": "as a retry",
    "resume": "when it was resumed",
}


def runs_table(
    store: Store, rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], *, attempts: bool
) -> Table:
    """Return one line per run, with the values of the columns; without tags if none has any."""
    shown = [column.label for column in columns if column.of != "field"]
    last = [name.rpartition(".")[2] for name in shown]
    heads = [short if last.count(short) == 1 else name for name, short in zip(shown, last, strict=True)]
    groups = [name for name in ("experiment", "tags") if any(row[name] for row in rows)]
    lines = []
    for run, row in zip(short_ids(store, [row["run_id"] for row in rows]), rows, strict=True):
        made = row["num_made"] + row["num_waited"]
        about = {"experiment": row["experiment"] or "", "tags": " ".join(row["tags"])}
        line: list[str | Text] = [
            f"{run} #{row['attempt']}" if attempts else run,
            row["name"],
            _state(row["state"]),
            _minute(row["started"]),
            "" if row["seconds"] is None else span(row["seconds"]),
            f"{made}/{made + row['num_cached']}",
        ]
        lines.append(
            [*line, *(number(row["values"][name]) for name in shown), *(about[name] for name in groups)]
        )
    head = ["run", "name", "state", "began (UTC)", "took", "made", *heads, *groups]
    return table(head, lines, right=("took", "made", *heads))


def _state(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, "red"))


def _minute(moment: str) -> str:
    return moment[:16].replace("T", " ")


def remarks_on(store: Store, run_id: str) -> list[Remark]:
    """Return the tags and notes that a run got after its start, the oldest first."""
    paths = remark_paths(store.layout, run_id)
    return sorted((read_remark(path) for path in paths), key=lambda remark: remark.moment)


def tags_now(run: Run, remarks: Sequence[Remark]) -> list[str]:
    """Return the tags that a run has, sorted."""
    tags = set(run.tags)
    for remark in remarks:
        if remark.action == "tag":
            tags.add(remark.text)
        elif remark.action == "untag":
            tags.discard(remark.text)
    return sorted(tags)


def run_document(store: Store, run: Run) -> dict[str, Any]:
    """Return a run's record as JSON, with its tags and notes of today."""
    remarks = remarks_on(store, run.run_id)
    document = run.model_dump(mode="json")
    return {
        **document,
        "tags": tags_now(run, remarks),
        "remarks": [remark.model_dump(mode="json", exclude={"run_id"}) for remark in remarks],
        "stages": [{"stage": stage, **_stage(items)} for stage, items in _by_stage(run.artifacts).items()],
    }


def run_sheet(store: Store, run: Run, *, every_parameter: bool) -> Iterator[Part]:
    """Yield a run's record for people, section by section."""
    yield Text(run.name or run.profile, style="bold")
    remarks = remarks_on(store, run.run_id)
    overrides = {each.field: f"{_text(each.before)} → {_text(each.after)}" for each in run.overrides}
    parameters = flat(run.parameters) if every_parameter else ()
    yield from sections(
        {
            "": _head(run, tags_now(run, remarks)),
            "notes": dict(_notes(run, remarks)),
            "overrides": overrides,
            "parameters": {name: _text(value) for name, value in parameters},
            "inputs": _inputs(run.inputs),
            "stages": _stages(run.artifacts),
            "metrics": {name: number(value) for name, value in run.metrics.items()},
            "earlier attempts": _earlier(run.earlier),
        }
    )


def _head(run: Run, tags: Sequence[str]) -> Mapping[str, str | Text]:
    made, machine = run.provenance, run.machine
    dirty = f" with changes {(made.dirty_digest or '')[:12]}".rstrip() if made.git_dirty else ""
    about = [
        machine.host,
        counted(machine.cores, "core") if machine.cores else "",
        size(machine.memory_bytes) if machine.memory_bytes else "",
        f"{machine.runner} × {machine.workers}" if machine.runner else "",
    ]
    took = ""
    if run.ended is not None:
        ended, began = (datetime.fromisoformat(moment) for moment in (run.ended, run.started))
        took = f", {span((ended - began).total_seconds())}"
    entries: Mapping[str, str | Text] = {
        "run": run.run_id,
        "state": _state(run.state) + (f": {run.message}" if run.message else ""),
        "began": f"{run.started[:19].replace('T', ' ')} UTC{took}",
        "started": _started(run),
        "page": run.url or "",
        "profile": run.profile,
        "experiment": run.experiment,
        "tags": " ".join(tags),
        "code": f"tokmill {made.packages.get('tokmill', '')} {(made.git_commit or '')[:12]}{dirty}",
        "machine": ", ".join(filter(None, about)),
        "python": f"{made.python}, {counted(len(run.packages), 'package')}" if run.packages else made.python,
        "peak memory": size(run.peak_bytes) if run.peak_bytes else "",
    }
    return {name: value for name, value in entries.items() if str(value).strip()}


def _started(attempt: Attempt) -> str:
    by = attempt.started_by
    named = f" {by.detail}" if by.how in {"schedule", "automation", "deployment"} and by.detail else ""
    command = f": {by.detail}" if by.how in {"command", "library"} and by.detail else ""
    who = f" by {by.user}" if by.user else ""
    return f"{_WORDS.get(by.how, by.how)}{named}{who}{command}".strip()


def _notes(run: Run, remarks: Sequence[Remark]) -> Iterator[tuple[str, str]]:
    if run.notes:
        yield _minute(run.started), run.notes
    words = {"note": "", "tag": "tagged ", "untag": "no longer tagged "}
    for remark in remarks:
        who = f" {remark.user}" if remark.user else ""
        yield f"{remark.moment[:19].replace('T', ' ')}{who}", f"{words[remark.action]}{remark.text}"


def _text(value: Any) -> str:
    if value is None:
        return "unset"
    return number(value) if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)


def _inputs(inputs: Sequence[RunInput]) -> Table:
    lines = [
        (
            each.role,
            each.name if each.kind is None else f"{each.kind}/{each.name}",
            "" if each.num_files is None else f"{each.num_files:,}",
            "" if each.num_bytes is None else size(each.num_bytes),
            each.digest[:12],
            each.origin or "",
        )
        for each in inputs
    ]
    return table(("role", "name", "files", "size", "digest", "from"), lines, right=("files", "size"))


def _by_stage(artifacts: Sequence[RunArtifact]) -> Mapping[str, list[RunArtifact]]:
    groups: dict[str, list[RunArtifact]] = {}
    for artifact in artifacts:
        groups.setdefault(group_of(artifact.task), []).append(artifact)
    return groups


def _stage(items: Sequence[RunArtifact]) -> dict[str, Any]:
    """Return what became of a stage: how often, in how many seconds of all its tasks, in what memory."""
    times = [each.seconds for each in items if each.seconds is not None]
    return {
        "num_made": sum(each.how == "made" for each in items),
        "num_cached": sum(each.how == "cached" for each in items),
        "num_waited": sum(each.how == "waited" for each in items),
        "seconds": round(sum(times), 3) if times else None,
        "peak_bytes": max((each.peak_bytes for each in items if each.peak_bytes is not None), default=None),
    }


def _stages(artifacts: Sequence[RunArtifact]) -> Table:
    lines = []
    for stage, items in _by_stage(artifacts).items():
        found = _stage(items)
        ways = {"made": found["num_made"], "cached": found["num_cached"], "waited for": found["num_waited"]}
        ref = items[0].ref
        lines.append(
            (
                stage,
                f"{ref.kind}/{ref.name}" if len(items) == 1 else counted(len(items), "artifact"),
                ref.content_digest[:12] if len(items) == 1 else "",
                outcome_words(ways),
                "" if found["seconds"] is None else span(found["seconds"]),
                "" if found["peak_bytes"] is None else size(found["peak_bytes"]),
            )
        )
    head = ("stage", "artifact", "content", "result", "task time", "peak memory")
    return table(head, lines, right=("task time", "peak memory"))


def _earlier(attempts: Sequence[Attempt]) -> Table:
    lines = [
        (
            str(index),
            each.state,
            _minute(each.started),
            outcome_words({"made": each.num("made"), "cached": each.num("cached")}) if each.artifacts else "",
            _started(each),
            each.message,
        )
        for index, each in enumerate(attempts, 1)
    ]
    return table(("attempt", "state", "began (UTC)", "artifacts", "started", "message"), lines, wrap=True)
