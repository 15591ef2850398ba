"""The output of `tokmill ls` and `tokmill show`: a store's artifacts, and one artifact's record."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table
from rich.text import Text

from tokmill.flows.cli.output import Part, results, sections, shown_address, table
from tokmill.flows.errors import UsageError, suggestion
from tokmill.flows.figures import key_figures, size, span
from tokmill.tasks.core.markdown import number
from tokmill.tasks.core.stage import ArtifactRef, Scalar
from tokmill.tasks.store import InputEntry, Record, Store
from tokmill.tasks.store.rows import scalar_of

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


def sheet(store: Store, ref: ArtifactRef) -> Iterator[Part]:
    """Yield an artifact's record for people, section by section."""
    record, removal = store.past_record(ref), store.tombstone(ref.kind, ref.fingerprint)
    label = record.label if removal is not None else store.label(ref, ref.name)
    yield Text(f"{ref.kind}/{ref.name}@{label}", style="bold")
    if removal is not None:
        yield Text(removal.words, style="yellow")
    if makers := store.superseded().get(ref.fingerprint):
        yield Text(f"superseded: documents were taken down in {', '.join(makers)}", style="yellow")
    recipe = record.payload.get("params", record.params)  # parameters of another family, say, are not in it
    parameters = {name: value for name, value in record.params.items() if name in recipe}
    yield from sections(
        {
            "": _origin(store, record),
            "figures": {name: number(value) for name, value in record.metrics.items()},
            "parameters": _parameters(parameters),
            "inputs": _inputs(record.inputs),
            "accounts": _accounts(record),
            "quarantined": _quarantined(store, record) if removal is None else {},
            "files": _files(record),
        }
    )


def sheet_document(store: Store, ref: ArtifactRef) -> dict[str, object]:
    """Return an artifact's record as JSON, with its place, its run, what superseded it, and its removal."""
    tombstone = store.tombstone(ref.kind, ref.fingerprint)
    removal = None if tombstone is None else tombstone.model_dump(mode="json", exclude={"record"})
    return {
        **store.past_record(ref).model_dump(mode="json"),
        "path": None if removal is not None else store.address(ref),
        "superseded_by": store.superseded().get(ref.fingerprint, []),
        "removal": removal,
        "run_page": _run_of(store, store.past_record(ref)).get("page"),
    }


def _run_of(store: Store, record: Record) -> dict[str, str]:
    """Return the run that made an artifact, and its page at Prefect's server, as far as known."""
    run_id = record.provenance.run_id or record.provenance.flow_run_id
    if not run_id:
        return {}
    rows = store.catalog.query(_RUN, {"run_id": run_id})
    name, url = (rows[0]["name"], rows[0]["url"]) if rows else ("", "")
    return {"run": f"{run_id} ({name})" if name else run_id, "page": url or ""}


def words(store: Store, ref: ArtifactRef) -> Iterator[Part]:
    """Yield an artifact's text: rendered on a terminal, as Markdown elsewhere, a card with name and date."""
    from tokmill.tasks.card.words import published, without_front_matter

    found = [entry.path for entry in store.record(ref).files if Path(entry.path).suffix == ".md"]
    if not found:
        raise UsageError(f"{ref.kind}/{ref.name} has no text to read; card and audit artifacts do")
    text = (store.path(ref, found[:1]) / found[0]).read_text(encoding="utf-8")
    if ref.kind in {"card", "tokenizer_card"}:
        made = store.record(ref).timings.ended[:10]
        text = published(text, f"{ref.kind}/{ref.name}", store.label(ref, ref.name), made)
    if results().is_terminal:
        from rich.markdown import Markdown  # imported here because it takes as long as all else of a sheet

        yield Markdown(without_front_matter(text))
    else:
        yield text


def _origin(store: Store, record: Record) -> Mapping[str, str]:
    made = record.provenance
    commit = f"{(made.git_commit or '')[:12]}{' with changes' if made.git_dirty else ''}"
    entries = {
        "fingerprint": record.fingerprint,
        "content": record.content_digest,
        "path": shown_address(store, record.ref) if store.holds(record.ref) else "",
        "made": f"{record.timings.ended[:19].replace('T', ' ')} UTC in {span(record.timings.seconds)}",
        "by": made.user or "",
        "commit": commit,
        "command": made.command or "",
        **_run_of(store, record),
    }
    return {name: value for name, value in entries.items() if value}


def _inputs(inputs: Sequence[InputEntry]) -> Mapping[str, str]:
    """One line per role: the artifact, or the number of files or shards."""
    roles: dict[str, list[InputEntry]] = {}
    for entry in inputs:
        roles.setdefault(entry.role, []).append(entry)
    return {role: _input(entries[0], len(entries)) for role, entries in roles.items()}


def _input(first: InputEntry, number_of: int) -> str:
    if number_of > 1:
        return f"{number_of:,} × {first.kind or 'files from outside the store'}"
    if first.kind is None:
        return first.origin or first.digest
    return f"{first.kind}/{first.name} ({(first.fingerprint or '')[:12]})"


def _accounts(record: Record) -> Table:
    rows = [
        (each.source, each.unit, f"{each.num_in:,}", _amounts(each.added), _amounts(each.became))
        for each in record.accounts
    ]
    return table(("source", "unit", "in", "added", "became"), rows, right=("in",), wrap=True)


def _quarantined(store: Store, record: Record) -> Table:
    """The first quarantined documents of a corpus, with reasons; empty for other kinds."""
    rows = []
    if record.metrics.get("num_quarantined"):
        from tokmill.tasks.formats.corpus import Corpus
        from tokmill.tasks.formats.text.quarantine import REASONS

        listed = Corpus.open(store.place(record.ref)).table("quarantine")
        rows = [
            (
                *(str(bad[name]) for name in ("source", "file", "row", "reason")),
                bad["detail"] or REASONS[bad["reason"]][0],
            )
            for bad in listed.slice(0, _SHOWN).to_pylist()
        ]
        if listed.num_rows > _SHOWN:
            rows.append(("…", "", "", "", f"and {listed.num_rows - _SHOWN} more in quarantine.parquet"))
    return table(("source", "file", "row", "reason", "what is wrong"), rows, right=("row",), wrap=True)


def _amounts(amounts: Mapping[str, int]) -> str:
    """The amounts that are not 0; if all are 0, the first one."""
    some = {name: amount for name, amount in amounts.items() if amount} or dict(list(amounts.items())[:1])
    return ", ".join(f"{name} {amount:,}" for name, amount in some.items())


def _files(record: Record) -> Table:
    rows = [(entry.path, size(entry.size_bytes), entry.digest[:12]) for entry in record.files[:_SHOWN]]
    if len(record.files) > _SHOWN:
        rows.append((f"… and {len(record.files) - _SHOWN} more", "", ""))
    return table(("file", "size", "digest"), rows, right=("size",))


def _parameters(params: Mapping[str, object]) -> Mapping[str, str]:
    """One line per parameter; for a table of tables (the sources) one line per table, with its settings."""
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


class Listing(NamedTuple):
    """Versions in a store.

    Attributes:
        rows: one row of the catalog per version.
        num_hidden: shards and older versions that were not requested.
        num_beyond: requested versions beyond the most that are listed.
    """

    rows: list[dict[str, Any]]
    num_hidden: int
    num_beyond: int


def listed(store: Store, kind: str | None, *, every: bool, most: int | None = None) -> Listing:
    """Return the versions in a store: all of them, or the latest of each name without shards.

    Args:
        store: the store.
        kind: only versions of this kind.
        every: whether older versions and shards are listed.
        most: only so many, those that were made last; all if not given.

    Raises:
        UsageError: the store has no artifact of that kind; or runs are requested.
    """
    if kind in {"run", "runs"}:
        raise UsageError("ls: runs are not artifacts; `tokmill runs` lists them")
    gone = store.superseded()
    rows = store.catalog.versions(kind, every=every, most=most)
    versions = [{**row, "superseded_by": gone.get(row["fingerprint"], [])} for row in rows]
    if kind is not None and not versions:
        kinds = {row["kind"] for row in store.catalog.query("SELECT DISTINCT kind FROM artifacts")}
        raise UsageError(f"ls: {store.location} has no {kind}{suggestion(kind, kinds, known_as='it has')}")
    (number,) = store.catalog.query(_NUMBERS, {"kind": kind})
    num_asked = number["versions" if every else "names"]
    beyond = num_asked - len(versions) if len(versions) == most else 0  # others may publish in between
    return Listing(versions, number["versions"] - num_asked, max(beyond, 0))


def listing_table(store: Store, rows: list[dict[str, Any]]) -> Table:
    """Return one line per version: its name, time, size and key figures."""
    lines = []
    metrics = _metrics(store, rows)
    for row in rows:
        called = Text(f"{row['kind']}/{row['name']}@{row['label']}")
        called.append("".join(f" @{alias}" for alias in row["aliases"]), style="cyan")
        if row["superseded_by"]:
            called.append(f" superseded by {', '.join(row['superseded_by'])}", style="yellow")
        figures = Text(key_figures(row["kind"], metrics[row["fingerprint"]]), style="dim")
        lines.append((called, row["ended"][:16].replace("T", " "), size(row["num_bytes"]), figures))
    return table(("artifact", "made (UTC)", "size", "key figures"), lines, right=("size",))


def _metrics(store: Store, rows: list[dict[str, Any]]) -> Mapping[str, Mapping[str, Scalar]]:
    """Return the metrics of versions by fingerprint, in their order; from the catalog, not from records."""
    found: dict[str, dict[str, Scalar]] = {row["fingerprint"]: {} for row in rows}
    for row in store.catalog.query(_METRICS, {"fingerprints": list(found)}):
        found[row["fingerprint"]][row["name"]] = scalar_of(row["value"], row["text"])
    return found
