"""`tokmill up`, `doctor`, `server deploy` and `work`: a Prefect server, and what all of it needs."""

import os
import shlex
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from tokmill.flows.cli.app import Answer, app, command, in_server
from tokmill.flows.cli.options import StoreOption
from tokmill.flows.cli.output import Part, messages, say, visible
from tokmill.flows.figures import counted
from tokmill.flows.prefect.settings import PRIVATE, prepare, prepare_terminal_run, require_prefect_home

if TYPE_CHECKING:
    from tokmill.flows.doctor import report
    from tokmill.flows.profile.served import ServedFolder

AllowProfilesOption = Annotated[
    bool, Option("--allow-profiles", help="Let runs name profiles outside this folder.")
]


@command(app, "tokmill up", "tokmill up --port 4300 --store /data/store")
def up(
    store: StoreOption = None,
    host: str = Option("127.0.0.1", help="Address to listen on."),
    port: int = Option(4200, min=1, max=65535, help="TCP port to listen on."),
    allow_host: list[str] | None = Option(None, metavar="NAME", help="Another server name; repeatable."),
    allow_profiles: AllowProfilesOption = False,
) -> None:
    """Serve this folder: a Prefect server, a worker and a deployment.

    Ctrl-C stops them.
    """
    from tokmill.flows.prefect.settings import Address
    from tokmill.flows.prefect.up import up as serve
    from tokmill.flows.run.machine import store_url, writable_store

    require_prefect_home()
    console = messages()
    serve(
        writable_store(store_url(store)).root,
        Address(host, port, allow_host or []),
        any_profile=allow_profiles,
        announce=lambda line: console.print(visible(line), markup=False, soft_wrap=True),
    )


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
    document = {"findings": findings, **{part.title: part.figures for part in parts}}
    return Answer(document, _report(parts), failed=any(one["fails"] for one in findings))


def _report(parts: "Sequence[report.Part]") -> Iterator[Part]:
    for part in parts:
        yield part.title
        yield {f"  {name}": text for name, text in part.facts.items()}
    findings = [finding for part in parts for finding in part.findings]
    for finding in findings:
        yield f"{'fails' if finding.fails else 'note '}  {finding.text}"
    yield counted(sum(one.fails for one in findings), "failure") if findings else "no problems"


@command(
    in_server,
    "PREFECT_API_URL=http://prefect.example.org/api tokmill server deploy --store /data/store",
    "tokmill server deploy --store s3://team/store --pool kubernetes",
)
def deploy(
    store: StoreOption = None,
    pool: str | None = Option(None, metavar="NAME", help="A work pool, e.g. Kubernetes; default: processes."),
) -> Answer:
    """Register this folder's profiles at a Prefect server."""
    prepare_terminal_run()
    from tokmill.flows.prefect.connection import require_configured
    from tokmill.flows.prefect.registration import register

    served = _served(store, pool)
    api = require_configured("deploy")
    problems: list[str] = []
    names = register(served, problems.append, store=str(served.store))
    parts = [*problems, *(f"  {name}" for name in names)]
    parts.append(f"{api}: {counted(len(names), 'deployment')}, run by workers of the pool {served.work_pool}")
    if pool is None:
        folder, at = shlex.quote(str(served.folder)), shlex.quote(str(served.store))
        parts.append(f"\nstart a worker:\n  cd {folder} && tokmill server work --store {at}")
    return Answer({"api": api, "pool": served.work_pool, "deployments": names, "notes": problems}, parts)


@command(
    in_server,
    "PREFECT_API_URL=http://prefect.example.org/api tokmill server work --store /data/store",
    "tokmill server work --pool tokmill-corpora-3f2a91 --queue night --limit 1",
)
def work(
    store: StoreOption = None,
    pool: str | None = Option(None, metavar="NAME", help="A work pool; default: this folder's."),
    queue: list[str] | None = Option(None, metavar="NAME", help="Only runs of this queue; repeatable."),
    limit: int | None = Option(None, min=1, help="Most runs at once; default: all that are due."),
    allow_profiles: AllowProfilesOption = False,
) -> None:
    """Take runs from a Prefect server, in this folder.

    Ctrl-C stops it and what it runs.
    """
    prepare(PRIVATE)
    from tokmill.flows.prefect.connection import require_configured, require_pool
    from tokmill.flows.profile.served import SERVED

    served = _served(store, pool)
    api = require_configured("work")
    require_pool(served.work_pool)
    if not allow_profiles:
        os.environ[SERVED] = str(served.folder)
    options = ["--pool", served.work_pool, *(part for name in queue or () for part in ("--work-queue", name))]
    if limit is not None:
        options += ["--limit", str(limit)]
    profiles = "any folder" if allow_profiles else str(served.folder)
    say(f"work: {api} · pool {served.work_pool} · profiles of {profiles} · Ctrl-C stops it")
    sys.stdout.flush()
    module = ["-m", "tokmill.flows.prefect.worker", str(served.store), "worker", "start"]
    # in this process's place: whoever started this command signals the worker itself
    os.execv(sys.executable, [sys.executable, *module, *options])  # noqa: S606 - ourselves, and no shell


def _served(store: str | None, pool: str | None) -> "ServedFolder":
    """Return this folder with its store."""
    from tokmill.flows.profile.served import ServedFolder
    from tokmill.flows.run.machine import open_store, store_url

    location = store_url(store)
    return ServedFolder.of(Path.cwd(), location if "://" in location else open_store(location).root, pool)
