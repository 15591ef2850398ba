"""`tokmill doctor`: whether this installation, machine, store and server are fit for work."""

from typing import TYPE_CHECKING, Annotated

import typer

from tokmill.flows.cli.app import FAILED, app, examples
from tokmill.flows.cli.options import JsonOption, StoreOption
from tokmill.flows.cli.output import draw, pairs, print_json, say

if TYPE_CHECKING:
    from tokmill.flows.doctor.report import Part


@app.command(
    rich_help_panel="Work",
    epilog=examples(
        "tokmill doctor",
        "tokmill doctor --store s3://team/store",
        "PREFECT_API_URL=http://prefect.example.org/api tokmill doctor --no-speed",
        "tokmill doctor --free",
        "tokmill doctor --json",
    ),
)
def doctor(
    store: StoreOption = None,
    speed: Annotated[
        bool, typer.Option("--speed/--no-speed", help="Measure the kernels for five seconds.")
    ] = True,
    free: Annotated[
        bool, typer.Option("--free", help="End dead runs at the server, and remove its dead workers.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Examine versions, machine, speed, store and Prefect server; exit code 1 if something does not work."""
    from tokmill.flows.doctor.report import look_at_installation, look_at_server
    from tokmill.flows.doctor.stores import look_at_machine, look_at_store
    from tokmill.flows.run.machine import store_url

    location = store_url(store)
    parts = [look_at_installation(), look_at_machine(), look_at_store(location)]
    if speed:
        from tokmill.flows.doctor.speed import look_at_speed

        parts.append(look_at_speed())
    parts.append(look_at_server(location, free=free))
    failing = sum(finding.fails for part in parts for finding in part.findings)
    if as_json:
        _print_json(parts)
    else:
        _print(parts, failing)
    if failing:
        raise typer.Exit(FAILED)


def _print_json(parts: "list[Part]") -> None:
    findings = [
        {"part": part.title, "text": one.text, "what": one.what, "fix": one.fix, "fails": one.fails}
        for part in parts
        for one in part.findings
    ]
    print_json({"findings": findings, **{part.title: part.to_json() for part in parts}})


def _print(parts: "list[Part]", failing: int) -> None:
    from tokmill.flows.figures import counted

    for part in parts:
        say(part.title)
        draw(pairs({f"  {name}": text for name, text in part.facts.items()}))
    findings = [finding for part in parts for finding in part.findings]
    for finding in findings:
        say(f"{'fails' if finding.fails else 'note '}  {finding.text}")
    say(counted(failing, "failure") if findings else "no problems")
