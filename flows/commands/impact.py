"""`tokmill impact`: every artifact that a file of text, or one document, went into."""

from typing import Annotated

import typer

from tokmill.flows.cli.app import app, examples
from tokmill.flows.cli.options import JsonOption, StoreOption
from tokmill.flows.cli.output import draw, print_json, say, table
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted
from tokmill.tasks.core.errors import TracingError


@app.command(
    rich_help_panel="Store",
    epilog=examples(
        "tokmill impact text/web.jsonl",
        "tokmill impact text/web.jsonl:17",
        "tokmill impact 's3://bucket/web/*.jsonl.zst' --json",
    ),
)
def impact(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="A path, a glob, a URL, or a digest of content; :ROW after it for one row."
        ),
    ],
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List every artifact that a file of text, or one row of it (from 0), went into; the file may be gone."""
    from tokmill.flows.cli.lookup import existing_store
    from tokmill.tasks.store.layout import printable
    from tokmill.tasks.takedown.impact import impact_of

    try:
        found = impact_of(existing_store(store), file)
    except TracingError as error:
        raise UsageError(f"impact: {error}") from error
    if as_json:
        artifacts = [each._asdict() for each in found.artifacts]
        print_json(
            {"files": [each._asdict() for each in found.files], "row": found.row, "artifacts": artifacts}
        )
        return
    for each in found.files:
        say(printable(f"{each.source}:{each.name}  {each.origin}  {each.digest[:16]}"))
    say("")
    rows = [
        [
            each.reference,
            each.holds,
            "" if each.sequences is None else counted(each.sequences, "sequence"),
            each.why,
        ]
        for each in found.artifacts
    ]
    draw(table(("artifact", "holds", "where", "why"), rows))
