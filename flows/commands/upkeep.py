"""The commands that keep a store in order: remove artifacts, collect garbage, and say what takes the space.

What goes beside what was named is said first, with its bytes, and goes with `--apply`. Nothing asks.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

from tokmill.flows.cli.app import app, examples
from tokmill.flows.cli.options import ArtifactArgument, JsonOption, StoreOption
from tokmill.flows.cli.output import draw, messages, print_json, say, table
from tokmill.flows.figures import counted, size

if TYPE_CHECKING:
    from tokmill.flows.upkeep.checking import Usage
    from tokmill.flows.upkeep.collecting import Collected
    from tokmill.tasks.store import Record, Store

_LEAST_WHY = 20

OlderThanOption = Annotated[
    float, typer.Option("--older-than", metavar="DAYS", min=0, help="Keep what is younger, and its runs.")
]
KeepOption = Annotated[
    int,
    typer.Option(
        "--keep",
        metavar="N",
        min=0,
        help="Keep the last N versions of each name, and the last N completed runs of each profile.",
    ),
]
_Part: TypeAlias = tuple[str, Sequence[Sequence[str]], Sequence[str]]
"""A part of what is shown: its heading, its rows, and the headings of their further columns."""


@app.command(
    rich_help_panel="Store",
    epilog=examples(
        "tokmill remove packed/quickstart@v1",
        "tokmill remove corpus/quickstart --with-dependents",
        "tokmill remove corpus/quickstart --with-dependents --apply",
        'tokmill remove packed/quickstart@v1 --reason "case 17: asked for by the author"',
    ),
)
def remove(
    artifact: ArtifactArgument,
    with_dependents: Annotated[
        bool,
        typer.Option("--with-dependents", help="Say what would go with all artifacts made from it."),
    ] = False,
    apply: Annotated[
        bool, typer.Option("--apply", help="With --with-dependents: remove all of that.")
    ] = False,
    reason: Annotated[
        str,
        typer.Option(
            "--reason", metavar="TEXT", help="Why; kept with the record. By default that of the takedown."
        ),
    ] = "",
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete an artifact permanently; its record stays. Refused while other artifacts were made from it."""
    from tokmill.flows.cli.lookup import existing_store, find_artifact

    opened = existing_store(store)
    ref = find_artifact(opened, artifact)
    applied = apply or not with_dependents
    if applied:
        gone = opened.remove(ref, with_dependents=with_dependents, reason=reason.strip())
    else:
        gone = opened.find_removal(ref)
    if as_json:
        print_json(_removal_json(opened, gone, applied=applied))
    else:
        _show_removal(opened, gone, applied=applied)


def _removal_json(store: "Store", gone: "Sequence[Record]", *, applied: bool) -> dict[str, object]:
    return {
        "store": store.location,
        "applied": applied,
        "num_bytes": sum(each.num_bytes for each in gone),
        "removed": [
            {"artifact": each.reference, "fingerprint": each.fingerprint, "num_bytes": each.num_bytes}
            for each in gone
        ],
    }


def _show_removal(store: "Store", gone: "Sequence[Record]", *, applied: bool) -> None:
    from tokmill.flows.upkeep.collecting import summary_of

    head = "removed" if applied else "would be removed"
    rows = [[each.reference, f"{len(each.files):,}", size(each.num_bytes)] for each in gone]
    draw(table((head, "files", "size"), rows, right=("files", "size")))
    num_bytes = sum(each.num_bytes for each in gone)
    say(f"\n{summary_of(store.location, counted(len(gone), 'artifact'), num_bytes, applied=applied)}")
    if not applied:
        _say_how()


def _say_how() -> None:
    messages().print("[dim]--apply removes it; records and labels stay[/dim]")


@app.command(
    rich_help_panel="Store",
    epilog=examples("tokmill gc", "tokmill gc --apply", "tokmill gc --why tokenizer/quickstart@v1"),
)
def gc(
    apply: Annotated[
        bool, typer.Option("--apply", help="Remove it; without this, only say what would be removed.")
    ] = False,
    older_than: OlderThanOption = 14.0,
    keep: KeepOption = 1,
    each: Annotated[
        bool, typer.Option("--each", help="List every artifact, and why it goes or is kept.")
    ] = False,
    why: Annotated[
        str | None, typer.Option("--why", metavar="ARTIFACT", help="Only say why this artifact is kept.")
    ] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Find, and remove with --apply, artifacts without an alias that no recent or running work needs."""
    from tokmill.flows.cli.lookup import existing_store
    from tokmill.flows.upkeep.collecting import collect_garbage

    opened = existing_store(store)
    if why is not None:
        _explain(opened, why, older_than, keep, as_json=as_json)
        return
    told = messages().print if apply and not as_json else None
    done = collect_garbage(opened, older_than_days=older_than, keep=keep, apply=apply, report=told)
    if as_json:
        print_json(done.to_json(each=each))
    else:
        _show(done, each=each)


@app.command(
    rich_help_panel="Store", epilog=examples("tokmill du", "tokmill du --by profile", "tokmill du --json")
)
def du(
    by: Annotated[
        Literal["kind", "profile", "name"], typer.Option("--by", help="What to add up by.")
    ] = "kind",
    older_than: OlderThanOption = 14.0,
    keep: KeepOption = 1,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what takes the space in the store, and how much of it `tokmill gc` would free."""
    from tokmill.flows.cli.lookup import existing_store
    from tokmill.flows.upkeep.checking import usage_of
    from tokmill.tasks.store.retention import Policy

    usage = usage_of(existing_store(store), by, Policy(older_than, keep))
    if as_json:
        shares = {group: share._asdict() for group, share in usage.shares.items()}
        print_json({by: shares, "total": usage.total._asdict(), "others": usage.others})
    else:
        _show_usage(usage, by)


def _explain(store: "Store", artifact: str, older_than: float, keep: int, *, as_json: bool) -> None:
    from tokmill.flows.cli.lookup import find_artifact
    from tokmill.tasks.store.retention import Policy

    ref = find_artifact(store, artifact)
    garbage = store.find_garbage(Policy(older_than, keep))
    lines = garbage.plan.why(garbage.inventory, ref.fingerprint)
    if as_json:
        print_json({"artifact": artifact, "kept": bool(lines), "why": lines})
    elif lines:
        say("\n".join(lines))
    else:
        say(f"{artifact} would be removed: nothing that is kept needs it")


def _show(done: "Collected", *, each: bool) -> None:
    from tokmill.flows.upkeep.collecting import unused_means

    for head, rows, columns in _one_by_one(done) if each else _summed(done):
        if rows:
            draw(table((head, *columns), rows, right=("number", "size"), wrap=True, least=_LEAST_WHY))
            say("")
    say(done.summary)
    if any(reason.group == "unused" for reason in done.garbage.plan.gone.values()):
        messages().print(f"[dim]{unused_means(done.policy)}[/dim]")
    if done.removed and not done.applied:
        _say_how()


def _summed(done: "Collected") -> "Iterator[_Part]":
    from tokmill.flows.upkeep.collecting import COLUMNS

    yield done.head, [share.cells for share in done.goes], COLUMNS
    yield "kept", [share.cells for share in done.stays], COLUMNS


def _one_by_one(done: "Collected") -> "Iterator[_Part]":
    from tokmill.tasks.store.layout import printable
    from tokmill.tasks.store.retention import shown_age

    rows: dict[bool, list[list[str]]] = {True: [], False: []}
    for item, group, why in done.each():
        age = shown_age(done.garbage.plan.age(item))
        rows[group == "removed"].append([item.reference, size(item.num_bytes), age, why])
    others = [
        [printable(one.path.name), size(one.num_bytes), "", f"{one.what}: {one.why}"]
        for one in done.leftovers
    ]
    columns = ("size", "age", "why")
    yield done.head, [*rows[True], *others], columns
    yield "kept", rows[False], columns


def _show_usage(usage: "Usage", by: str) -> None:
    head = (by, "artifacts", "size", "shared", "gc frees")
    shares = {**usage.shares, "all artifacts": usage.total}
    rows = [
        [group, f"{one.number:,}", size(one.num_bytes), size(one.shared_bytes), size(one.free_bytes)]
        for group, one in shares.items()
    ]
    rows += [[what, "", size(num_bytes), "", ""] for what, num_bytes in usage.others.items()]
    draw(table(head, rows, right=head[1:]))
