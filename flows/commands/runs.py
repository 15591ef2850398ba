"""`tokmill runs`: the runs of a store, listed, shown, tagged and annotated."""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.text import Text
from typer import Argument, Option

from tokmill.flows.cli.app import Answer, app, command, examples, printing
from tokmill.flows.cli.options import DEFAULT, ExistingStore, StoreOption, existing_store, find_run
from tokmill.flows.cli.output import Aside, Part, Table, sections
from tokmill.flows.errors import UsageError, suggestion
from tokmill.flows.figures import counted, outcome_words, size, span
from tokmill.flows.results import by_group
from tokmill.tasks.core.markdown import number

if TYPE_CHECKING:
    from tokmill.flows.library.runs import RunList
    from tokmill.tasks.store import Run, RunArtifact, Store
    from tokmill.tasks.store.runs import Attempt, Remark

RunArgument = Annotated[
    str, Argument(metavar="RUN", help="`latest`, an id or its beginning, a name, or an artifact of the run.")
]
_SHOWN = 30
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

in_runs = typer.Typer(
    invoke_without_command=True,
    help="List runs; show, tag, note, reproduce or bundle one.",
    epilog=examples(
        "tokmill runs --experiment temperature",
        "tokmill runs --sort bytes_per_token --best 3",
        "tokmill runs show latest",
        "tokmill runs tag latest winner",
    ),
)
app.add_typer(in_runs, name="runs")


@in_runs.callback()
@printing
def list_runs(
    context: typer.Context,
    state: Literal["running", "completed", "failed", "crashed", "cancelled", "suspended"] | None = Option(
        None, help="Only runs in this state."
    ),
    profile: str | None = Option(None, help="Only runs of this profile."),
    experiment: str | None = Option(None, help="Only runs of this experiment."),
    tag: str | None = Option(None, help="Only runs with this tag."),
    since: str | None = Option(None, metavar="TIME", help="Only runs since then: 7d, 12h, 2026-11-24."),
    sort: str = Option(
        "started",
        metavar="NAME",
        help="A metric or a parameter, e.g. audit.bytes_per_token; or started, seconds, name, profile, "
        "state, num_made, peak_bytes.",
    ),
    lowest: bool | None = Option(None, "--lowest/--highest", help="Which values come first."),
    best: int | None = Option(None, metavar="N", min=1, help="Only the N best by --sort."),
    show: list[str] | None = Option(None, metavar="NAME", help="Another metric or parameter; repeatable."),
    limit: int = Option(_SHOWN, metavar="N", min=0, help="At most N runs; 0 for all."),
    attempts: bool = Option(False, "--attempts", help="Every attempt of a run, not only the last."),
    store: StoreOption = None,
) -> Answer | None:
    """List the runs of the store, the latest first; failed ones, too."""
    if context.invoked_subcommand is not None:
        return None
    from tokmill.flows.library.runs import find_runs
    from tokmill.tasks.store.references import RunFilter

    if best is not None and sort == "started":
        raise UsageError("runs: --best needs --sort, e.g. --sort bytes_per_token --best 3")
    opened = existing_store(store)
    where = RunFilter(state, profile, experiment, tag, since, attempts)
    one_more = limit + 1 if limit else None  # to say that there are more
    runs = find_runs(opened, where, sort, show or [], best=best, lowest=lowest, most=one_more)
    most = best or limit or None
    return Answer(runs.rows[:most], _listing(opened, runs, where.__dict__, most, attempts=attempts))


def _listing(
    store: "Store", runs: "RunList", where: Mapping[str, Any], most: int | None, *, attempts: bool
) -> Iterator[Part]:
    """Yield one line per run, with the values of the columns; without tags if none has any."""
    from tokmill.tasks.store.references import list_runs as list_runs_of
    from tokmill.tasks.store.references import short_ids

    rows, lost = runs.rows[:most], runs.order.lost
    columns = [column for column in runs.columns if column.of != "field"]
    if lost and lost not in columns and any(row["values"][lost.label] for row in rows):
        columns.append(lost)
    shown = [column.label for column in columns]
    last = [name.rpartition(".")[2] for name in shown]
    heads = [short if last.count(short) == 1 else name for name, short in zip(shown, last, strict=True)]
    groups = [name for name in ("experiment", "tags") if any(row[name] for row in rows)]
    lines = []
    for run, row in zip(short_ids(store, [row["run_id"] for row in rows]), rows, strict=True):
        made = row["num_made"] + row["num_waited"]
        about = {"experiment": row["experiment"] or "", "tags": " ".join(row["tags"])}
        lines.append(
            (
                f"{run} #{row['attempt']}" if attempts else run,
                row["name"],
                _state(row["state"]),
                _minute(row["started"]),
                "" if row["seconds"] is None else span(row["seconds"]),
                f"{made}/{made + row['num_cached']}",
                *(number(row["values"][name]) for name in shown),
                *(about[name] for name in groups),
            )
        )
    head = ["run", "name", "state", "began (UTC)", "took", "made", *heads, *groups]
    yield Table(head, lines, right=("took", "made", *heads))
    if not rows:
        every = list_runs_of(store.catalog)
        yield Aside("no run is like that" if every else "the store has no runs")
        for what in ("experiment", "tag", "profile"):
            names = {
                name for row in every for name in (row["tags"] if what == "tag" else [row[what]]) if name
            }
            if where[what] not in (None, *names):
                hint = suggestion(where[what], names, known_as="runs have")
                yield Aside(f"no run has the {what} {where[what]!r}{hint}")
    if len(runs.rows) > len(rows):
        yield Aside(f"more than {most} runs; --limit 0 lists all")


def _state(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, "red"))


def _minute(moment: str) -> str:
    return moment[:16].replace("T", " ")


@command(in_runs, "tokmill runs show latest", "tokmill runs show 5f0c2a --json", name="show")
def show_run(
    run: RunArgument,
    parameters: bool = Option(False, "--parameters", help="Every parameter, not only those set for it."),
    store: ExistingStore = DEFAULT,
) -> Answer:
    """Show a run: who started it, its inputs, stages and metrics."""
    record = find_run(store, run)
    remarks = _remarks_on(store, record.run_id)
    stages = {stage: _stage(items) for stage, items in by_group(record.artifacts).items()}
    document = {
        **record.model_dump(mode="json"),
        "tags": _tags_now(record, remarks),
        "remarks": [remark.model_dump(mode="json", exclude={"run_id"}) for remark in remarks],
        "stages": [{"stage": stage, **figures} for stage, figures in stages.items()],
    }
    return Answer(document, _sheet(record, remarks, every_parameter=parameters))


def _remarks_on(store: "Store", run_id: str) -> "list[Remark]":
    """Return the tags and notes that a run got after its start, the oldest first."""
    from tokmill.tasks.store.runs import read_remark, remark_paths

    paths = remark_paths(store.layout, run_id)
    return sorted((read_remark(path) for path in paths), key=lambda remark: remark.moment)


def _tags_now(run: "Run", remarks: "Sequence[Remark]") -> list[str]:
    latest = dict.fromkeys(run.tags, "tag") | {
        remark.text: remark.action for remark in remarks if remark.action != "note"
    }
    return sorted(tag for tag, action in latest.items() if action == "tag")


def _sheet(run: "Run", remarks: "Sequence[Remark]", *, every_parameter: bool) -> Iterator[Part]:
    """Yield a run's record for people, section by section."""
    from tokmill.tasks.store.rows import flat

    yield Text(run.name or run.profile, style="bold")
    words = {"note": "", "tag": "tagged ", "untag": "no longer tagged "}
    notes = {_minute(run.started): run.notes} if run.notes else {}
    for each in remarks:
        who = f" {each.user}" if each.user else ""
        notes[f"{each.moment[:19].replace('T', ' ')}{who}"] = f"{words[each.action]}{each.text}"
    inputs = [
        (
            *(each.role, each.name if each.kind is None else f"{each.kind}/{each.name}", each.num_files),
            *("" if each.num_bytes is None else size(each.num_bytes), each.digest[:12], each.origin),
        )
        for each in run.inputs
    ]
    earlier = [
        (
            *(str(index), each.state, _minute(each.started)),
            outcome_words({"made": each.num("made"), "cached": each.num("cached")}) if each.artifacts else "",
            *(_started(each), each.message),
        )
        for index, each in enumerate(run.earlier, 1)
    ]
    attempt_heads = ("attempt", "state", "began (UTC)", "artifacts", "started", "message")
    input_heads = ("role", "name", "files", "size", "digest", "from")
    yield from sections(
        {
            "": _head(run, _tags_now(run, remarks)),
            "notes": notes,
            "overrides": {
                each.field: f"{_text(each.before)} → {_text(each.after)}" for each in run.overrides
            },
            "parameters": {name: _text(value) for name, value in flat(run.parameters)}
            if every_parameter
            else {},
            "inputs": Table(input_heads, inputs, right=("files", "size")),
            "stages": _stages(run),
            "metrics": {name: number(value) for name, value in run.metrics.items()},
            "earlier attempts": Table(attempt_heads, earlier, wrap=True),
        }
    )


def _head(run: "Run", tags: Sequence[str]) -> Mapping[str, str | Text]:
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
    return {
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


def _started(attempt: "Attempt") -> str:
    by = attempt.started_by
    named = f" {by.detail}" if by.how in {"schedule", "automation", "deployment"} and by.detail else ""
    line = f": {by.detail}" if by.how in {"command", "library"} and by.detail else ""
    who = f" by {by.user}" if by.user else ""
    return f"{_WORDS.get(by.how, by.how)}{named}{who}{line}".strip()


def _text(value: Any) -> str:
    if value is None:
        return "unset"
    return number(value) if isinstance(value, str | int | float) else json.dumps(value, ensure_ascii=False)


def _stage(items: "Sequence[RunArtifact]") -> dict[str, Any]:
    """Return what became of a stage: how often, in how many seconds of all its tasks, in what memory."""
    times = [each.seconds for each in items if each.seconds is not None]
    ways = [each.how for each in items]
    return {
        **{f"num_{how}": ways.count(how) for how in ("made", "cached", "waited")},
        "seconds": round(sum(times), 3) if times else None,
        "peak_bytes": max((each.peak_bytes for each in items if each.peak_bytes is not None), default=None),
    }


def _stages(run: "Run") -> Table:
    lines = []
    for stage, items in by_group(run.artifacts).items():
        figures, ref, alone = _stage(items), items[0].ref, len(items) == 1
        ways = {
            "made": figures["num_made"],
            "cached": figures["num_cached"],
            "waited for": figures["num_waited"],
        }
        lines.append(
            (
                stage,
                f"{ref.kind}/{ref.name}" if alone else counted(len(items), "artifact"),
                ref.content_digest[:12] if alone else "",
                outcome_words(ways),
                "" if figures["seconds"] is None else span(figures["seconds"]),
                "" if figures["peak_bytes"] is None else size(figures["peak_bytes"]),
            )
        )
    head = ("stage", "artifact", "content", "result", "task time", "peak memory")
    return Table(head, lines, right=("task time", "peak memory"))


@command(in_runs, "tokmill runs tag latest winner", "tokmill runs tag 5f0c2a bad --remove", name="tag")
def tag_run(
    run: RunArgument,
    tags: list[str] = Argument(..., metavar="TAG…", help="Any words, e.g. winner."),
    remove: bool = Option(False, "--remove", help="Take the tags away."),
    store: ExistingStore = DEFAULT,
) -> str:
    """Tag a run, by which it can be listed; tags change no artifact."""
    record = _annotated(store, run, "untag" if remove else "tag", tags)
    now = ", ".join(_tags_now(record, _remarks_on(store, record.run_id)))
    return f"{record.run_id} ({record.name or record.profile}) is tagged {now or 'with nothing'}"


@command(in_runs, "tokmill runs note latest 'the crawl of May was incomplete'", name="note")
def note_run(
    run: RunArgument,
    text: str = Argument(..., help="What is to be remembered of the run."),
    store: ExistingStore = DEFAULT,
) -> str:
    """Add a note to a run."""
    record = _annotated(store, run, "note", [text])
    return f"{record.run_id} ({record.name or record.profile}) is noted"


def _annotated(
    store: "Store", run: str, action: Literal["tag", "untag", "note"], texts: Sequence[str]
) -> "Run":
    from tokmill.tasks.core.errors import StoreError
    from tokmill.tasks.store.runs import annotate, check_remark

    try:
        for text in texts:
            check_remark(action, text)
    except StoreError as error:
        raise UsageError(str(error)) from error
    record = find_run(store, run)
    for text in texts:
        annotate(store.layout, record.run_id, action, text)
    return record
