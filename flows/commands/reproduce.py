"""`tokmill runs reproduce` and `bundle`: what a run made is made again, elsewhere too."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from tokmill.flows.cli.app import Answer, command
from tokmill.flows.cli.options import (
    DEFAULT,
    ExistingStore,
    MemoryOption,
    StoreOption,
    WorkersOption,
    existing_store,
)
from tokmill.flows.cli.output import Part, Table, messages, require_new
from tokmill.flows.commands.runs import in_runs
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted, size

if TYPE_CHECKING:
    from tokmill.flows.reproduce.reproduction import Reproduction
    from tokmill.flows.reproduce.subject import Subject
    from tokmill.tasks.store import Store

_FILES_SHOWN = 5
LookInOption = Annotated[
    list[str] | None,
    Option(metavar="FOLDER|URL", help="Look here for inputs that are gone from their places; repeatable."),
]


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
    from tokmill.flows.run.machine import memory_of
    from tokmill.tasks.core.context import usable_cores

    with display(messages()) as shown, tempfile.TemporaryDirectory(prefix="tokmill-bundle-") as unpacked:
        how: dict[str, Any] = {"look_in": tuple(look_in or ()), "workers": workers or usable_cores()}
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
    subject: str = Argument(..., metavar="RUN|ARTIFACT", help="A run, or an artifact, also a removed one."),
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
        parts.append(Table(("source", "needs", "was"), rows))
    return Answer(about, parts)
