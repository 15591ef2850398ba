"""`tokmill runs`: the runs of a store, listed, shown, tagged and annotated."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.text import Text

from tokmill.flows.cli.app import app, examples
from tokmill.flows.cli.options import JsonOption, StoreOption
from tokmill.flows.cli.output import draw, messages, print_json, say, visible
from tokmill.flows.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tokmill.tasks.store import Run, Store
    from tokmill.tasks.store.run_queries import Row

RunArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN",
        help="`latest`, an id or its first characters, a name, or an artifact for the run that made it.",
    ),
]
_SHOWN = 30
_NAMED = 8

runs = typer.Typer(
    invoke_without_command=True,
    help="List the runs of the store; show, tag and annotate one.",
    epilog=examples(
        "tokmill runs --experiment temperature",
        "tokmill runs --sort bytes_per_token --best 3",
        "tokmill runs show latest",
        "tokmill runs tag latest winner",
    ),
)
app.add_typer(runs, name="runs", rich_help_panel="Store")


@runs.callback()
def list_runs(
    context: typer.Context,
    state: Annotated[
        Literal["running", "completed", "failed", "crashed", "cancelled", "suspended"] | None,
        typer.Option("--state", help="Only runs in this state."),
    ] = None,
    profile: Annotated[str | None, typer.Option("--profile", help="Only runs of this profile.")] = None,
    experiment: Annotated[
        str | None, typer.Option("--experiment", help="Only runs of this experiment.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only runs with this tag.")] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="Only runs that began since then: 7d, 12h, 2026-11-24."),
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            "--sort",
            metavar="NAME",
            help="A metric or a parameter, e.g. audit.bytes_per_token; or started, seconds, name, profile, "
            "state, num_made, peak_bytes.",
        ),
    ] = "started",
    lowest: Annotated[
        bool | None, typer.Option("--lowest/--highest", help="Which values come first.")
    ] = None,
    best: Annotated[
        int | None, typer.Option("--best", metavar="N", min=1, help="Only the N best by --sort.")
    ] = None,
    show: Annotated[
        list[str] | None,
        typer.Option("--show", metavar="NAME", help="Also show this metric or parameter; repeatable."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=0, help="At most N runs; 0 for all.")
    ] = _SHOWN,
    attempts: Annotated[
        bool, typer.Option("--attempts", help="Every attempt of a run that was retried, not only the last.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs of the store, the latest first; failed ones, too."""
    if context.invoked_subcommand is not None:
        return
    from tokmill.flows.cli.lookup import columns_named, existing_store, moment_since, order_by
    from tokmill.flows.cli.run_sheet import runs_table
    from tokmill.tasks.store.run_queries import RunFilter
    from tokmill.tasks.store.run_queries import list_runs as listed

    if best is not None and sort == "started":
        raise UsageError("runs: --best needs --sort, e.g. --sort bytes_per_token --best 3")
    opened = existing_store(store)
    by, *shown = columns_named(opened, [sort, *(show or [])])
    where = RunFilter(state, profile, experiment, tag, moment_since(since), attempts)
    order, most = order_by(by, lowest=lowest, best=best is not None), best or limit
    rows = listed(opened.catalog, where, [by, *shown], order, most + 1 if most else None, complete=bool(best))
    found = rows[:most] if most else rows
    if as_json:
        print_json(found)
        return
    if order.lost and order.lost not in shown and any(row["values"][order.lost.label] for row in found):
        shown.append(order.lost)
    draw(runs_table(opened, found, [by, *shown], attempts=attempts))
    if not found:
        _say_why_none(listed(opened.catalog), experiment=experiment, tag=tag, profile=profile)
    if best is None and len(rows) > len(found):
        messages().print(f"[dim]more than {most} runs; --limit 0 lists all[/dim]")


def _say_why_none(every: "Sequence[Row]", **named: str | None) -> None:
    messages().print(Text(visible(_why_none(every, named)), style="dim"))


def _why_none(every: "Sequence[Row]", named: "Mapping[str, str | None]") -> str:
    """Say which names the runs have, if one that was asked for is none of them."""
    for what, asked in named.items():
        had = (row["tags"] if what == "tag" else [row[what]] for row in every)
        names = sorted({name for each in had for name in each if name})
        if asked is not None and asked not in names:
            more = ", …" if len(names) > _NAMED else ""
            known = f"runs have {', '.join(names[:_NAMED])}{more}" if names else "none has one"
            return f"no run has the {what} {asked!r}; {known}"
    return "no run is like that" if every else "the store has no runs"


@runs.command("show", epilog=examples("tokmill runs show latest", "tokmill runs show 5f0c2a --json"))
def show_run(
    run: RunArgument,
    parameters: Annotated[
        bool, typer.Option("--parameters", help="Every parameter, not only those that were set for the run.")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one run: who started it and how, what it began with, its stages, artifacts and metrics."""
    from tokmill.flows.cli.run_sheet import print_run_sheet, run_document

    opened, found = _found(run, store)
    if as_json:
        print_json(run_document(opened, found))
    else:
        print_run_sheet(opened, found, every_parameter=parameters)


@runs.command(
    "tag", epilog=examples("tokmill runs tag latest winner", "tokmill runs tag 5f0c2a bad --remove")
)
def tag_run(
    run: RunArgument,
    tags: Annotated[list[str], typer.Argument(metavar="TAG…", help="Any words, e.g. winner.")],
    remove: Annotated[bool, typer.Option("--remove", help="Take the tags away.")] = False,
    store: StoreOption = None,
) -> None:
    """Tag a run, by which it can be listed; tags change no artifact."""
    from tokmill.flows.cli.run_sheet import remarks_on, tags_now
    from tokmill.tasks.core.errors import StoreError
    from tokmill.tasks.store.runs import check_remark

    try:
        for tag in tags:
            check_remark("tag", tag)
    except StoreError as error:
        raise UsageError(str(error)) from error
    opened, found = _found(run, store)
    for tag in tags:
        opened.catalog.annotate(found.run_id, "untag" if remove else "tag", tag)
    now = tags_now(found, remarks_on(opened, found.run_id))
    say(f"{found.run_id} ({found.name or found.profile}) is tagged {', '.join(now) or 'with nothing'}")


@runs.command("note", epilog=examples("tokmill runs note latest 'the crawl of May was incomplete'"))
def note_run(
    run: RunArgument,
    text: Annotated[str, typer.Argument(help="What is to be remembered of the run.")],
    store: StoreOption = None,
) -> None:
    """Add a note to a run."""
    from tokmill.tasks.core.errors import StoreError
    from tokmill.tasks.store.runs import check_remark

    try:
        check_remark("note", text)
    except StoreError as error:
        raise UsageError(str(error)) from error
    opened, found = _found(run, store)
    opened.catalog.annotate(found.run_id, "note", text)
    say(f"{found.run_id} ({found.name or found.profile}) is noted")


def _found(run: str, store: str | None) -> "tuple[Store, Run]":
    from tokmill.flows.cli.lookup import existing_store, find_run

    opened = existing_store(store)
    return opened, find_run(opened, run)
