"""`tokmill doctor`: whether this installation, machine, store and server are fit for work."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from typer import Option

from tokmill.flows.cli.app import Answer, app, command
from tokmill.flows.cli.options import StoreOption
from tokmill.flows.cli.output import Part
from tokmill.flows.figures import counted

if TYPE_CHECKING:
    from tokmill.flows.doctor.report import Part as PartOfReport


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
) -> Answer:
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
    findings = [
        {"part": part.title, "text": one.text, "what": one.what, "fix": one.fix, "fails": one.fails}
        for part in parts
        for one in part.findings
    ]
    failed = any(one["fails"] for one in findings)
    return Answer(
        {"findings": findings, **{part.title: part.figures for part in parts}}, _shown(parts), failed
    )


def _shown(parts: "Sequence[PartOfReport]") -> Iterator[Part]:
    for part in parts:
        yield part.title
        yield {f"  {name}": text for name, text in part.facts.items()}
    findings = [finding for part in parts for finding in part.findings]
    for finding in findings:
        yield f"{'fails' if finding.fails else 'note '}  {finding.text}"
    yield counted(sum(one.fails for one in findings), "failure") if findings else "no problems"
