"""The commands that go from packed tokens back to documents, and from documents to packed tokens."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokmill.flows.cli.app import app, examples
from tokmill.flows.cli.options import JsonOption, StoreOption
from tokmill.flows.cli.output import draw, print_json, say, table
from tokmill.flows.errors import UsageError
from tokmill.tasks.core.stage import NO_SOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.tasks.core.stage import Scalar
    from tokmill.tasks.takedown.request import TakenDown
    from tokmill.tasks.tracing import Origins, TracedDocument, TracedSequence

_SHOWN_CHARS = 60

PackedArgument = Annotated[
    str, typer.Argument(metavar="PACKED", help="packed/name, packed/name@v3, or the first digits of one.")
]
RootOption = Annotated[
    list[str] | None,
    typer.Option(
        "--root",
        metavar="SOURCE=FOLDER",
        help="Where a source's files lie now, if they were moved since; may be given several times.",
    ),
]


@app.command(
    rich_help_panel="Store",
    epilog=examples(
        "tokmill trace packed/quickstart --sequence 123",
        "tokmill trace packed/quickstart -s 123 -s 124",
        "tokmill trace packed/quickstart --document sw:sw.txt:3",
        "tokmill trace packed/quickstart --sequence 123 --json",
    ),
)
def trace(
    packed: PackedArgument,
    sequence: Annotated[
        list[int] | None,
        typer.Option(
            "--sequence",
            "-s",
            metavar="N",
            help="Where this sequence's tokens come from; may be given several times.",
        ),
    ] = None,
    document: Annotated[
        str | None,
        typer.Option(
            "--document",
            "-d",
            metavar="SOURCE:ID",
            help="Where this document's tokens are: its own id, or FILE:ROW (from 0).",
        ),
    ] = None,
    root: RootOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say where a packed sequence comes from, or which sequences hold a document."""
    from tokmill.tasks.core.errors import TracingError
    from tokmill.tasks.tracing import trace_document, trace_sequence

    if bool(sequence) == (document is not None):
        raise UsageError("trace: say --sequence N or --document SOURCE:ID, one of them")
    try:
        origins = _origins(packed, root, store)
        if document is not None:
            _show_documents(trace_document(origins, document), as_json=as_json)
        else:
            traced = [trace_sequence(origins, number) for number in sequence or ()]
            _show_sequences(origins, traced, as_json=as_json)
    except TracingError as error:
        raise UsageError(f"trace: {error}") from error


@app.command(
    rich_help_panel="Store",
    epilog=examples(
        "tokmill takedown packed/quickstart --documents list.txt",
        "tokmill takedown packed/quickstart@v3 --documents list.txt --json",
    ),
)
def takedown(
    packed: PackedArgument,
    documents: Annotated[
        Path,
        typer.Option(
            "--documents",
            "-d",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="A list: SOURCE:ID or SOURCE:FILE:ROW on each line; # begins a comment.",
        ),
    ],
    repack: Annotated[
        bool,
        typer.Option(
            "--repack",
            help="Pack the mixture again without them, instead of putting padding in their place.",
        ),
    ] = False,
    root: RootOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a version of a packed artifact without some documents: padding takes their place."""
    from tokmill.tasks.core.errors import TracingError
    from tokmill.tasks.takedown.request import read_names, take_down

    try:
        origins = _origins(packed, root, store)
        taken = take_down(origins, read_names(documents), repacked=repack)
    except TracingError as error:
        raise UsageError(f"takedown: {error}") from error
    if as_json:
        print_json(_taken_json(origins, taken))
    else:
        _show_taken(origins, taken)


def _taken_json(origins: "Origins", taken: "TakenDown") -> dict[str, object]:
    record = taken.record
    version = None
    if record is not None:
        version = {
            "reference": record.reference,
            "path": str(origins.store.path(record.ref)),
            "fingerprint": record.fingerprint,
            "metrics": record.metrics,
            "accounts": taken.accounts,
        }
    return {
        "packed": origins.packed.reference,
        "made": taken.made,
        "version": version,
        "documents": [document.name for document in taken.documents],
        "card": taken.card.reference if taken.card else None,
        "holders": [holder.reference for holder in taken.holders],
        "absent": [{"name": document.name, "why": why} for document, why in taken.absent],
    }


def _show_taken(origins: "Origins", taken: "TakenDown") -> None:
    from tokmill.flows.cli.figures import counted, number
    from tokmill.flows.cli.output import shown

    record = taken.record
    for document, why in taken.absent:
        say(f"{document.name}: in no sequence: {why}")
    if record is None:
        say(f"{origins.packed.reference} holds none of the documents; nothing is to be done")
        _show_holders(taken)
        return
    how = "made" if taken.made else "was there already"
    num_taken = counted(len(taken.documents), "document")
    say(f"{record.reference} {how}: {_what_changed(num_taken, origins.packed.metrics, record.metrics)}")
    say("")
    rows = [
        [
            account.source,
            account.unit,
            number(account.became["taken_down"]),
            number(account.num_in - account.became["taken_down"]),
        ]
        for account in taken.accounts
        if account.became.get("taken_down") and account.source != NO_SOURCE
    ]
    draw(table(["source", "unit", "taken down", "left"], rows, ["taken down", "left"]))
    say("")
    say(f"packed shards  {shown(origins.store.path(record.ref))}")
    if taken.card is not None:
        say(f"data card      {taken.card.reference}")
    _show_holders(taken)


def _show_holders(taken: "TakenDown") -> None:
    """Say which artifacts still hold the documents: all but those that were made now."""
    if not taken.holders:
        return
    say("")
    say("these hold documents of the list still; `tokmill remove ARTIFACT` deletes one for good:")
    for holder in taken.holders:
        say(f"  {holder.reference}{f' (perhaps: {holder.unknown})' if holder.unknown else ''}")


def _origins(packed: str, root: list[str] | None, store: str | None) -> "Origins":
    from tokmill.flows.cli.finding import existing_store, find_artifact
    from tokmill.tasks.tracing import Origins

    opened = existing_store(store)
    return Origins.of(opened, find_artifact(opened, packed), _roots(root or []))


def _roots(given: list[str]) -> dict[str, Path]:
    roots = {}
    for text in given:
        source, equals, folder = text.partition("=")
        if not equals or not Path(folder).is_dir():
            raise UsageError(f"--root {text}: write SOURCE=FOLDER, with a folder that exists")
        roots[source] = Path(folder)
    return roots


def _show_sequences(origins: "Origins", traced: "list[TracedSequence]", *, as_json: bool) -> None:
    """Show sequences one after the other; as JSON, one as an object and several as a list of them."""
    if as_json:
        found = [{"packed": origins.packed.reference, **one.model_dump(mode="json")} for one in traced]
        print_json(found[0] if len(found) == 1 else found)
        return
    for number, one in enumerate(traced):
        if number:
            say("")
        _show_sequence(origins, one)


def _show_sequence(origins: "Origins", traced: "TracedSequence") -> None:
    from tokmill.flows.cli.figures import counted

    pieces, padding = len(traced.pieces), traced.num_padding_tokens
    rest = f", and {padding:,} of padding" if padding else ""
    say(
        f"{origins.packed.reference}, sequence {traced.sequence}: {traced.num_tokens:,} tokens in "
        f"{counted(pieces, 'piece')}{rest}"
    )
    rows = [
        [
            _range(piece.start, piece.length),
            f"{_range(piece.document_start, piece.num_document_tokens)} of {piece.document_length}",
            piece.name,
            _on_a_line(piece.text),
        ]
        for piece in traced.pieces
    ]
    if rows:
        say("")
        draw(
            table(["tokens", "of the document's", "document", "text"], rows, ["tokens", "of the document's"])
        )


def _show_documents(documents: "list[TracedDocument]", *, as_json: bool) -> None:
    from tokmill.flows.cli.figures import counted

    if as_json:
        print_json(documents)
        return
    for number, found in enumerate(documents):
        if number:
            say("")
        say(f"{found.name}: source {found.source}, {found.place}")
        if found.absent is not None:
            say(f"in no sequence: {found.absent}")
            continue
        sequences = len({piece.sequence for piece in found.pieces})
        say(
            f"{counted(found.document_length, 'token')}; {counted(len(found.pieces), 'piece')} in "
            f"{counted(sequences, 'sequence')}"
        )
        say("")
        rows = [
            [
                str(piece.sequence),
                _range(piece.start, piece.length),
                _range(piece.document_start, piece.num_document_tokens),
                str(piece.epoch),
            ]
            for piece in found.pieces
        ]
        columns = ["sequence", "tokens", "of the document's", "epoch"]
        draw(table(columns, rows, columns))


def _what_changed(taken: str, before: "Mapping[str, Scalar]", after: "Mapping[str, Scalar]") -> str:
    """Say in a line what a takedown did, by the metrics of the version before and of this one."""
    from tokmill.flows.cli.figures import counted, number

    if "num_changed_sequences" not in after:
        return (
            f"packed again without {taken}, {number(after['num_sequences'])} sequences instead of "
            f"{number(before['num_sequences'])}"
        )
    sequences = counted(int(after["num_changed_sequences"]), "sequence")
    shards = counted(int(after["num_changed_shards"]), "shard")
    return (
        f"{taken} taken out of {sequences} of {number(after['num_sequences'])}, in {shards} of "
        f"{number(after['num_shards'])}"
    )


def _range(start: int, length: int) -> str:
    """Tokens [start, start + length) as people count them: the first and the last."""
    return f"{start}–{start + length - 1}"


def _on_a_line(text: str) -> str:
    """The beginning and the end of a text, on one line."""
    shown = " ".join(text.split())
    if len(shown) <= _SHOWN_CHARS:
        return shown
    half = _SHOWN_CHARS // 2 - 1
    return f"{shown[:half]} … {shown[-half:]}"
