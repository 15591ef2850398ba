"""The summaries of `run` and `plan`: one line per stage or mapped stage, then the paths of the results."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from tokmill.flows.cli.app import Answer
from tokmill.flows.cli.output import Part, results, shown_address, shown_store, table, warning
from tokmill.flows.figures import counted, key_figures, outcome_words, span
from tokmill.flows.results import RunResult, RunRow, group_of, wall_seconds
from tokmill.flows.run.machine import open_store, store_url
from tokmill.flows.run.planning import PlanRow
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store

_WHERE = {
    "packed": "packed shards",
    "validation": "validation shards",
    "tokenizer": "tokenizer",
    "tokenizer_card": "tokenizer card",
    "card": "data card",
    "audit": "audit",
}
_FILES = {"card": "card.md", "tokenizer_card": "card.md", "audit": "summary.md"}
_DETAILS_SHOWN = 4
_LEAST_HALVED = 16  # half of it is the least sequence length


def run_parts(again: str, store: Store, result: RunResult, seconds: float) -> Iterator[Part]:
    """Yield the outcome of each stage, the paths of the results, and the next commands.

    `again` has the arguments of `tokmill run` that repeat the run.
    """
    yield _run_table(store, result.rows)
    for row in result.rows:
        if "warnings" in row.metrics:  # of made and of cached artifacts
            yield warning(f"{_called(store, row.ref)}: {row.metrics['warnings']}")
    yield from map(warning, superseded_lines(store, result))
    waited = f", {result.num_waited} waited for" if result.num_waited else ""
    made = f"{result.num_made} of {len(result.rows)} tasks made, {result.num_cached} cached{waited}"
    yield f"\n{made}, {span(seconds)} in all\n"
    if places := _places(store, result):
        yield places
        yield ""
    steps = _next_steps(again, store, result)
    if max(map(len, steps)) + max(map(len, steps.values())) < results().width - 1:
        yield steps
        return
    for step, what in steps.items():  # the comment above it, if the terminal is too narrow
        yield Text(f"# {what}", style="dim")
        yield step


def superseded_lines(store: Store, result: RunResult) -> list[str]:
    """Return one line for each result that a takedown superseded, with the artifact that replaces it."""
    gone = store.superseded()
    return [
        f"{_called(store, ref)} is superseded by {', '.join(gone[ref.fingerprint])}, "
        "without the documents that were taken down"
        for ref in result.refs.values()
        if ref.fingerprint in gone
    ]


def run_document(profile: str, store: Store, result: RunResult, seconds: float) -> dict[str, Any]:
    """Return the summary of a run as JSON: one entry per task, and the run's artifacts by kind."""
    return {
        "profile": profile,
        "store": store.location,
        "run_id": result.run_id,
        "seconds": round(seconds, 3),
        "num_tasks": len(result.rows),
        "num_made": result.num_made,
        "num_cached": result.num_cached,
        "num_waited": result.num_waited,
        "superseded": superseded_lines(store, result),
        "artifacts": {kind: _called(store, ref) for kind, ref in result.refs.items()},
        "tasks": [_task_entry(store, row) for row in result.rows],
    }


def planned(profile: str, store: Store, rows: Sequence[PlanRow]) -> Answer:
    """Return which tasks would run, which are cached, and the fields that differ."""
    num_cached = sum(row.action == "cached" for row in rows)
    document = {
        "profile": profile,
        "store": store.location,
        "num_cached": num_cached,
        "num_to_run": len(rows) - num_cached,
        "tasks": [
            {name: getattr(row, name) for name in ("task", "name", "action", "reason", "details")}
            for row in rows
        ],
    }
    if num_cached == len(rows):
        line = f"\neverything is up to date: {num_cached} tasks cached in {shown_store(store)}"
        return Answer(document, [_plan_table(rows), line])
    num_waiting = sum(row.action == "run" and row.reason.startswith("waits") for row in rows)
    num_sure = len(rows) - num_cached - num_waiting
    more = " or more" if any(row.task.endswith("[…]") for row in rows) else ""
    them = "it" if num_sure == 1 else "them"
    waiting = f", and so may {num_waiting}{more} that wait for {them}" if num_waiting else ""
    line = f"\n{num_sure} would run{waiting}; {num_cached} cached in {shown_store(store)}"
    return Answer(document, [_plan_table(rows), line])


def _run_table(store: Store, rows: Sequence[RunRow]) -> Table:
    lines = []
    for group, members in _grouped(rows).items():
        made = [row for row in members if row.how == "made"]
        ways = Counter(row.how for row in members)
        outcome = outcome_words({"made": len(made), "cached": ways["cached"], "waited for": ways["waited"]})
        style = "green" if made else "cyan"
        seconds = span(wall_seconds(made)) if made else ""
        alone = group == members[0].task
        artifact = _called(store, members[0].ref) if alone else counted(len(members), "shard")
        figures = Text(key_figures(members[0].ref.kind, members[0].metrics) if alone else "", style="dim")
        lines.append((group, artifact, Text(outcome, style=style), seconds, figures))
    return table(("stage", "artifact", "result", "time", "key figures"), lines, right=("time",))


def _plan_table(rows: Sequence[PlanRow]) -> Table:
    lines: list[tuple[str | Text, ...]] = []
    for group, members in _grouped(rows).items():
        running = [row for row in members if row.action == "run"]
        outcome = outcome_words({"run": len(running), "cached": len(members) - len(running)})
        style = "yellow" if running else "cyan"
        reason = running[0].reason if running else ""
        shards = "" if group == members[0].task else counted(len(members), "shard")
        lines.append((group, shards, Text(outcome, style=style), Text(reason, style="dim")))
        details = list(dict.fromkeys(detail for row in running for detail in row.details))
        lines += [("", "", "", Text(f"  {detail}")) for detail in details[:_DETAILS_SHOWN]]
        if len(details) > _DETAILS_SHOWN:
            lines.append(("", "", "", Text(f"  … and {len(details) - _DETAILS_SHOWN} more", style="dim")))
    return table(("stage", "shards", "action", "why"), lines, right=("shards",))


def _grouped(rows: Sequence[Any]) -> dict[str, list[Any]]:
    """Return the rows by group, in the order in which the groups first appear."""
    groups: dict[str, list[Any]] = {}
    for row in rows:
        groups.setdefault(group_of(row.task), []).append(row)
    return groups


def _task_entry(store: Store, row: RunRow) -> dict[str, Any]:
    return {
        "task": row.task,
        "artifact": _called(store, row.ref),
        "fingerprint": row.ref.fingerprint,
        "cached": row.how == "cached",
        "how": row.how,
        "seconds": round(row.seconds, 3),
        "metrics": dict(row.metrics),
    }


def _called(store: Store, ref: ArtifactRef) -> str:
    """The artifact's reference under the name that the run gave it: `kind/name@v1`."""
    return f"{ref.kind}/{ref.name}@{store.label(ref, ref.name)}"


def _places(store: Store, result: RunResult) -> Mapping[str, str]:
    """Where the results are, by description: paths, or URLs of objects in a bucket."""
    places = {
        words: shown_address(store, result.refs[kind], _FILES.get(kind, ""))
        for kind, words in _WHERE.items()
        if kind in result.refs
    }
    corpus = _ingested(result) if "corpus" in result.refs else None
    if corpus is not None and (num := int(store.record(corpus).metrics.get("num_quarantined", 0))):
        listed = shown_address(store, corpus, "quarantine.parquet")
        places["quarantine"] = f"{listed} ({counted(num, 'document')})"
    return places


def _ingested(result: RunResult) -> ArtifactRef:
    """The corpus with all documents that were read, also where some are held out."""
    return result.refs.get("ingested") or result.refs["corpus"]


def _next_steps(again: str, store: Store, result: RunResult) -> Mapping[str, str]:
    """Return commands about the versions that this run has; those of another may be newer."""
    refs = result.refs
    named = {kind: _called(store, ref) for kind, ref in refs.items()}
    # A command without --store uses TOKMILL_STORE or the default.
    usual = open_store(store_url(None)).root == store.root
    option = "" if usual else f" --store {shlex.quote(shown_store(store))}"
    steps = {}
    if not {"card", "packed", "tokenizer"} & {*refs}:  # a part of the DAG
        last = [name for kind, name in named.items() if kind not in ("ingested", "validation")][-1]
        steps[f"tokmill show {last}{option}"] = "its record, and what it was made from"
    if "corpus" in refs and store.record(_ingested(result)).metrics.get("num_quarantined"):
        whole = _called(store, _ingested(result))
        steps[f"tokmill show {whole}{option}"] = "the quarantined documents, with reasons"
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
