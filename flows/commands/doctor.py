"""`tokmill doctor`: whether this installation, machine, store and server are fit for work."""

import typer
from typer import Option

from tokmill.flows.cli.app import FAILED, app, command
from tokmill.flows.cli.options import JsonOption, StoreOption
from tokmill.flows.cli.output import draw, pairs, print_json, say
from tokmill.flows.figures import counted


@command(
    app,
    "tokmill doctor",
    "tokmill doctor --store s3://team/store",
    "PREFECT_API_URL=http://prefect.example.org/api tokmill doctor --no-speed",
    "tokmill doctor --free",
    "tokmill doctor --json",
)
def doctor(
    store: StoreOption = None,
    speed: bool = Option(True, "--speed/--no-speed", help="Measure the kernels for five seconds."),
    free: bool = Option(False, "--free", help="End dead runs and remove dead workers there."),
    as_json: JsonOption = False,
) -> None:
    """Check versions, machine, speed, store and Prefect server.

    The exit code is 1 if something does not work.
    """
    from tokmill.flows.doctor.report import look_at_installation
    from tokmill.flows.doctor.stores import look_at_machine, look_at_store
    from tokmill.flows.prefect.up import look_at_server
    from tokmill.flows.run.machine import store_url

    location = store_url(store)
    parts = [look_at_installation(), look_at_machine(), look_at_store(location)]
    if speed:
        from tokmill.flows.doctor.speed import look_at_speed

        parts.append(look_at_speed())
    parts.append(look_at_server(location, free=free))
    findings = [(part, finding) for part in parts for finding in part.findings]
    failing = sum(finding.fails for _, finding in findings)
    if as_json:
        listed = [
            {"part": part.title, "text": one.text, "what": one.what, "fix": one.fix, "fails": one.fails}
            for part, one in findings
        ]
        print_json({"findings": listed, **{part.title: part.figures for part in parts}})
    else:
        for part in parts:
            say(part.title)
            draw(pairs({f"  {name}": text for name, text in part.facts.items()}))
        for _, finding in findings:
            say(f"{'fails' if finding.fails else 'note '}  {finding.text}")
        say(counted(failing, "failure") if findings else "no problems")
    if failing:
        raise typer.Exit(FAILED)
