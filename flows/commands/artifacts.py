"""The commands on artifacts of the store: list, show, compare, verify and tag them."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tokmill.flows.cli.app import FAILED, app, examples
from tokmill.flows.cli.options import ArtifactArgument, JsonOption, StoreOption
from tokmill.flows.cli.output import draw, messages, print_json, require_new, say
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted, key_figures, labelled

if TYPE_CHECKING:
    from tokmill.tasks.store import Direction, Graph, Store


@app.command(
    "ls",
    rich_help_panel="Store",
    epilog=examples("tokmill ls", "tokmill ls tokenizer", "tokmill ls encoded_shard --all --json"),
)
def list_artifacts(
    kind: Annotated[str | None, typer.Argument(help="Only this kind, e.g. tokenizer.")] = None,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            "-a",
            help="Every version, and shards; by default the latest version of each name.",
        ),
    ] = False,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit",
            metavar="N",
            min=0,
            help="At most N, those made last; 0 for no limit. On a terminal 200, else none, by default.",
        ),
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the artifacts of the store."""
    from tokmill.flows.cli.listing import SHOWN, listed, listing_table
    from tokmill.flows.cli.lookup import existing_store

    opened = existing_store(store)
    most = (SHOWN if sys.stdout.isatty() and not as_json else 0) if limit is None else limit
    found = listed(opened, kind, every=every, most=most or None)
    if as_json:
        print_json(found.rows)
        return
    draw(listing_table(opened, found.rows))
    if found.num_beyond:
        number = f"{len(found.rows):,} of {len(found.rows) + found.num_beyond:,}"
        messages().print(f"[dim]the {number} that were made last; --limit 0 lists all[/dim]")
    if found.num_hidden:
        hidden = f"{found.num_hidden} shards and older versions are not listed; --all lists them"
        if found.num_hidden == 1:
            hidden = "1 shard or older version is not listed; --all lists it"
        messages().print(f"[dim]{hidden}[/dim]")


@app.command(
    rich_help_panel="Store",
    epilog=examples(
        "tokmill show card/quickstart",
        "tokmill show card/quickstart --read",
        "tokmill show tokenizer/quickstart@v1 --json",
    ),
)
def show(
    artifact: ArtifactArgument,
    read: Annotated[
        bool, typer.Option("--read", help="Print the artifact's text: its data card or summary.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one artifact: its metrics, parameters, inputs, accounts, files and provenance.

    Of an artifact that was removed, its record is left, and who removed it, when and why.
    """
    from tokmill.flows.cli.lookup import existing_store, find_artifact
    from tokmill.flows.cli.sheet import print_sheet, print_words, sheet_document

    opened = existing_store(store)
    ref = find_artifact(opened, artifact, removed=not read)
    if read:
        print_words(opened, ref)
    elif as_json:
        print_json(sheet_document(opened, ref))
    else:
        print_sheet(opened, ref)


@app.command(
    rich_help_panel="Store",
    epilog=examples(
        "tokmill lineage packed/quickstart",
        "tokmill lineage corpus/quickstart --down",
        "tokmill lineage card/quickstart --format mermaid > lineage.mmd",
        "tokmill lineage tokenizer/quickstart --html lineage.html",
    ),
)
def lineage(
    artifact: ArtifactArgument,
    up: Annotated[bool, typer.Option("--up", help="The artifacts it was made from (the default).")] = False,
    down: Annotated[bool, typer.Option("--down", help="The artifacts made from it.")] = False,
    form: Annotated[
        Literal["tree", "mermaid", "graphviz", "json"], typer.Option("--format", help="Output format.")
    ] = "tree",
    html: Annotated[
        Path | None,
        typer.Option(
            "--html", metavar="FILE", help="Write a page with a map, a new file; by default both ways."
        ),
    ] = None,
    store: StoreOption = None,
) -> None:
    """Show the artifacts that one was made from, or those made from it; both with --up --down."""
    from tokmill.flows.cli.lookup import existing_store, find_artifact
    from tokmill.tasks.store import lineage as trace

    opened = existing_store(store)
    direction: Direction = "both" if up and down else "down" if down else "up"
    if html is not None and not up:
        direction = "down" if down else "both"
    graph = trace(opened, find_artifact(opened, artifact, removed=True), direction)
    if html is not None:
        _write_page(opened, graph, html)
    elif form == "json":
        print_json(graph.to_json())
    else:
        drawn = {"tree": graph.to_tree, "mermaid": graph.to_mermaid, "graphviz": graph.to_graphviz}
        say(drawn[form]())


def _write_page(store: "Store", graph: "Graph", html: Path) -> None:
    from tokmill.tasks.tracing.page.writing import write_page

    require_new("lineage", html)
    write_page(store, graph, html, figures=key_figures, labelled=labelled)
    say(f"{html} shows {counted(len(graph.nodes), 'node')}")


@app.command(
    rich_help_panel="Store",
    epilog=examples(
        "tokmill diff packed/quickstart@v1 packed/quickstart@v2",
        "tokmill diff packed/quickstart@v1 packed/quickstart@v2 --html difference.html",
        "tokmill diff 3f09ab 77c2e1 --json",
    ),
)
def diff(
    a: ArtifactArgument,
    b: ArtifactArgument,
    fields: Annotated[
        bool, typer.Option("--fields", help="Also list every field in which the two recipes differ.")
    ] = False,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write it as a page, a new file.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say why two artifacts differ: the first causes in their lineage, and the metrics side by side."""
    from tokmill.flows.cli.comparison import print_explanation
    from tokmill.flows.cli.lookup import existing_store, find_artifact
    from tokmill.tasks.comparing.explaining import explain

    opened = existing_store(store)
    one, other = (find_artifact(opened, reference, removed=True) for reference in (a, b))
    if one.kind != other.kind:
        raise UsageError(f"diff: {a} is a {one.kind} and {b} a {other.kind}; name two of one kind")
    found = explain(opened, one, other)
    if html is not None:
        from tokmill.tasks.comparing.page.two import write_page_of_two

        require_new("diff", html)
        write_page_of_two(found, html)
        say(f"{html} shows {found.a.reference} and {found.b.reference}")
    elif as_json:
        print_json(found.to_json())
    else:
        print_explanation(found, fields=fields)


@app.command(
    rich_help_panel="Store",
    epilog=examples(
        "tokmill verify", "tokmill verify tokenizer/quickstart packed/quickstart", "tokmill verify --sizes"
    ),
)
def verify(
    artifacts: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARTIFACT", help="The artifacts to check; all if none is given."),
    ] = None,
    deep: Annotated[
        bool, typer.Option("--deep/--sizes", help="Read every byte, or compare the files' sizes only.")
    ] = True,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check artifacts against their records, and records against the catalog; exit code 1 if any is wrong."""
    from tokmill.flows.cli.lookup import existing_store, find_artifact

    opened = existing_store(store)
    refs = [find_artifact(opened, artifact) for artifact in artifacts] if artifacts else None
    problems = opened.verify(refs, full=deep)
    num_checked = len(refs) if refs is not None else sum(1 for _ in opened.layout.artifacts())
    if as_json:
        listed = [{"artifact": p.artifact, "path": p.path, "message": p.message} for p in problems]
        print_json({"num_checked": num_checked, "problems": listed})
    else:
        for problem in problems:
            say(str(problem))
        found = counted(len(problems), "problem") if problems else "no problems"
        say(f"{counted(num_checked, 'artifact')} checked, {found}")
    if problems:
        raise typer.Exit(FAILED)


@app.command(
    rich_help_panel="Store",
    epilog=examples("tokmill tag tokenizer/quickstart@v2 prod", "tokmill show tokenizer/quickstart@prod"),
)
def tag(
    artifact: ArtifactArgument,
    alias: Annotated[str, typer.Argument(help="Any name, e.g. prod.")],
    store: StoreOption = None,
) -> None:
    """Point an alias at an artifact, for use as a reference (kind/name@alias)."""
    from tokmill.flows.cli.lookup import existing_store, find_artifact

    opened = existing_store(store)
    ref = find_artifact(opened, artifact)
    opened.tag(ref, alias)
    say(f"{ref.kind}/{ref.name}@{alias} is now {ref.kind}/{ref.name}@{opened.label(ref, ref.name)}")
