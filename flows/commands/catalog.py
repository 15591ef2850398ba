"""`tokmill catalog`: the index of the store's records."""

import typer

from tokmill.flows.cli.app import app, examples
from tokmill.flows.cli.options import JsonOption, StoreOption
from tokmill.flows.cli.output import print_json, say, shown, shown_store

catalog = typer.Typer(no_args_is_help=True, help="The index of the store's records.")
app.add_typer(catalog, name="catalog", rich_help_panel="Store")


@catalog.command(epilog=examples("tokmill catalog rebuild", "tokmill catalog rebuild --store /data/store"))
def rebuild(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Rebuild the catalog from the records."""
    from tokmill.flows.cli.lookup import existing_store

    opened = existing_store(store)
    opened.catalog.rebuild()
    counts = opened.catalog.query(
        "SELECT (SELECT count(*) FROM artifacts) AS artifacts, (SELECT count(*) FROM runs) AS runs"
    )[0]
    if as_json:
        print_json({"path": str(opened.catalog.path), **counts})
    else:
        where = shown_store(opened) if "://" in opened.location else shown(opened.catalog.path)
        say(f"{where}: {counts['artifacts']:,} artifacts, {counts['runs']:,} runs")
