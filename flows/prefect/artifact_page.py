"""One artifact as Markdown, for the page of the task that made or found it.

First what it is (version, digests, size, place, who made it), then its key figures, accounts, and the
artifacts that it was made from, with links to the runs that made them. Every figure comes from a record.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from tokmill.flows.figures import counted, key_figures, labelled, outcome_words, size, span
from tokmill.flows.prefect.links import Links, key_of, section, to_key
from tokmill.flows.results import RunRow
from tokmill.tasks.audit.sources import ALL
from tokmill.tasks.audit.summary import read_summary
from tokmill.tasks.card.words import without_front_matter
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.markdown import number, table
from tokmill.tasks.core.stage import ArtifactRef, How
from tokmill.tasks.store import InputEntry, Record, Store
from tokmill.tasks.sweep.stage import SweepSummary, to_markdown

_READ = 100  # a stage may have a thousand shards; the runs of the first hundred are named
_RUNS_NAMED, _ORIGINS_NAMED = 3, 3
_HOW: dict[How, str] = {"made": "Made by this task", "cached": "Reused", "waited": "Made by another run"}


def producers(store: Store, record: Record) -> set[str]:
    """Return the ids of the flow runs that made an artifact and its inputs, as far as known."""
    records = [record, *_records(store, [entry for entry in record.inputs if entry.kind is not None])]
    return {made.provenance.flow_run_id for made in records if made.provenance.flow_run_id}


def sheet(store: Store, shown: RunRow, links: Links, more: str = "") -> str:
    """Return the text about an artifact."""
    record, label = store.record(shown.ref), store.label(shown.ref, shown.ref.name)
    reference = f"{shown.ref.kind}/{shown.ref.name}@{label}"
    parts = [
        f"## {reference}",
        _origin(record, shown, links),
        _facts(record, label, store.address(shown.ref), links.command(reference)),
        " · ".join(part for part in (links.report(shown.ref), *_beside(shown.ref)) if part),
        more,
        *section("### Key figures", ("figure", "value"), _figures(record)),
        *section("### Accounts", ("source", "unit", "in", "added", "became"), _accounts(record), right=(2,)),
        *section("### Made from", ("input", "artifact", "made by"), _inputs(store, record, links)),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def in_brief(record: Record) -> str:
    """Return the size of an artifact: `1.2 MiB in 7 files`."""
    num_bytes = sum(entry.size_bytes for entry in record.files)
    return f"{size(num_bytes)} in {counted(len(record.files), 'file')}"


def _origin(record: Record, shown: RunRow, links: Links) -> str:
    """Say who made the artifact, when, and in what time."""
    run = links.run(record.provenance.flow_run_id)
    when = record.timings.ended[:16].replace("T", " ")
    if shown.how == "made":
        return f"**{_HOW['made']}** in {span(record.timings.seconds)}."
    by = f" by {run}" if run else ""
    waited = f", after {span(shown.seconds)} of waiting" if shown.how == "waited" else ""
    return f"**{_HOW[shown.how]}**{waited}: made on {when} UTC{by} in {span(record.timings.seconds)}."


def _facts(record: Record, label: str, place: str, command: str) -> str:
    rows = [
        ("version", f"`{label}`"),
        ("content digest", f"`{record.content_digest[:32]}`"),
        ("fingerprint", f"`{record.fingerprint[:32]}`"),
        ("size", in_brief(record)),
        ("place", f"`{place}`"),
        ("in a terminal", f"`{command}`"),
    ]
    return "\n".join(table(("artifact", ""), rows, left=(0, 1)))


def _beside(ref: ArtifactRef) -> Iterable[str]:
    """Yield links to what a person reads beside an artifact."""
    parts = {"audit": "audit", "tokenizer_card": "tokenizer card", "card": "data card", "run": "run summary"}
    for kind, words in parts.items():
        if kind != ref.kind and (ref.kind in parts or ref.kind in {"tokenizer", "packed", "usage"}):
            yield to_key(words.capitalize(), key_of(kind, ref.name))


def _figures(record: Record) -> Iterable[Sequence[str]]:
    return [labelled(name, value) for name, value in record.metrics.items() if value != ""]


def _accounts(record: Record) -> Iterable[Sequence[str]]:
    for account in record.accounts:
        amounts = (_amounts(account.added), _amounts(account.became))
        yield account.source, account.unit, f"{account.num_in:,}", *amounts


def _amounts(amounts: Mapping[str, int]) -> str:
    """The amounts that are not 0."""
    return ", ".join(f"{name.replace('_', ' ')} {amount:,}" for name, amount in amounts.items() if amount)


def _inputs(store: Store, record: Record, links: Links) -> Iterable[Sequence[str]]:
    """Yield one row per role: its artifact, or the number of shards or files, and the runs."""
    roles: dict[str, list[InputEntry]] = {}
    for entry in record.inputs:
        roles.setdefault(entry.role, []).append(entry)
    for role, entries in roles.items():
        if entries[0].kind is None:
            yield role.replace("_", " "), _outside(entries), ""
        else:
            found = _records(store, entries)
            yield role.replace("_", " "), _inside(entries, found), _made_by(found, links)


def _outside(entries: Sequence[InputEntry]) -> str:
    names = [f"`{entry.origin}`" for entry in entries if entry.origin][:_ORIGINS_NAMED]
    if len(entries) == 1:
        return names[0] if names else f"`{entries[0].digest[:16]}`"
    more = ", …" if len(entries) > len(names) > 0 else ""
    return f"{counted(len(entries), 'file')}{': ' if names else ''}{', '.join(names)}{more}"


def _inside(entries: Sequence[InputEntry], found: Sequence[Record]) -> str:
    if len(entries) > 1:
        return f"{len(entries):,} × {entries[0].kind}"
    return f"`{found[0].reference}`" if found else f"`{entries[0].kind}/{entries[0].name}` (removed)"


def _made_by(found: Sequence[Record], links: Links) -> str:
    runs = [links.run(record.provenance.flow_run_id) for record in found]
    named = list(dict.fromkeys(run for run in runs if run))
    more = f" and {len(named) - _RUNS_NAMED} more" if len(named) > _RUNS_NAMED else ""
    return f"{', '.join(named[:_RUNS_NAMED])}{more}"


def _records(store: Store, entries: Sequence[InputEntry]) -> Sequence[Record]:
    """Return the records of the first inputs, as far as they are in the store."""
    found = []
    for entry in entries[:_READ]:
        try:
            found.append(store.read(entry.kind or "", entry.fingerprint or ""))
        except StoreError:  # removed since
            continue
    return found


_WORDS = {"made": "made", "cached": "cached", "waited": "waited for"}


class Piece(NamedTuple):
    """One artifact of Prefect's.

    Attributes:
        type: `markdown` or `table`.
        key: which gives it a page with all its versions.
        data: Markdown, or rows as JSON.
        description: one line; its first words are seen in the list.
    """

    type: str
    key: str
    data: str
    description: str


class _Own(NamedTuple):
    """What an artifact has to say itself: a text, and tables as (what, rows, description)."""

    text: str = ""
    tables: Sequence[tuple[str, Sequence[Mapping[str, Any]], str]] = ()


def pieces(store: Store, shown: RunRow, links: Links) -> list[Piece]:
    """Return what the page of a task shows of its artifact."""
    ref = shown.ref
    own = _OWN[ref.kind](store, ref) if ref.kind in _OWN else _Own()
    return [
        Piece(
            "markdown",
            key_of(ref.kind, ref.name),
            sheet(store, shown, links, own.text),
            _in_a_line(store, shown),
        ),
        *(table_piece(key_of(what, ref.name), rows, said) for what, rows, said in own.tables),
    ]


def shards_table(group: str, rows: Sequence[RunRow]) -> Piece:
    """Return one table of all shards of a stage, which is a group of tasks, e.g. `encode[*]`."""
    step, profile = group.removesuffix("[*]"), rows[0].name.rpartition("/")[0].rpartition(".")[0]
    ways = Counter(_WORDS[row.how] for row in rows)
    lines = [
        {
            "shard": row.task.removeprefix(f"{step}[").removesuffix("]"),
            "result": _WORDS[row.how],
            "time": span(row.seconds) if row.how != "cached" else "",
            **dict(labelled(name, value) for name, value in row.metrics.items() if value not in {0, ""}),
        }
        for row in sorted(rows, key=lambda row: row.task)
    ]
    said = f"{counted(len(rows), 'shard')}: {outcome_words(ways)}"
    return table_piece(key_of(f"{step}-shards", profile), lines, said)


def table_piece(key: str, rows: Sequence[Mapping[str, Any]], description: str) -> Piece:
    """Return a table; every row has the columns of all, in the order of their first appearance."""
    columns = dict.fromkeys(name for row in rows for name in row)
    full = [{name: _cell(row.get(name, "")) for name in columns} for row in rows]
    return Piece("table", key, json.dumps(full), description)


def _cell(value: Any) -> Any:
    return number(value) if isinstance(value, bool | int | float) else value


def _in_a_line(store: Store, shown: RunRow) -> str:
    record, ref = store.record(shown.ref), shown.ref
    figures = key_figures(ref.kind, record.metrics)
    parts = [store.label(ref, ref.name), _WORDS[shown.how], figures]
    return " · ".join(part for part in parts if part)


def _audit(store: Store, ref: ArtifactRef) -> _Own:
    path = store.path(ref, ["summary.json", "summary.md"])
    summary = read_summary(path)
    rows = [{**row, "source": "all" if row["source"] == ALL else row["source"]} for row in summary.sources]
    limits = [("audit-limits", summary.limits, f"gate {summary.gate}: its limits")] if summary.limits else []
    text = (path / "summary.md").read_text("utf-8")
    return _Own(text, [("audit-sources", rows, "the tokenizer, by source"), *limits])


def _sweep(store: Store, ref: ArtifactRef) -> _Own:
    summary = SweepSummary.open(store.path(ref))
    return _Own(to_markdown(summary), [("sweep-cells", summary.cells, "all tokenizers of the sweep")])


def _card(store: Store, ref: ArtifactRef) -> _Own:
    return _Own(without_front_matter((store.path(ref) / "card.md").read_text("utf-8")))


_OWN: Mapping[str, Callable[[Store, ArtifactRef], _Own]] = {
    "audit": _audit,
    "sweep": _sweep,
    "card": _card,
    "tokenizer_card": _card,
}
