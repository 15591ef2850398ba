"""`tokmill runs`: the runs of a store, listed, shown, tagged, annotated, reproduced and bundled."""

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer
from typer import Argument, Option

from tokmill.flows.cli.app import Answer, command, in_runs, printing
from tokmill.flows.cli.lookup import columns_named, existing_store, find_run, moment_since, order_by
from tokmill.flows.cli.options import DEFAULT, ExistingStore, MemoryOption, StoreOption, WorkersOption
from tokmill.flows.cli.output import Part, aside, messages, require_new, table
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted, size

if TYPE_CHECKING:
    from tokmill.flows.reproduce.reproduction import Reproduction
    from tokmill.flows.reproduce.subject import Subject
    from tokmill.tasks.store import Run, Store
    from tokmill.tasks.store.references import Row

Action: TypeAlias = Literal["tag", "untag", "note"]
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
_FILES_SHOWN = 5


@in_runs.callback()
@printing
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
) -> Answer | None:
    """List the runs of the store, the latest first; failed ones, too."""
    if context.invoked_subcommand is not None:
        return None
    from tokmill.tasks.store.references import RunFilter
    from tokmill.tasks.store.references import list_runs as listed

    if best is not None and sort == "started":
        raise UsageError("runs: --best needs --sort, e.g. --sort bytes_per_token --best 3")
    opened = existing_store(store)
    by, *columns = columns_named(opened, [sort, *(show or [])])
    where = RunFilter(state, profile, experiment, tag, moment_since(since), attempts)
    order, most = order_by(by, lowest=lowest, best=best is not None), best or limit
    rows = listed(
        opened.catalog, where, [by, *columns], order, most + 1 if most else None, complete=bool(best)
    )
    found = rows[:most] if most else rows

    def parts() -> Iterator[Part]:
        from tokmill.flows.cli.runs import runs_table

        lost = order.lost
        added = lost and lost not in columns and any(row["values"][lost.label] for row in found)
        yield runs_table(
            opened, found, [by, *columns, *([lost] if lost and added else [])], attempts=attempts
        )
        if not found:
            named = {"experiment": experiment, "tag": tag, "profile": profile}
            aside(_why_none(listed(opened.catalog), named))
        if best is None and len(rows) > len(found):
            aside(f"more than {most} runs; --limit 0 lists all")

    return Answer(found, parts())


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
    store: ExistingStore = DEFAULT,
) -> Answer:
    """Show a run: who started it, its inputs, stages and metrics."""
    from tokmill.flows.cli.runs import run_document, run_sheet

    found = find_run(store, run)
    return Answer(lambda: run_document(store, found), run_sheet(store, found, every_parameter=parameters))


@command(in_runs, "tokmill runs tag latest winner", "tokmill runs tag 5f0c2a bad --remove", name="tag")
def tag_run(
    run: RunArgument,
    tags: list[str] = Argument(..., metavar="TAG…", help="Any words, e.g. winner."),
    remove: bool = Option(False, "--remove", help="Take the tags away."),
    store: ExistingStore = DEFAULT,
) -> str:
    """Tag a run, by which it can be listed; tags change no artifact."""
    from tokmill.flows.cli.runs import remarks_on, tags_now

    found = _annotated(store, run, "untag" if remove else "tag", tags)
    now = tags_now(found, remarks_on(store, found.run_id))
    return f"{found.run_id} ({found.name or found.profile}) is tagged {', '.join(now) or 'with nothing'}"


@command(in_runs, "tokmill runs note latest 'the crawl of May was incomplete'", name="note")
def note_run(
    run: RunArgument,
    text: str = Argument(..., help="What is to be remembered of the run."),
    store: ExistingStore = DEFAULT,
) -> str:
    """Add a note to a run."""
    found = _annotated(store, run, "note", [text])
    return f"{found.run_id} ({found.name or found.profile}) is noted"


def _annotated(store: "Store", run: str, action: "Action", texts: Sequence[str]) -> "Run":
    from tokmill.tasks.core.errors import StoreError
    from tokmill.tasks.store.runs import check_remark

    try:
        for text in texts:
            check_remark(action, text)
    except StoreError as error:
        raise UsageError(str(error)) from error
    found = find_run(store, run)
    for text in texts:
        store.catalog.annotate(found.run_id, action, text)
    return found


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
) -> Answer:
    """Make artifacts again from their records, and compare digests."""
    from tokmill.flows.cli.progress import display
    from tokmill.flows.reproduce.bundle import is_bundle, open_bundle
    from tokmill.flows.reproduce.inputs import explanation_in
    from tokmill.flows.reproduce.reproduction import reproduce as made_again
    from tokmill.flows.run.machine import cores, memory_of

    with display(messages()) as shown, tempfile.TemporaryDirectory(prefix="tokmill-bundle-") as unpacked:
        how: dict[str, Any] = {"look_in": tuple(look_in or ()), "workers": workers or cores()}
        how |= {"memory_bytes": memory_of(memory), "reporter": shown}
        if is_bundle(subject):
            kept = Path(unpacked) if into is None else into / ".cache" / "bundled"
            bundle = open_bundle(Path(subject), kept)
            done = made_again(bundle.subject, into, given=bundle.inputs, **how)
        else:
            opened, known = _in_store(subject, store)
            done = made_again(known, into, explain=explanation_in(opened), **how)
    return Answer(done.to_json, _reproduced(done, into), failed=not done.is_equal)


def _in_store(reference: str, store: str | None) -> "tuple[Store, Subject]":
    from tokmill.flows.reproduce.subject import subject_in

    try:
        opened = existing_store(store)
        return opened, subject_in(opened, reference, removed=True)
    except UsageError as error:
        if not Path(reference).is_file():
            raise
        raise UsageError(
            f"{reference} is not a bundle, or its end is missing: copy it again, or use `tokmill runs bundle`"
        ) from error


def _reproduced(done: "Reproduction", into: Path | None) -> Iterator[Part]:
    number = Counter(each.verdict for each in done.compared)
    every = f"{len(done.compared):,} artifacts{f' in {done.store}' if into else ''}"
    yield f"{done.subject.name}: of {every}, {number['equal']:,} came out equal"
    run = done.subject.run
    if run is not None and run.state != "completed":
        yield f"the run is recorded as {run.state}; these are the artifacts that it had by then"
    if done.failure:
        yield f"{number['not made']:,} were not made: {done.failure}"
    if number["differs"]:
        yield f"{number['differs']:,} differ, which begins with:"
    for each in done.compared:
        if each.reasons:
            more = f" and {len(each.files) - _FILES_SHOWN} more" if len(each.files) > _FILES_SHOWN else ""
            yield f"\n{each.record.reference}: {', '.join(each.files[:_FILES_SHOWN])}{more}"
            yield from (f"  {reason}" for reason in each.reasons)


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
    store: ExistingStore = DEFAULT,
) -> Answer:
    """Write records, and inputs on request, into one file to reproduce."""
    from tokmill.flows.reproduce.bundle import write_bundle
    from tokmill.flows.reproduce.subject import subject_in

    require_new("bundle", output)
    known = subject_in(store, subject, removed=True)
    about = write_bundle(known, output, with_inputs=with_inputs, look_in=tuple(look_in or ()))
    inputs = f"with {counted(len(about.inputs), 'input')}" if with_inputs else "without inputs"
    num_bytes, artifacts = size(output.stat().st_size), counted(len(about.targets), "artifact")
    parts: list[Part] = [f"{about.subject}, {artifacts}, {inputs}: {output} ({num_bytes})"]
    if not with_inputs:
        rows = [[one.source, one.name, one.origin] for one in about.inputs]
        parts.append(table(("source", "needs", "was"), rows))
    return Answer(about, parts)
