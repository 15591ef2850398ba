"""`tokmill store`: check, tag, remove, collect garbage, show sizes, push, pull and reindex.

What would go besides the named artifact is listed first, with its bytes, and goes with `--apply`.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from tokmill.flows.cli.app import Answer, command, in_store
from tokmill.flows.cli.options import (
    DEFAULT,
    ArtifactArgument,
    ExistingStore,
    StoreOption,
    existing_store,
    find_artifact,
)
from tokmill.flows.cli.output import Aside, Part, Table, called, messages, shown_store
from tokmill.flows.figures import counted, shown, size

if TYPE_CHECKING:
    from tokmill.flows.upkeep.collecting import Collected
    from tokmill.tasks.store import Record, Store
    from tokmill.tasks.store.push import Moved

_COUNTS = "SELECT (SELECT count(*) FROM artifacts) AS artifacts, (SELECT count(*) FROM runs) AS runs"
_HOW = "--apply removes it; records and labels stay"

OlderThanOption = Annotated[
    float, Option("--older-than", metavar="DAYS", min=0, help="Keep what is younger, and its runs.")
]
KeepOption = Annotated[
    int,
    Option("--keep", metavar="N", min=0, help="Keep the last N versions of a name and runs of a profile."),
]
OtherArgument = Annotated[str, Argument(metavar="STORE", help="The other store: a folder or a URL.")]
SubjectsArgument = Annotated[
    list[str] | None,
    Argument(metavar="[RUN|ARTIFACT]...", help="What to copy, with its lineage; default: everything."),
]
DryRunOption = Annotated[bool, Option("--dry-run", help="Only say what would be copied, in bytes.")]


@command(
    in_store,
    "tokmill store verify",
    "tokmill store verify tokenizer/quickstart packed/quickstart",
    "tokmill store verify --sizes",
)
def verify(
    artifacts: list[str] | None = Argument(None, metavar="ARTIFACT", help="What to check; default: all."),
    deep: bool = Option(True, "--deep/--sizes", help="Read every byte, or compare sizes of files only."),
    store: ExistingStore = DEFAULT,
) -> Answer:
    """Check artifacts against their records; exit code 1 if any is wrong.

    Labels, runs and removals are read, too, and the catalog must list no artifact that the store lacks.
    """
    refs = [find_artifact(store, artifact) for artifact in artifacts] if artifacts else None
    problems = store.verify(refs, full=deep)
    num_checked = len(refs) if refs is not None else sum(1 for _ in store.layout.artifacts())
    listed = [{"artifact": p.artifact, "path": p.path, "message": p.message} for p in problems]
    found = counted(len(problems), "problem") if problems else "no problems"
    return Answer(
        {"num_checked": num_checked, "problems": listed},
        [*map(str, problems), f"{counted(num_checked, 'artifact')} checked, {found}"],
        failed=bool(problems),
    )


@command(
    in_store, "tokmill store gc", "tokmill store gc --apply", "tokmill store gc --why tokenizer/quickstart@v1"
)
def gc(
    apply: bool = Option(False, "--apply", help="Remove the garbage; by default it is only listed."),
    older_than: OlderThanOption = 14.0,
    keep: KeepOption = 1,
    each: bool = Option(False, "--each", help="List every artifact, and why it goes or is kept."),
    why: str | None = Option(None, metavar="ARTIFACT", help="Only say why this artifact is kept."),
    store: ExistingStore = DEFAULT,
) -> Answer:
    """Find garbage, and remove it with --apply.

    Garbage is artifacts without an alias that no recent or running work needs.
    """
    from tokmill.flows.upkeep.collecting import collect_garbage
    from tokmill.tasks.store.retention import Policy

    if why is not None:
        ref = find_artifact(store, why)
        garbage = store.find_garbage(Policy(older_than, keep))
        lines = garbage.plan.why(ref.fingerprint)
        return Answer(
            {"artifact": why, "kept": bool(lines), "why": lines},
            lines or [f"{why} would be removed: nothing that is kept needs it"],
        )
    report = messages().print if apply else None
    done = collect_garbage(store, older_than_days=older_than, keep=keep, apply=apply, report=report)
    return Answer(done.to_json(each=each), _collected(done, each=each))


def _collected(done: "Collected", *, each: bool) -> Iterator[Part]:
    """Yield tables of what goes and what stays, by reason, or one by one."""
    from tokmill.flows.upkeep.collecting import COLUMNS, unused_means
    from tokmill.tasks.store.layout import printable
    from tokmill.tasks.store.retention import shown_age

    columns = ("size", "age", "why") if each else COLUMNS
    goes, stays = [one.cells for one in done.goes], [one.cells for one in done.stays]
    if each:
        goes, stays = [], []
        for item, group, why in done.each():
            age = shown_age(done.garbage.plan.age(item))
            (goes if group == "removed" else stays).append([item.reference, size(item.num_bytes), age, why])
        for one in done.leftovers:
            goes.append([printable(one.path.name), size(one.num_bytes), "", f"{one.what}: {one.why}"])
    for head, rows in ((done.head, goes), ("kept", stays)):
        if rows:
            yield Table((head, *columns), rows, right=("number", "size"), wrap=True)
            yield ""
    yield done.summary
    if any(reason.group == "unused" for reason in done.garbage.plan.gone.values()):
        yield Aside(unused_means(done.policy))
    if done.removed and not done.applied:
        yield Aside(_HOW)


@command(
    in_store,
    "tokmill store remove packed/quickstart@v1",
    "tokmill store remove corpus/quickstart --with-dependents",
    "tokmill store remove corpus/quickstart --with-dependents --apply",
    'tokmill store remove packed/quickstart@v1 --reason "case 17: asked for by the author"',
)
def remove(
    artifact: ArtifactArgument,
    with_dependents: bool = Option(False, "--with-dependents", help="Also what was made from it."),
    apply: bool = Option(False, "--apply", help="With --with-dependents: remove all of that."),
    reason: str = Option("", metavar="TEXT", help="Kept with the record; default: the takedown's."),
    store: ExistingStore = DEFAULT,
) -> Answer:
    """Delete an artifact permanently; its record stays.

    Refused while other artifacts were made from it.
    """
    from tokmill.flows.upkeep.collecting import summary_of

    ref = find_artifact(store, artifact)
    applied = apply or not with_dependents
    if applied:
        gone = store.remove(ref, with_dependents=with_dependents, reason=reason.strip())
    else:
        gone = store.find_removal(ref)
    num_bytes = sum(each.num_bytes for each in gone)
    document = {
        "store": store.location,
        "applied": applied,
        "num_bytes": num_bytes,
        "removed": [_entry(each) for each in gone],
    }
    rows = [(each.reference, len(each.files), size(each.num_bytes)) for each in gone]
    head = ("removed" if applied else "would be removed", "files", "size")
    summary = summary_of(store.location, counted(len(gone), "artifact"), num_bytes, applied=applied)
    parts: list[Part] = [
        Table(head, rows, right=head[1:]),
        f"\n{summary}",
        *([] if applied else [Aside(_HOW)]),
    ]
    return Answer(document, parts)


def _entry(record: "Record") -> dict[str, object]:
    return {"artifact": record.reference, "fingerprint": record.fingerprint, "num_bytes": record.num_bytes}


@command(in_store, "tokmill store du", "tokmill store du --by profile", "tokmill store du --json")
def du(
    by: Literal["kind", "profile", "name"] = Option("kind", help="What to add up by."),
    older_than: OlderThanOption = 14.0,
    keep: KeepOption = 1,
    store: ExistingStore = DEFAULT,
) -> Answer:
    """Show what takes the space, and how much of it `gc` would free."""
    from tokmill.flows.upkeep.checking import usage_of
    from tokmill.tasks.store.retention import Policy

    usage = usage_of(store, by, Policy(older_than, keep))
    rows: list[tuple[str | int | None, ...]] = [
        (group, one.number, size(one.num_bytes), size(one.shared_bytes), size(one.free_bytes))
        for group, one in {**usage.shares, "all artifacts": usage.total}.items()
    ]
    rows += [(what, None, size(num_bytes), "", "") for what, num_bytes in usage.others.items()]
    head = (by, "artifacts", "size", "shared", "gc frees")
    shares = {group: share._asdict() for group, share in usage.shares.items()}
    return Answer(
        {by: shares, "total": usage.total._asdict(), "others": usage.others},
        [Table(head, rows, right=head[1:])],
    )


@command(in_store, "tokmill store tag tokenizer/quickstart@v2 prod", "tokmill show tokenizer/quickstart@prod")
def tag(
    artifact: ArtifactArgument,
    alias: str = Argument(..., help="Any name, e.g. prod."),
    store: ExistingStore = DEFAULT,
) -> str:
    """Point an alias at an artifact, for references like kind/name@alias."""
    ref = find_artifact(store, artifact)
    store.tag(ref, alias)
    return f"{ref.kind}/{ref.name}@{alias} is now {called(store, ref)}"


@command(
    in_store,
    "tokmill store push s3://bucket/team --dry-run",
    "tokmill store push s3://bucket/team latest",
    "tokmill store push /backup/store tokenizer/quickstart@prod",
)
def push(
    other: OtherArgument,
    subjects: SubjectsArgument = None,
    dry_run: DryRunOption = False,
    store: ExistingStore = DEFAULT,
) -> Answer:
    """Copy artifacts with their lineage into another store.

    Runs and aliases, too; everything is checked on arrival.
    """
    return _move(store, other, subjects or [], dry_run=dry_run)


@command(
    in_store,
    "tokmill store pull s3://bucket/team packed/quickstart@v1",
    "tokmill store pull /backup/store --dry-run",
)
def pull(
    other: OtherArgument,
    subjects: SubjectsArgument = None,
    dry_run: DryRunOption = False,
    store: StoreOption = None,
) -> Answer:
    """Copy artifacts with their lineage from another store.

    Runs and aliases, too; everything is checked on arrival.
    """
    from tokmill.flows.run.machine import store_url

    return _move(existing_store(other), store_url(store), subjects or [], dry_run=dry_run)


def _move(source: "Store", location: str, subjects: list[str], *, dry_run: bool) -> Answer:
    from tokmill.flows.reproduce.subject import cargo_of
    from tokmill.flows.run.machine import open_store, writable_store
    from tokmill.tasks.store.push import move

    target = open_store(location) if dry_run else writable_store(location)
    source.refresh()
    target.refresh()
    moved = move(source, target, cargo_of(source, subjects), messages().print, dry_run=dry_run)
    document = {
        "dry_run": dry_run,
        "num_bytes": moved.num_bytes,
        "artifacts": [{**_entry(record), "done": done} for record, done in moved.artifacts],
        "relabelled": dict(moved.relabelled),
        "damaged": [str(problem) for problem in moved.damaged],
        "restored": [removal.record.reference for removal in moved.restored],
        "runs": moved.runs,
        "aliases": moved.aliases,
        "kept": moved.kept,
    }
    return Answer(document, _moved(moved, target.location, dry_run), failed=bool(moved.of("other content")))


def _moved(moved: "Moved", location: str, dry_run: bool) -> Iterator[str]:
    words = (
        ("would be copied", "would be", "would be", "would point")
        if dry_run
        else ("copied", "was", "is", "points")
    )
    copied, was, is_, points = words
    number, there = len(moved.of("copy")), len(moved.of("there"))
    yield f"{number:,} artifacts ({size(moved.num_bytes)}) {copied} to {location}; {there:,} were there"
    for before, after in moved.relabelled:
        yield f"{before} is {after} there: its label was taken"
    for problem in moved.damaged:
        yield f"{problem} there; it {was} set aside, and copied again"
    for removal in moved.restored:
        yield f"{removal.record.reference} {is_} there again; it had been {removal.words}"
    for alias in moved.aliases:
        yield f"{alias} {points} to the same there"
    for alias in moved.kept:
        yield f"{alias} stays as it is there, for another artifact; name it to move it"
    if moved.runs:
        yield f"runs: {len(moved.runs):,}"
    for one in moved.of("removed"):
        yield f"{one.reference} was removed here; its record comes along"
    for one in moved.of("other content"):
        other = "`tokmill runs reproduce` says which comes out again"
        yield f"{one.reference} is there with other content, and stays: {other}"


@command(in_store, "tokmill store rebuild", "tokmill store rebuild --store /data/store")
def rebuild(store: ExistingStore = DEFAULT) -> Answer:
    """Rebuild the catalog from the records."""
    store.catalog.rebuild()
    counts = store.catalog.query(_COUNTS)[0]
    where = shown_store(store) if "://" in store.location else shown(store.catalog.path)
    return Answer(
        {"path": str(store.catalog.path), **counts},
        [f"{where}: {counts['artifacts']:,} artifacts, {counts['runs']:,} runs"],
    )
