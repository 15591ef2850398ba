"""`tokmill run` and `plan`: run a profile, or show what that would do."""

import re
import shlex
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.text import Text
from typer import Option

from tokmill.flows.cli.app import Answer, app, command, keeping
from tokmill.flows.cli.options import (
    MemoryOption,
    NoPrefectOption,
    ProfileArgument,
    SetOption,
    StoreOption,
    WorkersOption,
)
from tokmill.flows.cli.output import (
    Part,
    Table,
    called,
    messages,
    notes,
    results,
    shown_address,
    shown_store,
    warning,
)
from tokmill.flows.figures import counted, key_figures, outcome_words, span
from tokmill.flows.results import by_group, wall_seconds

if TYPE_CHECKING:
    from tokmill.flows.library.api import FinishedRun
    from tokmill.flows.results import RunResult, RunRow
    from tokmill.flows.run.events import Listener
    from tokmill.flows.run.planning import PlanRow
    from tokmill.tasks.core.stage import ArtifactRef
    from tokmill.tasks.store import Store

_PLACES = {
    "packed": ("packed shards", ""),
    "validation": ("validation shards", ""),
    "tokenizer": ("tokenizer", ""),
    "tokenizer_card": ("tokenizer card", "card.md"),
    "card": ("data card", "card.md"),
    "audit": ("audit", "summary.md"),
}
_DETAILS_SHOWN = 4
_LEAST_HALVED = 16  # half of it is the least sequence length
RehashOption = Annotated[bool, Option("--rehash", help="Read every source file; do not trust size and time.")]
UntilOption = Annotated[
    list[str] | None,
    Option(metavar="KIND", help="Make this kind of artifact, e.g. tokenizer, and what it needs; repeatable."),
]


@command(
    app,
    "tokmill run quickstart",
    "tokmill run own.toml --set pack.sequence_length=2048 --workers 8",
    "tokmill run own.toml --until tokenizer",
    "tokmill run own.toml --store /data/store --verify full --json > run.json",
)
def run(
    profile: ProfileArgument,
    overrides: SetOption = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    verify: Literal["sizes", "full"] | None = Option(
        None, help="How artifacts are checked before reuse: sizes, or also digests.", show_default="sizes"
    ),
    rehash: RehashOption = False,
    until: UntilOption = None,
    refresh: list[str] | None = Option(
        None, metavar="STAGE", help="Make a stage's artifacts again, e.g. train; repeatable."
    ),
    no_prefect: NoPrefectOption = False,
) -> Answer:
    """Run a profile, from raw text to packed shards.

    Artifacts that are up to date are reused.
    """
    from tokmill.flows.prefect.server import start_early
    from tokmill.flows.profile import load_profile
    from tokmill.flows.run.machine import store_url
    from tokmill.flows.run.target import Target

    loaded, target = load_profile(profile, overrides or []), Target(until or ())
    location = store_url(store, loaded.execution)
    if not (no_prefect or "://" in location or Path(location).exists()):
        start_early()  # there is work to do
    machine = {"workers": workers, "memory": memory, "verify": verify, "rehash": rehash}
    settings, began = {**machine, "refresh": refresh or ()}, time.monotonic()
    with watched(location) as shown:
        from tokmill.flows.library import api

        how: dict[str, Any] = {"store": location, "prefect": not no_prefect, "reporter": shown}
        result = api.run_target(loaded, target, settings, **how)
    seconds = time.monotonic() - began
    again = [profile, *(word for override in overrides or [] for word in ("--set", override))]
    again += [word for kind in until or [] for word in ("--until", kind)]
    again += ["--no-prefect"] if no_prefect else []
    return Answer(lambda: _document(result, seconds), _parts(shlex.join(again), result, seconds))


@contextmanager
def watched(store: str) -> "Iterator[Listener]":
    """Show a run's progress, and if it is interrupted what of it is kept in the store."""
    from tokmill.flows.cli.progress import display

    with display(messages()) as shown:
        keeping(lambda: shown.kept(store))
        yield shown


def _document(result: "FinishedRun", seconds: float) -> dict[str, Any]:
    """Return the summary of a run as JSON: one entry per task, and the run's artifacts by kind."""
    store = result.store
    return {
        "profile": result.profile.name,
        "store": store.location,
        "run_id": result.run_id,
        "seconds": round(seconds, 3),
        "num_tasks": len(result.rows),
        "num_made": result.num_made,
        "num_cached": result.num_cached,
        "num_waited": result.num_waited,
        "superseded": superseded_lines(store, result),
        "artifacts": {kind: called(store, ref) for kind, ref in result.refs.items()},
        "tasks": [
            {
                "task": row.task,
                "artifact": called(store, row.ref),
                "fingerprint": row.ref.fingerprint,
                "cached": row.how == "cached",
                "how": row.how,
                "seconds": round(row.seconds, 3),
                "metrics": dict(row.metrics),
            }
            for row in result.rows
        ],
    }


def _parts(again: str, result: "FinishedRun", seconds: float) -> Iterator[Part]:
    """Yield the outcome of each stage, the paths of the results, and commands; `again` repeats the run."""
    store = result.store
    yield _stages(store, result.rows)
    for row in result.rows:
        if "warnings" in row.metrics:  # of made and of cached artifacts
            yield warning(f"{called(store, row.ref)}: {row.metrics['warnings']}")
    yield from map(warning, superseded_lines(store, result))
    waited = f", {result.num_waited} waited for" if result.num_waited else ""
    made = f"{result.num_made} of {len(result.rows)} tasks made, {result.num_cached} cached{waited}"
    yield f"\n{made}, {span(seconds)} in all\n"
    corpus = result.refs.get("ingested") or result.refs.get("corpus")  # with all documents that were read
    num_bad = int(store.record(corpus).metrics.get("num_quarantined", 0)) if corpus else 0
    places = {
        words: shown_address(store, result.refs[kind], file)
        for kind, (words, file) in _PLACES.items()
        if kind in result.refs
    }
    if corpus and num_bad:
        listed = shown_address(store, corpus, "quarantine.parquet")
        places["quarantine"] = f"{listed} ({counted(num_bad, 'document')})"
    if places:
        yield places
        yield ""
    steps = _next_steps(again, result, corpus if num_bad else None)
    if max(map(len, steps)) + max(map(len, steps.values())) < results().width - 1:
        yield steps
        return
    for step, what in steps.items():  # the comment above it, if the terminal is too narrow
        yield Text(f"# {what}", style="dim")
        yield step


def superseded_lines(store: "Store", result: "RunResult") -> list[str]:
    """Return one line for each result that a takedown superseded, with the artifact that replaces it."""
    gone = store.superseded()
    return [
        f"{called(store, ref)} is superseded by {', '.join(gone[ref.fingerprint])}, "
        "without the documents that were taken down"
        for ref in result.refs.values()
        if ref.fingerprint in gone
    ]


def _stages(store: "Store", rows: "Sequence[RunRow]") -> Table:
    lines = []
    for group, members in by_group(rows).items():
        made = [row for row in members if row.how == "made"]
        ways = Counter(row.how for row in members)
        outcome = outcome_words({"made": len(made), "cached": ways["cached"], "waited for": ways["waited"]})
        alone = group == members[0].task
        artifact = called(store, members[0].ref) if alone else counted(len(members), "shard")
        figures = key_figures(members[0].ref.kind, members[0].metrics) if alone else ""
        seconds = span(wall_seconds(made)) if made else ""
        style = "green" if made else "cyan"
        lines.append((group, artifact, Text(outcome, style=style), seconds, Text(figures, style="dim")))
    return Table(("stage", "artifact", "result", "time", "key figures"), lines, right=("time",))


def _next_steps(again: str, result: "FinishedRun", quarantined: "ArtifactRef | None") -> Mapping[str, str]:
    """Return commands about the versions that this run has; those of another may be newer."""
    from tokmill.flows.run.machine import open_store, store_url

    refs, store = result.refs, result.store
    named = {kind: called(store, ref) for kind, ref in refs.items()}
    # A command without --store uses TOKMILL_STORE or the default.
    usual = open_store(store_url(None)).root == store.root
    option = "" if usual else f" --store {shlex.quote(shown_store(store))}"
    steps = {}
    if not {"card", "packed", "tokenizer"} & {*refs}:  # a part of the DAG
        last = [name for kind, name in named.items() if kind not in ("ingested", "validation")][-1]
        steps[f"tokmill show {last}{option}"] = "its record, and what it was made from"
    if quarantined:
        bad = called(store, quarantined)
        steps[f"tokmill show {bad}{option}"] = "the quarantined documents, with reasons"
    if "card" in refs:
        steps[f"tokmill show {named['card']} --read{option}"] = "the composition of the data"
    if "packed" in refs:
        steps[f"tokmill lineage {named['packed']}{option}"] = "everything it was made from"
    if "tokenizer" in refs:
        encode = f'tokmill encode --tokenizer {named["tokenizer"]}{option} "some text"'
        steps[encode] = "token ids of a text"
    if "packed" in refs and store.record(refs["mixture"]).params.get("schedule_unit") != "steps":
        length = int(store.record(refs["packed"]).metrics["sequence_length"])
        shorter = length // 2 if length >= _LEAST_HALVED else length * 2
        others = re.sub(r" --set pack\.sequence_length=\S+", "", again)
        repack = f"tokmill run {others} --set pack.sequence_length={shorter}{option}"
        steps[repack] = f"sequences of {shorter:,}; the rest is cached"
    return steps


@command(
    app,
    "tokmill plan quickstart",
    "tokmill plan quickstart --set balance.temperature=3",
    "tokmill plan own.toml --json",
)
def plan(
    profile: ProfileArgument,
    overrides: SetOption = None,
    store: StoreOption = None,
    rehash: RehashOption = False,
    until: UntilOption = None,
) -> Answer:
    """Show what a run would make, what is cached, and what changed."""
    from tokmill.flows.library import api
    from tokmill.flows.profile import load_profile
    from tokmill.flows.run.machine import open_store, store_url

    loaded = load_profile(profile, overrides or [])
    opened = open_store(store_url(store, loaded.execution))
    rows = api.plan(loaded, until=until or (), store=opened, rehash=rehash, reporter=notes)
    return planned(loaded.name, opened, rows)


def planned(profile: str, store: "Store", rows: "Sequence[PlanRow]") -> Answer:
    """Return which tasks would run, which are cached, and the fields that differ."""
    num_cached = sum(row.action == "cached" for row in rows)
    names = ("task", "name", "action", "reason", "details")
    document = {
        "profile": profile,
        "store": store.location,
        "num_cached": num_cached,
        "num_to_run": len(rows) - num_cached,
        "tasks": [{name: getattr(row, name) for name in names} for row in rows],
    }
    line = f"everything is up to date: {num_cached} tasks cached"
    if num_cached < len(rows):
        num_waiting = sum(row.action == "run" and row.reason.startswith("waits") for row in rows)
        num_sure = len(rows) - num_cached - num_waiting
        more = " or more" if any(row.task.endswith("[…]") for row in rows) else ""
        them = "it" if num_sure == 1 else "them"
        waiting = f", and so may {num_waiting}{more} that wait for {them}" if num_waiting else ""
        line = f"{num_sure} would run{waiting}; {num_cached} cached"
    lines: list[tuple[str | Text, ...]] = []
    for group, members in by_group(rows).items():
        running = [row for row in members if row.action == "run"]
        words = outcome_words({"run": len(running), "cached": len(members) - len(running)})
        outcome = Text(words, style="yellow" if running else "cyan")
        shards = "" if group == members[0].task else counted(len(members), "shard")
        lines.append((group, shards, outcome, Text(running[0].reason if running else "", style="dim")))
        details = list(dict.fromkeys(detail for row in running for detail in row.details))
        hidden = len(details) - _DETAILS_SHOWN
        details[_DETAILS_SHOWN:] = [f"… and {hidden} more"] if hidden > 0 else []
        lines += [("", "", "", f"  {detail}") for detail in details]
    table = Table(("stage", "shards", "action", "why"), lines, right=("shards",))
    return Answer(document, [table, f"\n{line} in {shown_store(store)}"])
