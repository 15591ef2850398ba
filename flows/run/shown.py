"""What the Prefect UI shows of an artifact on the task run that made it: its summary, tables and links.

Prefect shows artifacts of the tasks that ran. A cached task did not, so the flow shows what its cached tasks
would have shown; see `show_cached`.
"""

import os
import re
from collections.abc import Callable, Mapping

from prefect.artifacts import create_link_artifact, create_markdown_artifact, create_table_artifact

from tokmill.flows.run.results import RunResult
from tokmill.flows.server.pages import PAGES
from tokmill.tasks.audit.sources import ALL
from tokmill.tasks.audit.summary import read_summary
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store
from tokmill.tasks.sweep.stage import SweepSummary, to_markdown


def key_of(what: str, name: str) -> str:
    """Return a key that Prefect accepts (lower-case letters, digits, dashes): `audit-my-profile`."""
    return f"{what}-{re.sub('[^a-z0-9]+', '-', name.lower())}"


def show(store: Store, ref: ArtifactRef) -> None:
    """Create the Prefect artifacts of an artifact, in the current task or flow; for most kinds none."""
    shown = _SHOWN.get(ref.kind)
    if shown is not None:
        shown(store, ref)


def show_cached(store: Store, result: RunResult) -> None:
    """Show what was cached, so that every run has the same artifacts."""
    cached = {row.ref for row in result.rows if row.how == "cached"}
    for ref in result.refs.values():
        if ref in cached:
            show(store, ref)


def _audit(store: Store, ref: ArtifactRef) -> None:
    path, reference = store.path(ref), store.record(ref).reference
    summary = read_summary(path)
    create_markdown_artifact(
        (path / "summary.md").read_text("utf-8"),
        key_of("audit", ref.name),
        description=f"{reference}: gate {summary.gate}",
    )
    rows = [{**row, "source": "all" if row["source"] == ALL else row["source"]} for row in summary.sources]
    create_table_artifact(rows, key_of("audit-sources", ref.name), description=f"{reference}: by source")
    if summary.limits:
        limits = key_of("audit-limits", ref.name)
        create_table_artifact(summary.limits, limits, description=f"{reference}: the limits of the gate")
    _link_report(ref, reference)


def _sweep(store: Store, ref: ArtifactRef) -> None:
    summary, reference = SweepSummary.open(store.path(ref)), store.record(ref).reference
    create_markdown_artifact(
        to_markdown(summary), key_of("sweep", ref.name), description=f"{reference}: which tokenizer to take"
    )
    cells = key_of("sweep-cells", ref.name)
    create_table_artifact(summary.cells, cells, description=f"{reference}: all tokenizers")
    _link_report(ref, reference)


def _card(store: Store, ref: ArtifactRef) -> None:
    what = "card" if ref.kind == "card" else "tokenizer-card"
    text = (store.path(ref) / "card.md").read_text("utf-8")
    create_markdown_artifact(text, key_of(what, ref.name), description=store.record(ref).reference)


def _link_report(ref: ArtifactRef, reference: str) -> None:
    """Link the report if a server of ours makes one; `tokmill report` writes it elsewhere."""
    pages = os.environ.get(PAGES)
    if pages:
        create_link_artifact(
            f"{pages}/{ref.fingerprint}",
            f"Report of {reference}",
            key_of(f"{ref.kind}-report", ref.name),
            description="Charts, tables, and a field that encodes what one types.",
        )


_SHOWN: Mapping[str, Callable[[Store, ArtifactRef], None]] = {
    "audit": _audit,
    "sweep": _sweep,
    "card": _card,
    "tokenizer_card": _card,
}
