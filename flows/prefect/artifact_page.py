"""What Prefect's pages show of an artifact: what it is, its figures, accounts, and what it was made from.

Paths of links begin at the server's root, so that they work under every name of it, from both of Prefect's
user interfaces; they open the newer one. Every figure comes from a record.
"""

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tokmill.flows.figures import counted, key_figures, labelled, outcome_words, size, span
from tokmill.flows.results import RunRow
from tokmill.tasks.card.words import without_front_matter
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.markdown import table
from tokmill.tasks.core.stage import ArtifactRef, How
from tokmill.tasks.store import InputEntry, Record, Store
from tokmill.tasks.store.runs import read_run, run_path
from tokmill.tasks.sweep.stage import SweepSummary, to_markdown

_READ: Final = 100  # a stage may have a thousand shards; the runs of the first hundred are named
_NAMED: Final = 3
_MADE_BY: Final[dict[How, str]] = {
    "made": "Made by this task",
    "cached": "Reused",
    "waited": "Made by another run",
}
_RESULTS: Final[dict[How, str]] = {"made": "made", "cached": "cached", "waited": "waited for"}


def key_of(what: str, name: str) -> str:
    """Return a key that Prefect accepts (lower-case letters, digits, dashes): `audit-my-profile`."""
    return re.sub("[^a-z0-9]+", "-", f"{what}-{name}".lower()).strip("-")


def section(
    title: str, head: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = ()
) -> Sequence[str]:
    """Return a heading and a table, whose columns in `right` have numbers; nothing without rows."""
    filled = list(rows)
    left = [column for column in range(len(head)) if column not in right]
    return (title, "\n".join(table(head, filled, left))) if filled else ()


def to_key(text: str, key: str) -> str:
    """Return a link to the newest artifact of a key."""
    return f"[{text}](/v2/artifacts/key/{key})"


@dataclass(frozen=True)
class Links:
    """What can be linked.

    Attributes:
        store: the store.
        page: URL of the run's own page; a run is linked if its record has a page at the same server.
        reports: URL below which reports are served; None if this server has none.
    """

    store: Store
    page: str = ""
    reports: str | None = None
    _runs: dict[str, str] = field(default_factory=dict)

    def run(self, run_id: str | None) -> str:
        """Return a link to a flow run, by its name; nothing if this server does not know it."""
        if run_id is not None and run_id not in self._runs:
            self._runs[run_id] = self._link(run_id)
        return self._runs[run_id] if run_id is not None else ""

    def _link(self, run_id: str) -> str:
        try:
            run = read_run(run_path(self.store.layout.runs, run_id))
        except StoreError:  # of another store
            return ""
        is_here = run.url is not None and run.url.rpartition("/")[0] == self.page.rpartition("/")[0]
        name = run.name.replace("[", "(").replace("]", ")").replace("|", "/")  # ends no link and no cell
        return f"[{name}](/v2/runs/flow-run/{run_id})" if is_here else ""

    def report(self, ref: ArtifactRef) -> str:
        """Return a link to the report of an artifact; nothing if it has none, or no server makes it."""
        has_one = self.reports is not None and ref.kind in {"audit", "sweep"}
        return f"[Report]({self.reports}/{ref.fingerprint})" if has_one else ""


class Piece(NamedTuple):
    """One artifact of Prefect's: `markdown`, or a `table` as JSON; its key has a page with all versions."""

    type: str
    key: str
    data: str
    description: str


def piece(row: RunRow, links: Links) -> Piece:
    """Return what the page of a task shows of its artifact."""
    ref, store = row.ref, links.store
    figures = key_figures(ref.kind, store.record(ref).metrics)
    words = " · ".join(filter(None, (store.label(ref, ref.name), _RESULTS[row.how], figures)))
    return Piece("markdown", key_of(ref.kind, ref.name), sheet(row, links), words)


def sheet(row: RunRow, links: Links) -> str:
    """Return the text about an artifact, with what it has to say itself."""
    ref, store = row.ref, links.store
    record, label = store.record(ref), store.label(ref, ref.name)
    reference = f"{ref.kind}/{ref.name}@{label}"
    facts = [
        ("version", f"`{label}`"),
        ("content digest", f"`{record.content_digest[:32]}`"),
        ("fingerprint", f"`{record.fingerprint[:32]}`"),
        ("size", f"{size(record.num_bytes)} in {counted(len(record.files), 'file')}"),
        ("place", f"`{store.address(ref)}`"),
        ("in a terminal", f"`tokmill show {reference} --store {shlex.quote(store.location)}`"),
    ]
    figures = [labelled(name, value) for name, value in record.metrics.items() if value != ""]
    parts = [
        f"## {reference}",
        _origin(record, row, links),
        "\n".join(table(("artifact", ""), facts, left=(0, 1))),
        links.report(ref),
        _OWN[ref.kind](store, ref) if ref.kind in _OWN else "",
        *section("### Key figures", ("figure", "value"), figures),
        *section("### Accounts", ("source", "unit", "in", "added", "became"), _accounts(record), right=(2,)),
        *section("### Made from", ("input", "artifact", "made by"), _inputs(record, links)),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _origin(record: Record, row: RunRow, links: Links) -> str:
    """Say who made the artifact, when, and in what time."""
    run, took = links.run(record.provenance.flow_run_id), span(record.timings.seconds)
    if row.how == "made":
        return f"**{_MADE_BY['made']}** in {took}."
    when, by = record.timings.ended[:16].replace("T", " "), f" by {run}" if run else ""
    waited = f", after {span(row.seconds)} of waiting" if row.how == "waited" else ""
    return f"**{_MADE_BY[row.how]}**{waited}: made on {when} UTC{by} in {took}."


def _accounts(record: Record) -> Iterator[Sequence[str]]:
    for account in record.accounts:
        amounts = [
            ", ".join(f"{name.replace('_', ' ')} {amount:,}" for name, amount in each.items() if amount)
            for each in (account.added, account.became)
        ]
        yield account.source, account.unit, f"{account.num_in:,}", *amounts


def _inputs(record: Record, links: Links) -> Iterator[Sequence[str]]:
    """Yield one row per role: its artifact, or the number of shards or files, and the runs."""
    roles: dict[str, list[InputEntry]] = {}
    for entry in record.inputs:
        roles.setdefault(entry.role, []).append(entry)
    for role, entries in roles.items():
        first, records = entries[0], list(_records(links.store, entries))
        if first.kind is None:
            names = [f"`{entry.origin}`" for entry in entries if entry.origin] or [f"`{first.digest[:16]}`"]
            what = (
                names[0] if len(entries) == 1 else f"{counted(len(entries), 'file')}: {_some(names, ', …')}"
            )
        elif len(entries) > 1:
            what = f"{len(entries):,} × {first.kind}"
        else:
            what = f"`{records[0].reference}`" if records else f"`{first.kind}/{first.name}` (removed)"
        runs = filter(None, (links.run(each.provenance.flow_run_id) for each in records))
        yield role.replace("_", " "), what, _some([*dict.fromkeys(runs)], " and {} more")


def _some(names: Sequence[str], more: str) -> str:
    left = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (more.format(left) if left > 0 else "")


def _records(store: Store, entries: Sequence[InputEntry]) -> Iterator[Record]:
    """Yield the records of the first inputs, as far as they are in the store."""
    for entry in entries[:_READ]:
        try:
            yield store.read(entry.kind or "", entry.fingerprint or "")
        except StoreError:  # removed since, or no artifact
            continue


def shards_table(group: str, rows: Sequence[RunRow]) -> Piece:
    """Return one table of all shards of a stage, which is a group of tasks, e.g. `encode[*]`."""
    step, profile = group.removesuffix("[*]"), rows[0].name.rpartition("/")[0].rpartition(".")[0]
    lines = [
        {
            "shard": row.task.removeprefix(f"{step}[").removesuffix("]"),
            "result": _RESULTS[row.how],
            "time": span(row.seconds) if row.how != "cached" else "",
            **dict(labelled(name, value) for name, value in row.metrics.items() if value not in {0, ""}),
        }
        for row in sorted(rows, key=lambda row: row.task)
    ]
    said = f"{counted(len(rows), 'shard')}: {outcome_words(Counter(_RESULTS[row.how] for row in rows))}"
    columns = dict.fromkeys(name for line in lines for name in line)
    full = [{name: line.get(name, "") for name in columns} for line in lines]
    return Piece("table", key_of(f"{step}-shards", profile), json.dumps(full), said)


def _card(store: Store, ref: ArtifactRef) -> str:
    return without_front_matter((store.path(ref) / "card.md").read_text("utf-8"))


_OWN: Final[Mapping[str, Callable[[Store, ArtifactRef], str]]] = {
    "audit": lambda store, ref: (store.path(ref, ["summary.md"]) / "summary.md").read_text("utf-8"),
    "sweep": lambda store, ref: to_markdown(SweepSummary.open(store.path(ref))),
    "card": _card,
    "tokenizer_card": _card,
}
"""Kind → what an artifact has to say itself."""
