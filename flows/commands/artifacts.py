"""`tokmill ls`, `show` and `lineage`: the artifacts of the store."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from typer import Argument, Option

from tokmill.flows.cli.app import app, command
from tokmill.flows.cli.lookup import existing_store, find_artifact
from tokmill.flows.cli.options import ArtifactArgument, JsonOption, StoreOption
from tokmill.flows.cli.output import aside, draw, print_json, require_new, say
from tokmill.flows.figures import counted, key_figures, labelled

if TYPE_CHECKING:
    from tokmill.tasks.store import Direction


@command(app, "tokmill ls", "tokmill ls tokenizer", "tokmill ls encoded_shard --all --json", name="ls")
def list_artifacts(
    kind: str | None = Argument(None, help="Only this kind, e.g. tokenizer."),
    every: bool = Option(False, "--all", "-a", help="Also older versions, and shards."),
    limit: int | None = Option(
        None, metavar="N", min=0, help="At most N, the last ones; 0: all; on a terminal 200."
    ),
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the artifacts of the store."""
    from tokmill.flows.cli.artifacts import SHOWN, listed, listing_table

    opened = existing_store(store)
    most = (SHOWN if sys.stdout.isatty() and not as_json else 0) if limit is None else limit
    found = listed(opened, kind, every=every, most=most or None)
    if as_json:
        print_json(found.rows)
        return
    draw(listing_table(opened, found.rows))
    if found.num_beyond:
        number = f"{len(found.rows):,} of {len(found.rows) + found.num_beyond:,}"
        aside(f"the {number} that were made last; --limit 0 lists all")
    if found.num_hidden == 1:
        aside("1 shard or older version is not listed; --all lists it")
    elif found.num_hidden:
        aside(f"{found.num_hidden} shards and older versions are not listed; --all lists them")


@command(
    app,
    "tokmill show card/quickstart",
    "tokmill show card/quickstart --read",
    "tokmill show tokenizer/quickstart@v1 --json",
)
def show(
    artifact: ArtifactArgument,
    read: bool = Option(False, "--read", help="Print the artifact's text: its data card or summary."),
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show an artifact: metrics, parameters, inputs, files, origin.

    Of an artifact that was removed, its record is left, and who removed it, when and why.
    """
    from tokmill.flows.cli.artifacts import print_sheet, print_words, sheet_document

    opened = existing_store(store)
    ref = find_artifact(opened, artifact, removed=not read)
    if read:
        print_words(opened, ref)
    elif as_json:
        print_json(sheet_document(opened, ref))
    else:
        print_sheet(opened, ref)


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
    store: StoreOption = None,
) -> None:
    """Show what an artifact was made from, or what was made from it."""
    from tokmill.tasks.store import lineage as trace

    opened = existing_store(store)
    direction: Direction = "both" if up and down else "down" if down else "up"
    if html is not None and not up:
        direction = "down" if down else "both"
    graph = trace(opened, find_artifact(opened, artifact, removed=True), direction)
    if html is not None:
        from tokmill.tasks.tracing.page import write_page

        require_new("lineage", html)
        write_page(opened, graph, html, figures=key_figures, labelled=labelled)
        say(f"{html} shows {counted(len(graph.nodes), 'node')}")
    elif form == "json":
        print_json(graph.to_json())
    else:
        drawn = {"tree": graph.to_tree, "mermaid": graph.to_mermaid, "graphviz": graph.to_graphviz}
        say(drawn[form]())
