"""`tokmill reproduce` and `tokmill bundle`: make artifacts again from their records, here or elsewhere."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokmill.flows.cli.app import FAILED, app, examples
from tokmill.flows.cli.options import JsonOption, MemoryOption, StoreOption, WorkersOption
from tokmill.flows.cli.output import draw, messages, print_json, require_new, say, table
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import size

if TYPE_CHECKING:
    from tokmill.flows.reproduce.known import Subject
    from tokmill.flows.reproduce.reproducing import Reproduction, Request

SubjectArgument = Annotated[
    str,
    typer.Argument(
        metavar="RUN|ARTIFACT",
        help=(
            "A run (latest, its id or the beginning of it, its name, a tag), or an artifact, also one that "
            "was removed."
        ),
    ),
]
LookInOption = Annotated[
    list[str] | None,
    typer.Option(
        "--look-in",
        metavar="FOLDER|URL",
        help="Look here for inputs that are no longer where they were; may be given several times.",
    ),
]


@app.command(
    rich_help_panel="Store",
    epilog=examples(
        "tokmill reproduce latest",
        "tokmill reproduce tokenizer/quickstart@v1 --into again",
        "tokmill reproduce packed/quickstart --look-in /archive/texts",
        "tokmill reproduce winner.bundle --into again",
    ),
)
def reproduce(
    subject: Annotated[
        str, typer.Argument(metavar="RUN|ARTIFACT|BUNDLE", help="As for bundle, or a file that it wrote.")
    ],
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            metavar="DIR",
            help="Make it in this folder, which is then a store.",
            show_default="a temporary folder, removed in the end",
        ),
    ] = None,
    look_in: LookInOption = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make artifacts again from their records in an empty store, and compare the digests."""
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
    from tokmill.flows.cli.lookup import existing_store
    from tokmill.flows.reproduce.comparing import find_change
    from tokmill.flows.reproduce.known import subject_in

    try:
        opened = existing_store(store)
        subject = subject_in(opened, reference, removed=True)
    except UsageError as error:
        if not Path(reference).is_file():
            raise
        raise UsageError(
            f"{reference} is not a bundle, or its end is missing: copy it again, or use `tokmill bundle`"
        ) from error
    return subject, into, how.explained(lambda *one: str(find_change(opened, *one)))


def _show(done: "Reproduction") -> None:
    from tokmill.flows.reproduce.comparing import shown_files

    number = dict.fromkeys(("equal", "differs", "not made"), 0)
    for each in done.compared:
        number[each.verdict] += 1
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


@app.command(
    rich_help_panel="Store",
    epilog=examples(
        "tokmill bundle latest -o winner.bundle",
        "tokmill bundle packed/quickstart@v1 -o packed.bundle --with-inputs",
    ),
)
def bundle(
    subject: SubjectArgument,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="Write this file, a new one.")
    ],
    with_inputs: Annotated[
        bool, typer.Option("--with-inputs", help="Include the inputs from outside of the store.")
    ] = False,
    look_in: LookInOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write records, profile, package versions and, on request, inputs into one file for `reproduce`."""
    from tokmill.flows.cli.lookup import existing_store
    from tokmill.flows.reproduce.bundle import write_bundle
    from tokmill.flows.reproduce.known import subject_in

    require_new("bundle", output)
    known = subject_in(existing_store(store), subject, removed=True)
    about = write_bundle(known, output, with_inputs=with_inputs, look_in=tuple(look_in or ()))
    if as_json:
        print_json(about.model_dump(mode="json"))
        return
    inputs = f"with {_number(len(about.inputs), 'input')}" if with_inputs else "without inputs"
    say(
        f"{about.subject}, {_number(len(about.targets), 'artifact')}, {inputs}: "
        f"{output} ({size(output.stat().st_size)})"
    )
    if not with_inputs:
        rows = [[one.source, one.name, one.origin] for one in about.inputs]
        draw(table(("source", "needs", "was"), rows))


def _number(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
