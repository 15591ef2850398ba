"""`tokmill runs`: the runs of a store, listed, shown, tagged, annotated, reproduced and bundled."""

import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from typer import Argument, Option

from tokmill.flows.cli.app import FAILED, command, in_runs
from tokmill.flows.cli.lookup import columns_named, existing_store, find_run, moment_since, order_by
from tokmill.flows.cli.options import JsonOption, MemoryOption, StoreOption, WorkersOption
from tokmill.flows.cli.output import aside, draw, messages, print_json, require_new, say, table
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted, size

if TYPE_CHECKING:
    from tokmill.flows.reproduce.known import Subject
    from tokmill.flows.reproduce.reproducing import Reproduction, Request
    from tokmill.tasks.store import Run, Store
    from tokmill.tasks.store.run_queries import Row

RunArgument = Annotated[
    str, Argument(metavar="RUN", help="`latest`, an id or its beginning, a name, or an artifact of the run.")
]
SubjectArgument = Annotated[
    str, Argument(metavar="RUN|ARTIFACT", help="A run, or an artifact, also one that was removed.")
]
LookInOption = Annotated[
    list[str] | None,
    Option(metavar="FOLDER|URL", help="Look here for inputs that are gone from their places; repeatable."),
]
_SHOWN = 30
_NAMED = 8


@in_runs.callback()
def list_runs(
    context: typer.Context,
    state: Literal["running", "completed", "failed", "crashed", "cancelled", "suspended"] | None = Option(
        None, help="Only runs in this state."
    ),
    profile: str | None = Option(None, help="Only runs of this profile."),
    experiment: str | None = Option(None, help="Only runs of this experiment."),
    tag: str | None = Option(None, help="Only runs with this tag."),
    since: str | None = Option(None, metavar="TIME", help="Only runs since then: 7d, 12h, 2026-11-24."),
    sort: str = Option(
        "started",
        metavar="NAME",
        help="A metric or a parameter, e.g. audit.bytes_per_token; or started, seconds, name, profile, "
        "state, num_made, peak_bytes.",
    ),
    lowest: bool | None = Option(None, "--lowest/--highest", help="Which values come first."),
    best: int | None = Option(None, metavar="N", min=1, help="Only the N best by --sort."),
    show: list[str] | None = Option(None, metavar="NAME", help="Another metric or parameter; repeatable."),
    limit: int = Option(_SHOWN, metavar="N", min=0, help="At most N runs; 0 for all."),
    attempts: bool = Option(False, "--attempts", help="Every attempt of a run, not only the last."),
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the runs of the store, the latest first; failed ones, too."""
    if context.invoked_subcommand is not None:
        return
    from tokmill.flows.cli.runs import runs_table
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
        named = {"experiment": experiment, "tag": tag, "profile": profile}
        aside(_why_none(listed(opened.catalog), named))
    if best is None and len(rows) > len(found):
        aside(f"more than {most} runs; --limit 0 lists all")


def _why_none(every: Sequence["Row"], named: Mapping[str, str | None]) -> str:
    """Say which names the runs have, if none of them has the requested one."""
    for what, asked in named.items():
        had = (row["tags"] if what == "tag" else [row[what]] for row in every)
        names = sorted({name for each in had for name in each if name})
        if asked is not None and asked not in names:
            more = ", …" if len(names) > _NAMED else ""
            known = f"runs have {', '.join(names[:_NAMED])}{more}" if names else "none has one"
            return f"no run has the {what} {asked!r}; {known}"
    return "no run is like that" if every else "the store has no runs"


@command(in_runs, "tokmill runs show latest", "tokmill runs show 5f0c2a --json", name="show")
def show_run(
    run: RunArgument,
    parameters: bool = Option(False, "--parameters", help="Every parameter, not only those set for it."),
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show a run: who started it, its inputs, stages and metrics."""
    from tokmill.flows.cli.runs import print_run_sheet, run_document

    opened, found = _found(run, store)
    if as_json:
        print_json(run_document(opened, found))
    else:
        print_run_sheet(opened, found, every_parameter=parameters)


@command(in_runs, "tokmill runs tag latest winner", "tokmill runs tag 5f0c2a bad --remove", name="tag")
def tag_run(
    run: RunArgument,
    tags: list[str] = Argument(..., metavar="TAG…", help="Any words, e.g. winner."),
    remove: bool = Option(False, "--remove", help="Take the tags away."),
    store: StoreOption = None,
) -> None:
    """Tag a run, by which it can be listed; tags change no artifact."""
    from tokmill.flows.cli.runs import remarks_on, tags_now

    opened, found = _annotated(run, store, "untag" if remove else "tag", tags)
    now = tags_now(found, remarks_on(opened, found.run_id))
    say(f"{found.run_id} ({found.name or found.profile}) is tagged {', '.join(now) or 'with nothing'}")


@command(in_runs, "tokmill runs note latest 'the crawl of May was incomplete'", name="note")
def note_run(
    run: RunArgument,
    text: str = Argument(..., help="What is to be remembered of the run."),
    store: StoreOption = None,
) -> None:
    """Add a note to a run."""
    _, found = _annotated(run, store, "note", [text])
    say(f"{found.run_id} ({found.name or found.profile}) is noted")


def _annotated(
    run: str, store: str | None, action: Literal["tag", "untag", "note"], texts: Sequence[str]
) -> "tuple[Store, Run]":
    from tokmill.tasks.core.errors import StoreError
    from tokmill.tasks.store.runs import check_remark

    try:
        for text in texts:
            check_remark(action, text)
    except StoreError as error:
        raise UsageError(str(error)) from error
    opened, found = _found(run, store)
    for text in texts:
        opened.catalog.annotate(found.run_id, action, text)
    return opened, found


def _found(run: str, store: str | None) -> "tuple[Store, Run]":

    opened = existing_store(store)
    return opened, find_run(opened, run)


@command(
    in_runs,
    "tokmill runs reproduce latest",
    "tokmill runs reproduce tokenizer/quickstart@v1 --into again",
    "tokmill runs reproduce packed/quickstart --look-in /archive/texts",
    "tokmill runs reproduce winner.bundle --into again",
)
def reproduce(
    subject: str = Argument(..., metavar="RUN|ARTIFACT|BUNDLE", help="A run, an artifact, or a bundle."),
    into: Path | None = Option(
        None,
        metavar="DIR",
        help="Make it in this folder, which is then a store.",
        show_default="a temporary folder, removed in the end",
    ),
    look_in: LookInOption = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make artifacts again from their records, and compare digests."""
    from tokmill.flows.cli.progress import display
    from tokmill.flows.reproduce.bundle import is_bundle, open_bundle
    from tokmill.flows.reproduce.reproducing import Request
    from tokmill.flows.reproduce.reproducing import reproduce as made_again
    from tokmill.flows.run.machine import cores, memory_of

    with display(messages()) as shown, tempfile.TemporaryDirectory(prefix="tokmill-bundle-") as unpacked:
        how = Request(
            tuple(look_in or ()), workers=workers or cores(), memory_bytes=memory_of(memory), reporter=shown
        )
        if is_bundle(subject):
            kept = Path(unpacked) if into is None else into / ".cache" / "bundled"
            bundle = open_bundle(Path(subject), kept)
            done = made_again(bundle.subject, into, how.with_files(bundle.inputs))
        else:
            done = made_again(*_in_store(subject, store, into, how))
    if as_json:
        print_json(done.to_json())
    else:
        _show(done)
    if not done.is_equal:
        raise typer.Exit(FAILED)


def _in_store(
    reference: str, store: str | None, into: Path | None, how: "Request"
) -> "tuple[Subject, Path | None, Request]":
    """The subject in a store, which also knows in which row a changed file differs."""
    from tokmill.flows.reproduce.comparing import find_change
    from tokmill.flows.reproduce.known import subject_in

    try:
        opened = existing_store(store)
        subject = subject_in(opened, reference, removed=True)
    except UsageError as error:
        if not Path(reference).is_file():
            raise
        raise UsageError(
            f"{reference} is not a bundle, or its end is missing: copy it again, or use `tokmill runs bundle`"
        ) from error
    return subject, into, how.explained(lambda *one: str(find_change(opened, *one)))


def _show(done: "Reproduction") -> None:
    from tokmill.flows.reproduce.comparing import shown_files

    number = Counter(each.verdict for each in done.compared)
    kept = "" if done.is_temporary else f" in {done.store}"
    say(f"{done.subject.name}: of {len(done.compared):,} artifacts{kept}, {number['equal']:,} came out equal")
    run = done.subject.run
    if run is not None and run.state != "completed":
        say(f"the run is recorded as {run.state}; these are the artifacts that it had by then")
    if done.failure:
        say(f"{number['not made']:,} were not made: {done.failure}")
    first = [each for each in done.compared if each.is_first]
    if number["differs"]:
        say(f"{number['differs']:,} differ, which begins with:")
    for each in first:
        say(f"\n{each.record.reference}: {shown_files(each.files)}")
        for reason in each.reasons:
            say(f"  {reason}")


@command(
    in_runs,
    "tokmill runs bundle latest -o winner.bundle",
    "tokmill runs bundle packed/quickstart@v1 -o packed.bundle --with-inputs",
)
def bundle(
    subject: SubjectArgument,
    output: Path = Option(..., "--output", "-o", metavar="FILE", help="Write this file, a new one."),
    with_inputs: bool = Option(False, "--with-inputs", help="Include inputs from outside the store."),
    look_in: LookInOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write records, and inputs on request, into one file to reproduce."""
    from tokmill.flows.reproduce.bundle import write_bundle
    from tokmill.flows.reproduce.known import subject_in

    require_new("bundle", output)
    known = subject_in(existing_store(store), subject, removed=True)
    about = write_bundle(known, output, with_inputs=with_inputs, look_in=tuple(look_in or ()))
    if as_json:
        print_json(about.model_dump(mode="json"))
        return
    inputs = f"with {counted(len(about.inputs), 'input')}" if with_inputs else "without inputs"
    say(
        f"{about.subject}, {counted(len(about.targets), 'artifact')}, {inputs}: "
        f"{output} ({size(output.stat().st_size)})"
    )
    if not with_inputs:
        rows = [[one.source, one.name, one.origin] for one in about.inputs]
        draw(table(("source", "needs", "was"), rows))
