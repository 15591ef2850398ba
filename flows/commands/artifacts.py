"""`tokmill ls`, `show` and `lineage`: the artifacts of the store."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from typer import Argument, Option

from tokmill.flows.cli.app import Answer, app, command
from tokmill.flows.cli.lookup import find_artifact
from tokmill.flows.cli.options import DEFAULT, ArtifactArgument, ExistingStore
from tokmill.flows.cli.output import Part, aside, print_json, require_new
from tokmill.flows.figures import counted, key_figures, labelled

if TYPE_CHECKING:
    from tokmill.tasks.store import Direction, Store

_MOST_ON_A_TERMINAL = 200


@command(app, "tokmill ls", "tokmill ls tokenizer", "tokmill ls encoded_shard --all --json", name="ls")
def list_artifacts(
    kind: str | None = Argument(None, help="Only this kind, e.g. tokenizer."),
    every: bool = Option(False, "--all", "-a", help="Also older versions, and shards."),
    limit: int | None = Option(
        None, metavar="N", min=0, help="At most N, the last ones; 0: all; on a terminal 200."
    ),
    store: ExistingStore = DEFAULT,
) -> Answer:
    """List the artifacts of the store."""
    from tokmill.flows.cli.artifacts import listed

    on_terminal = _MOST_ON_A_TERMINAL if sys.stdout.isatty() else 0
    return Answer(
        lambda: listed(store, kind, every=every, most=limit or None).rows,
        _listing(store, kind, every=every, most=(on_terminal if limit is None else limit) or None),
    )


def _listing(store: "Store", kind: str | None, *, every: bool, most: int | None) -> Iterator[Part]:
    from tokmill.flows.cli.artifacts import listed, listing_table

    listing = listed(store, kind, every=every, most=most)
    yield listing_table(store, listing.rows)
    if listing.num_beyond:
        number = f"{len(listing.rows):,} of {len(listing.rows) + listing.num_beyond:,}"
        aside(f"the {number} that were made last; --limit 0 lists all")
    if listing.num_hidden == 1:
        aside("1 shard or older version is not listed; --all lists it")
    elif listing.num_hidden:
        aside(f"{listing.num_hidden} shards and older versions are not listed; --all lists them")


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
    from tokmill.flows.cli.artifacts import sheet, sheet_document, words

    ref = find_artifact(store, artifact, removed=not read)
    return Answer(lambda: sheet_document(store, ref), words(store, ref) if read else sheet(store, ref))


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
