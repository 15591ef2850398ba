"""`tokmill up`, `deploy` and `work`: start a Prefect server, feed one, and take its runs."""

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokmill.flows.cli.app import app, examples
from tokmill.flows.cli.options import JsonOption, StoreOption
from tokmill.flows.cli.output import messages, print_json, say, visible
from tokmill.flows.server.settings import PRIVATE, prepare, prepare_terminal_run, require_prefect_home

if TYPE_CHECKING:
    from tokmill.flows.server.served_folder import ServedFolder

AllowProfilesOption = Annotated[
    bool, typer.Option("--allow-profiles", help="Let runs name profiles outside this folder.")
]


@app.command(
    rich_help_panel="Work",
    epilog=examples("tokmill up", "tokmill up --port 4300 --store /data/store"),
)
def up(
    store: StoreOption = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="TCP port to listen on.")] = 4200,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Another name of the server, e.g. a proxy's; may be given several times.",
        ),
    ] = None,
    allow_profiles: AllowProfilesOption = False,
) -> None:
    """Start a Prefect server and a worker, and register a deployment for this folder; Ctrl-C stops both."""
    from tokmill.flows.run.machine import store_url, writable_store
    from tokmill.flows.server import serving

    require_prefect_home()
    console = messages()

    def announce(line: str) -> None:
        console.print(visible(line), markup=False, soft_wrap=True)

    serving.up(
        writable_store(store_url(store)).root,
        serving.Address(host, port, allow_host or []),
        any_profile=allow_profiles,
        announce=announce,
    )


@app.command(
    rich_help_panel="Work",
    epilog=examples(
        "PREFECT_API_URL=http://prefect.example.org/api tokmill deploy --store /data/store",
        "tokmill deploy --store s3://team/store --pool kubernetes",
    ),
)
def deploy(
    store: StoreOption = None,
    pool: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="An existing work pool, e.g. of Docker or Kubernetes; by default one of processes.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Register deployments for this folder's profiles at the configured Prefect server."""
    from tokmill.flows.figures import counted

    prepare_terminal_run()
    from tokmill.flows.deploying.registering import register
    from tokmill.flows.server.prefect_server import require_configured

    served = _served(store, pool)
    api = require_configured("deploy")
    problems: list[str] = []
    names: list[str] = []
    for kind, line in register(served, with_store=True):
        (names if kind == "registered" else problems).append(line)
    if as_json:
        print_json({"api": api, "pool": served.work_pool, "deployments": names, "notes": problems})
        return
    for line in problems:
        say(line)
    for name in names:
        say(f"  {name}")
    say(f"{api}: {counted(len(names), 'deployment')}, run by workers of the pool {served.work_pool}")
    if pool is None:
        say(f"\nstart a worker:\n  {_worker(served)}")


@app.command(
    rich_help_panel="Work",
    epilog=examples(
        "PREFECT_API_URL=http://prefect.example.org/api tokmill work --store /data/store",
        "tokmill work --pool tokmill-corpora-3f2a91 --queue night --limit 1",
    ),
)
def work(
    store: StoreOption = None,
    pool: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A work pool; by default that of this folder and store."),
    ] = None,
    queue: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only runs of this queue of the pool; may be given several times."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Runs at once on this machine; by default all that are due.")
    ] = None,
    allow_profiles: AllowProfilesOption = False,
) -> None:
    """Take runs from the configured Prefect server, in this folder; Ctrl-C stops it and what it runs."""
    prepare(PRIVATE)
    from tokmill.flows.profile.served import SERVED
    from tokmill.flows.server.prefect_server import require_configured, require_pool

    served = _served(store, pool)
    api = require_configured("work")
    require_pool(served.work_pool)
    if not allow_profiles:
        os.environ[SERVED] = str(served.folder)
    asked = ["--pool", served.work_pool, *(part for name in queue or () for part in ("--work-queue", name))]
    if limit is not None:
        asked += ["--limit", str(limit)]
    profiles = "any folder" if allow_profiles else str(served.folder)
    say(f"work: {api} · pool {served.work_pool} · profiles of {profiles} · Ctrl-C stops it")
    sys.stdout.flush()
    module = ["-m", "tokmill.flows.server.worker", str(served.store), "worker", "start"]
    # in this process's place: whoever started this command signals the worker itself
    os.execv(sys.executable, [sys.executable, *module, *asked])  # noqa: S606 - ourselves, and no shell


def _served(store: str | None, pool: str | None) -> "ServedFolder":
    """Return this folder with its store."""
    from tokmill.flows.run.machine import open_store, store_url
    from tokmill.flows.server.served_folder import ServedFolder

    location = store_url(store)
    return ServedFolder.of(Path.cwd(), location if "://" in location else open_store(location).root, pool)


def _worker(served: "ServedFolder") -> str:
    """Return the command that starts a worker for a folder's pool."""
    return f"cd {shlex.quote(str(served.folder))} && tokmill work --store {shlex.quote(str(served.store))}"
