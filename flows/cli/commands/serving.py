"""`tokmill up`: a Prefect server and a worker on this machine, ready to be used from the browser."""

from typing import Annotated

import typer

from flows.cli.app import app, examples
from flows.cli.options import StoreOption
from flows.cli.output import messages


@app.command(
    rich_help_panel="Work",
    epilog=examples("tokmill up", "tokmill up --port 4300 --store /data/store"),
)
def up(
    store: StoreOption = None,
    host: Annotated[str, typer.Option(help="Address that the server listens on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="TCP port of the server.")] = 4200,
) -> None:
    """Start a Prefect server and a worker, and register the deployment build-corpus; Ctrl-C stops both."""
    from flows import serving
    from flows.cli.finding import writable_store
    from flows.places import store_url
    from flows.settings import require_prefect_home

    require_prefect_home()
    console = messages()

    def announce(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    serving.up(writable_store(store_url(store)).root, host=host, port=port, announce=announce)
