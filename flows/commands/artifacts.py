"""Commands about the artifacts of the store."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from rich.text import Text
from typer import Argument, Option

from tokmill.flows.cli.app import Answer, app, command
from tokmill.flows.cli.options import DEFAULT, ArtifactArgument, ExistingStore, find_artifact
from tokmill.flows.cli.output import (
    Aside,
    Part,
    Table,
    print_json,
    require_new,
    results,
    sections,
    shown_address,
)
from tokmill.flows.errors import UsageError, suggestion
from tokmill.flows.figures import counted, key_figures, labelled, size, span
from tokmill.tasks.core.markdown import number

if TYPE_CHECKING:
    from tokmill.tasks.core.stage import ArtifactRef, Scalar
    from tokmill.tasks.store import Direction, Record, Store

_MOST_ON_A_TERMINAL = 200
_SHOWN = 12
_RUN = "SELECT name, url FROM runs WHERE is_latest AND run_id = $run_id"
_NUMBERS = """
    SELECT count(*) AS versions,
           count(DISTINCT l.kind || '/' || l.name)
               FILTER ($kind IS NOT NULL OR NOT ends_with(l.kind, '_shard')) AS names
    FROM labels l JOIN artifacts a ON (a.kind, a.fingerprint) = (l.kind, l.fingerprint)
    WHERE coalesce(l.kind = $kind, true)
"""
_METRICS = """
    SELECT fingerprint, name, value, text FROM metrics
    WHERE fingerprint IN (SELECT unnest($fingerprints::VARCHAR[]))
"""


@command(app, "tokmill ls", "tokmill ls tokenizer", "tokmill ls encoded_shard --all --json", name="ls")
def list_artifacts(
    kind: str | None = Argument(None, help="Only this kind, e.g. tokenizer."),
    every: bool = Option(False, "--all", "-a", help="Also older versions, and shards."),
    limit: int | None = Option(None, metavar="N", min=0, help="At most N; 0: all; on a terminal 200."),
    store: ExistingStore = DEFAULT,
) -> Answer:
    """List the artifacts of the store."""
    on_terminal = _MOST_ON_A_TERMINAL if sys.stdout.isatty() else 0
    most = (on_terminal if limit is None else limit) or None
    return Answer(
        lambda: listed(store, kind, every=every, most=limit or None).rows,
        _listing(store, kind, every=every, most=most),
    )


class Listing(NamedTuple):
    """Versions, and how many are not listed: shards and older ones, and those beyond the most."""

    rows: list[dict[str, Any]]
    num_hidden: int
    num_beyond: int


def listed(store: "Store", kind: str | None, *, every: bool, most: int | None = None) -> Listing:
    """Return the last `most` versions in a store: all, or the latest of each name without shards."""
    if kind in {"run", "runs"}:
        raise UsageError("ls: runs are not artifacts; `tokmill runs` lists them")
    gone = store.superseded()
    rows = store.catalog.versions(kind, every=every, most=most)
    versions = [{**row, "superseded_by": gone.get(row["fingerprint"], [])} for row in rows]
    if kind is not None and not versions:
        kinds = {row["kind"] for row in store.catalog.query("SELECT DISTINCT kind FROM artifacts")}
        raise UsageError(f"ls: {store.location} has no {kind}{suggestion(kind, kinds, known_as='it has')}")
    (numbers,) = store.catalog.query(_NUMBERS, {"kind": kind})
    requested = numbers["versions" if every else "names"]
    beyond = requested - len(versions) if len(versions) == most else 0  # others may publish in between
    return Listing(versions, numbers["versions"] - requested, max(beyond, 0))


def _listing(store: "Store", kind: str | None, *, every: bool, most: int | None) -> Iterator[Part]:
    """Yield one line per version, its metrics from the catalog, and say how many are not listed."""
    from tokmill.tasks.store.rows import scalar_of

    rows, num_hidden, num_beyond = listed(store, kind, every=every, most=most)
    metrics: dict[str, dict[str, Scalar]] = {row["fingerprint"]: {} for row in rows}
    for row in store.catalog.query(_METRICS, {"fingerprints": list(metrics)}):
        metrics[row["fingerprint"]][row["name"]] = scalar_of(row["value"], row["text"])
    lines = []
    for row in rows:
        called = Text(f"{row['kind']}/{row['name']}@{row['label']}")
        called.append("".join(f" @{alias}" for alias in row["aliases"]), style="cyan")
        if row["superseded_by"]:
            called.append(f" superseded by {', '.join(row['superseded_by'])}", style="yellow")
        figures = Text(key_figures(row["kind"], metrics[row["fingerprint"]]), style="dim")
        lines.append((called, row["ended"][:16].replace("T", " "), size(row["num_bytes"]), figures))
    yield Table(("artifact", "made (UTC)", "size", "key figures"), lines, right=("size",))
    if num_beyond:
        beyond = len(rows) + num_beyond
        yield Aside(f"the {len(rows):,} of {beyond:,} that were made last; --limit 0 lists all")
    if num_hidden:
        yield Aside(f"shards and older versions that are not listed: {num_hidden:,}; --all lists them")


@command(
    app,
    "tokmill show card/quickstart",
    "tokmill show card/quickstart --read",
    "tokmill show tokenizer/quickstart@v1 --json",
)
def show(
    artifact: ArtifactArgument,
    read: bool = Option(False, "--read", help="Print the artifact's text: its data card or summary."),
    store: ExistingStore = DEFAULT,
) -> Answer:
    """Show an artifact: metrics, parameters, inputs, files, origin.

    Of an artifact that was removed, its record is left, and who removed it, when and why.
    """
    ref = find_artifact(store, artifact, removed=not read)
    return Answer(lambda: _document(store, ref), _words(store, ref) if read else _sheet(store, ref))


def _document(store: "Store", ref: "ArtifactRef") -> dict[str, object]:
    """Return an artifact's record as JSON, with its place, its run, what superseded it, and its removal."""
    record, tombstone = store.past_record(ref), store.tombstone(ref.kind, ref.fingerprint)
    removal = None if tombstone is None else tombstone.model_dump(mode="json", exclude={"record"})
    return {
        **record.model_dump(mode="json"),
        "path": None if removal is not None else store.address(ref),
        "superseded_by": store.superseded().get(ref.fingerprint, []),
        "removal": removal,
        "run_page": _run_of(store, record).get("page"),
    }


def _run_of(store: "Store", record: "Record") -> dict[str, str]:
    """Return the run that made an artifact, and its page at Prefect's server, as far as known."""
    run_id = record.provenance.run_id or record.provenance.flow_run_id
    if not run_id:
        return {}
    rows = store.catalog.query(_RUN, {"run_id": run_id})
    name, url = (rows[0]["name"], rows[0]["url"]) if rows else ("", "")
    return {"run": f"{run_id} ({name})" if name else run_id, "page": url or ""}


def _words(store: "Store", ref: "ArtifactRef") -> Iterator[Part]:
    """Yield an artifact's text: rendered on a terminal, as Markdown elsewhere, a card with name and date."""
    from tokmill.tasks.card.words import published, without_front_matter

    texts = [entry.path for entry in store.record(ref).files if Path(entry.path).suffix == ".md"]
    if not texts:
        raise UsageError(f"{ref.kind}/{ref.name} has no text to read; card and audit artifacts do")
    text = (store.path(ref, texts[:1]) / texts[0]).read_text(encoding="utf-8")
    if ref.kind in {"card", "tokenizer_card"}:
        made = store.record(ref).timings.ended[:10]
        text = published(text, f"{ref.kind}/{ref.name}", store.label(ref, ref.name), made)
    if results().is_terminal:
        from rich.markdown import Markdown  # takes as long as all else of a sheet

        yield Markdown(without_front_matter(text))
    else:
        yield text


def _sheet(store: "Store", ref: "ArtifactRef") -> Iterator[Part]:
    """Yield an artifact's record for people, section by section."""
    record, removal = store.past_record(ref), store.tombstone(ref.kind, ref.fingerprint)
    label = record.label if removal is not None else store.label(ref, ref.name)
    yield Text(f"{ref.kind}/{ref.name}@{label}", style="bold")
    if removal is not None:
        yield Text(removal.words, style="yellow")
    if makers := store.superseded().get(ref.fingerprint):
        yield Text(f"superseded: documents were taken down in {', '.join(makers)}", style="yellow")
    recipe = record.payload.get("params", record.params)  # parameters of another family, say, are not in it
    accounts = [
        (each.source, each.unit, each.num_in, _amounts(each.added), _amounts(each.became))
        for each in record.accounts
    ]
    yield from sections(
        {
            "": _origin(store, record),
            "figures": {name: number(value) for name, value in record.metrics.items()},
            "parameters": _parameters({name: each for name, each in record.params.items() if name in recipe}),
            "inputs": _inputs(record),
            "accounts": Table(
                ("source", "unit", "in", "added", "became"), accounts, right=("in",), wrap=True
            ),
            "quarantined": _quarantined(store, record) if removal is None else {},
            "files": _files(record),
        }
    )


def _origin(store: "Store", record: "Record") -> Mapping[str, str]:
    made = record.provenance
    return {
        "fingerprint": record.fingerprint,
        "content": record.content_digest,
        "path": shown_address(store, record.ref) if store.holds(record.ref) else "",
        "made": f"{record.timings.ended[:19].replace('T', ' ')} UTC in {span(record.timings.seconds)}",
        "by": made.user or "",
        "commit": f"{(made.git_commit or '')[:12]}{' with changes' if made.git_dirty else ''}",
        "command": made.command or "",
        **_run_of(store, record),
    }


def _inputs(record: "Record") -> Mapping[str, str]:
    """Return one line per role: the artifact, or the number of files or shards."""
    lines = dict[str, str]()
    numbers = Counter(entry.role for entry in record.inputs)
    for first in record.inputs:
        if numbers[first.role] > 1:
            line = f"{numbers[first.role]:,} × {first.kind or 'files from outside the store'}"
        elif first.kind is None:
            line = first.origin or first.digest
        else:
            line = f"{first.kind}/{first.name} ({(first.fingerprint or '')[:12]})"
        lines.setdefault(first.role, line)
    return lines


def _quarantined(store: "Store", record: "Record") -> Table | Mapping[str, str | Text]:
    """Return the first quarantined documents of a corpus, with reasons; nothing for other kinds."""
    if not record.metrics.get("num_quarantined"):
        return {}
    from tokmill.tasks.formats.corpus import Corpus
    from tokmill.tasks.formats.text.quarantine import REASONS

    bad = Corpus.open(store.place(record.ref)).table("quarantine")
    rows = [
        (
            *(str(one[name]) for name in ("source", "file", "row", "reason")),
            one["detail"] or REASONS[one["reason"]][0],
        )
        for one in bad.slice(0, _SHOWN).to_pylist()
    ]
    if bad.num_rows > _SHOWN:
        rows.append(("…", "", "", "", f"and {bad.num_rows - _SHOWN} more in quarantine.parquet"))
    return Table(("source", "file", "row", "reason", "what is wrong"), rows, right=("row",), wrap=True)


def _amounts(amounts: Mapping[str, int]) -> str:
    """Return the amounts that are not 0; if all are 0, the first one."""
    some = {name: amount for name, amount in amounts.items() if amount} or dict(list(amounts.items())[:1])
    return ", ".join(f"{name} {amount:,}" for name, amount in some.items())


def _files(record: "Record") -> Table:
    rows = [(entry.path, size(entry.size_bytes), entry.digest[:12]) for entry in record.files[:_SHOWN]]
    if len(record.files) > _SHOWN:
        rows.append((f"… and {len(record.files) - _SHOWN} more", "", ""))
    return Table(("file", "size", "digest"), rows, right=("size",))


def _parameters(params: Mapping[str, object]) -> Mapping[str, str]:
    """Return one line per parameter; for a table of tables (the sources) one line per table."""
    lines: dict[str, str] = {}
    for name, value in params.items():
        if isinstance(value, Mapping) and any(isinstance(inner, Mapping) for inner in value.values()):
            lines |= {f"{name}.{key}": _written(inner) for key, inner in value.items()}
        else:
            lines[name] = _written(value)
    return lines


def _written(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} = {_written(inner)}" for key, inner in value.items() if inner is not None)
    if isinstance(value, list):
        return f"[{', '.join(json.dumps(item, ensure_ascii=False) for item in value)}]"
    return number(value) if isinstance(value, int | float | str) else "–"


@command(
    app,
    "tokmill lineage packed/quickstart",
    "tokmill lineage corpus/quickstart --down",
    "tokmill lineage card/quickstart --format mermaid > lineage.mmd",
    "tokmill lineage tokenizer/quickstart --html lineage.html",
)
def lineage(
    artifact: ArtifactArgument,
    up: bool = Option(False, "--up", help="The artifacts it was made from (the default)."),
    down: bool = Option(False, "--down", help="The artifacts made from it."),
    form: Literal["tree", "mermaid", "graphviz", "json"] = Option("tree", "--format", help="Output format."),
    html: Path | None = Option(None, metavar="FILE", help="Write a page with a map, a new file."),
    store: ExistingStore = DEFAULT,
) -> str | None:
    """Show what an artifact was made from, or what was made from it."""
    from tokmill.tasks.store import lineage as trace

    direction: Direction = "both" if up and down else "down" if down else "up"
    if html is not None and not up:
        direction = "down" if down else "both"
    graph = trace(store, find_artifact(store, artifact, removed=True), direction)
    if html is not None:
        from tokmill.tasks.tracing.page import write_page

        require_new("lineage", html)
        write_page(store, graph, html, figures=key_figures, labelled=labelled)
        return f"{html} shows {counted(len(graph.nodes), 'node')}"
    if form == "json":
        print_json(graph.to_json())
        return None
    return {"tree": graph.to_tree, "mermaid": graph.to_mermaid, "graphviz": graph.to_graphviz}[form]()
