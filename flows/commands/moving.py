"""`tokmill push` and `tokmill pull`: copy artifacts, runs and aliases between stores."""

from typing import TYPE_CHECKING, Annotated

import typer

from tokmill.flows.cli.app import FAILED, app, examples
from tokmill.flows.cli.options import JsonOption, StoreOption
from tokmill.flows.cli.output import messages, print_json, say
from tokmill.flows.figures import size

if TYPE_CHECKING:
    from tokmill.tasks.store import Store
    from tokmill.tasks.store.push import Moved

OtherArgument = Annotated[str, typer.Argument(metavar="STORE", help="The other store: a folder or a URL.")]
SubjectsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RUN|ARTIFACT]...",
        help="What to copy, with all that it was made from; everything if nothing is named.",
    ),
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only say what would be copied, in bytes.")]


@app.command(
    rich_help_panel="Store",
    epilog=examples(
        "tokmill push s3://bucket/team --dry-run",
        "tokmill push s3://bucket/team latest",
        "tokmill push /backup/store tokenizer/quickstart@prod",
    ),
)
def push(
    other: OtherArgument,
    subjects: SubjectsArgument = None,
    dry_run: DryRunOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy artifacts with their lineage, runs and aliases into another store, checked as they arrive."""
    from tokmill.flows.cli.lookup import existing_store
    from tokmill.flows.run.machine import writable_store

    target = _other(other) if dry_run else writable_store(other)
    _move(existing_store(store), target, subjects or [], dry_run=dry_run, as_json=as_json)


@app.command(
    rich_help_panel="Store",
    epilog=examples(
        "tokmill pull s3://bucket/team packed/quickstart@v1", "tokmill pull /backup/store --dry-run"
    ),
)
def pull(
    other: OtherArgument,
    subjects: SubjectsArgument = None,
    dry_run: DryRunOption = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy artifacts with their lineage, runs and aliases from another store into this one, likewise."""
    from tokmill.flows.cli.lookup import existing_store
    from tokmill.flows.run.machine import store_url, writable_store

    location = store_url(store)
    target = _other(location) if dry_run else writable_store(location)
    _move(existing_store(other), target, subjects or [], dry_run=dry_run, as_json=as_json)


def _other(location: str) -> "Store":
    from tokmill.flows.run.machine import open_store

    return open_store(location)


def _move(source: "Store", target: "Store", subjects: list[str], *, dry_run: bool, as_json: bool) -> None:
    from tokmill.flows.reproduce.known import cargo_of
    from tokmill.tasks.store.push import move

    source.refresh()
    target.refresh()
    told = messages()
    moved = move(source, target, cargo_of(source, subjects), told.print, dry_run=dry_run)
    if as_json:
        print_json(_document(moved, dry_run))
    else:
        _show(moved, target.location, dry_run)
    if moved.of("other content"):
        raise typer.Exit(FAILED)


def _document(moved: "Moved", dry_run: bool) -> dict[str, object]:
    artifacts = [
        {
            "artifact": record.reference,
            "fingerprint": record.fingerprint,
            "num_bytes": record.num_bytes,
            "done": done,
        }
        for record, done in moved.artifacts
    ]
    return {
        "dry_run": dry_run,
        "num_bytes": moved.num_bytes,
        "artifacts": artifacts,
        "relabelled": dict(moved.relabelled),
        "damaged": [str(problem) for problem in moved.damaged],
        "restored": [left.record.reference for left in moved.restored],
        "runs": moved.runs,
        "aliases": moved.aliases,
        "kept": moved.kept,
    }


def _show(moved: "Moved", location: str, dry_run: bool) -> None:
    would = "would be copied" if dry_run else "copied"
    there = len(moved.of("there"))
    say(
        f"{len(moved.of('copy')):,} artifacts ({size(moved.num_bytes)}) {would} to {location}; "
        f"{there:,} were there"
    )
    for before, after in moved.relabelled:
        say(f"{before} is {after} there: its label was taken")
    for problem in moved.damaged:
        say(f"{problem} there; it {'would be' if dry_run else 'was'} set aside, and copied again")
    for left in moved.restored:
        again = "would be" if dry_run else "is"
        say(f"{left.record.reference} {again} there again; it had been {left.words}")
    for alias in moved.aliases:
        say(f"{alias} {'would point' if dry_run else 'points'} to the same there")
    for alias in moved.kept:
        say(f"{alias} stays as it is there, for another artifact; name it to move it")
    if moved.runs:
        say(f"runs: {len(moved.runs):,}")
    for record in moved.of("removed"):
        say(f"{record.reference} was removed here; its record comes along")
    for record in moved.of("other content"):
        say(
            f"{record.reference} is there with other content, and stays: `tokmill reproduce` says which "
            "comes out again"
        )
