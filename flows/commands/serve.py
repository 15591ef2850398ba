"""`tokmill up` and `tokmill doctor`: starts a Prefect server on this machine, and diagnoses one."""

from typing import Annotated

import typer

from tokmill.flows.cli.app import FAILED, app, examples
from tokmill.flows.cli.options import JsonOption, StoreOption
from tokmill.flows.cli.output import messages, print_json, say
from tokmill.flows.server.settings import prepare_terminal_run, require_prefect_home


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
    allow_profiles: Annotated[
        bool, typer.Option("--allow-profiles", help="Let runs name profiles outside this folder.")
    ] = False,
) -> None:
    """Start a Prefect server and a worker, and register a deployment for this folder; Ctrl-C stops both."""
    from tokmill.flows.run.machine import store_url, writable_store
    from tokmill.flows.server import serving

    require_prefect_home()
    console = messages()

    def announce(line: str) -> None:
        console.print(line, markup=False, soft_wrap=True)

    serving.up(
        writable_store(store_url(store)).root,
        serving.Address(host, port, allow_host or []),
        any_profile=allow_profiles,
        announce=announce,
    )


@app.command(
    rich_help_panel="Work",
    epilog=examples(
        "tokmill doctor",
        "PREFECT_API_URL=http://prefect.example.org/api tokmill doctor",
        "tokmill doctor --json",
    ),
)
def doctor(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Diagnose a Prefect server: scheduled runs, workers, access, packages; exit code 1 on a failure."""
    from tokmill.flows.figures import counted
    from tokmill.flows.run.machine import open_store, store_url
    from tokmill.flows.server.findings import look_at_faults, look_at_packages
    from tokmill.flows.server.store_lock import last_served

    prepare_terminal_run()
    logs = open_store(store_url(store)).root / ".up"
    serves = last_served(logs)
    from prefect.settings import PREFECT_API_URL

    from tokmill.flows.server.doctor import look_at_doors, look_at_runs

    api = PREFECT_API_URL.value() or f"{serves.url if serves else 'http://127.0.0.1:4200'}/api"
    own = look_at_faults(logs) if serves and api == f"{serves.url}/api" else []
    findings = [*look_at_packages(), *own, *look_at_runs(api), *look_at_doors(api)]
    num_failing = sum(finding.fails for finding in findings)
    if as_json:
        print_json({"api": api, "findings": [{"text": each.text, "fails": each.fails} for each in findings]})
    else:
        for finding in findings:
            say(f"{'fails' if finding.fails else 'note '}  {finding.text}")
        say(f"{api}: {counted(num_failing, 'failure')}" if findings else f"{api}: no problems")
    if num_failing:
        raise typer.Exit(FAILED)
