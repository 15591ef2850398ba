"""`tokmill trace` and `tokmill takedown`: find documents in packed sequences, and remove them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tokmill.flows.cli.app import app, examples
from tokmill.flows.cli.options import JsonOption, StoreOption
from tokmill.flows.cli.output import draw, print_json, say, shown_address, table
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted
from tokmill.tasks.core.errors import StoreError, TracingError
from tokmill.tasks.core.markdown import number
from tokmill.tasks.core.stage import NO_SOURCE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokmill.tasks.core.stage import Scalar
    from tokmill.tasks.takedown.request import TakenDown
    from tokmill.tasks.tracing import Origins, TracedDocument, TracedSequence

_SHOWN_CHARS = 60

PackedArgument = Annotated[
    str,
    typer.Argument(metavar="PACKED", help="packed/name, packed/name@v3, or first digits of a fingerprint."),
]
RootOption = Annotated[
    list[str] | None,
    typer.Option(
        "--root",
        metavar="SOURCE=FOLDER",
        help="The folder of a source's files, or its URL, if they were moved; may be given several times.",
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
            help="Show the documents in this sequence; may be given several times.",
        ),
    ] = None,
    document: Annotated[
        str | None,
        typer.Option(
            "--document",
            "-d",
            metavar="SOURCE:ID",
            help="Show the sequences with this document: its own id, or FILE:ROW (from 0).",
        ),
    ] = None,
    root: RootOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the documents in a packed sequence, or the sequences that contain a document."""
    from tokmill.tasks.tracing import trace_document, trace_sequence

    if bool(sequence) == (document is not None):
        raise UsageError("trace: give either --sequence N or --document SOURCE:ID")
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
        'tokmill takedown packed/quickstart --documents list.txt --reason "case 17"',
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
            help="One SOURCE:ID or SOURCE:FILE:ROW per line; lines that begin with # are comments.",
        ),
    ],
    repack: Annotated[
        bool,
        typer.Option(
            "--repack",
            help="Pack the mixture again without them, instead of replacing them by padding.",
        ),
    ] = False,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; kept in the records of new and old.")
    ] = "",
    root: RootOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a version of a packed artifact without some documents, which are replaced by padding."""
    from tokmill.tasks.takedown.request import read_names, take_down

    try:
        origins = _origins(packed, root, store)
        with origins.store.at_work("takedown"):
            names = read_names(documents)
            taken = take_down(origins, names, repacked=repack, reason=_checked(reason))
    except TracingError as error:
        raise UsageError(f"takedown: {error}") from error
    if as_json:
        print_json(_taken_json(origins, taken))
    else:
        _show_taken(origins, taken)


def _checked(reason: str) -> str:
    """Return the reason of a takedown without blanks around it.

    Raises:
        UsageError: it is too long.
    """
    from tokmill.tasks.store.tombstones import check_reason

    try:
        return check_reason(reason.strip())
    except StoreError as error:
        raise UsageError(f"takedown: {error}") from error


def _taken_json(origins: "Origins", taken: "TakenDown") -> dict[str, object]:
    record = taken.record
    version = None
    if record is not None:
        version = {
            "reference": record.reference,
            "path": origins.store.address(record.ref),
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
    record = taken.record
    for document, why in taken.absent:
        say(f"{document.name}: in no sequence: {why}")
    if record is None:
        say(f"{origins.packed.reference} has none of the documents; nothing to do")
        _show_holders(taken)
        return
    how = "made" if taken.made else "exists already"
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
    read = sum(each.became.get("taken_down", 0) for each in taken.accounts if each.unit == "documents")
    if read > len(taken.documents):
        say("a document counts here as often as the mixture reads it: once per epoch")
    say("")
    say(f"packed shards  {shown_address(origins.store, record.ref)}")
    if taken.card is not None:
        say(f"data card      {taken.card.reference}")
    _show_holders(taken)


def _show_holders(taken: "TakenDown") -> None:
    """List the other artifacts that still contain the documents."""
    if not taken.holders:
        return
    say("")
    say("these still contain documents of the list; `tokmill remove ARTIFACT` deletes one permanently:")
    for holder in taken.holders:
        say(f"  {holder.reference}{f' (perhaps: {holder.unknown})' if holder.unknown else ''}")


def _origins(packed: str, root: list[str] | None, store: str | None) -> "Origins":
    from tokmill.flows.cli.lookup import existing_store, find_artifact
    from tokmill.tasks.tracing import Origins

    opened = existing_store(store)
    return Origins.of(opened, find_artifact(opened, packed), _roots(root or []))


def _roots(given: list[str]) -> dict[str, str]:
    from tokmill.tasks.remote.location import is_remote, local_path

    roots = {}
    for text in given:
        source, equals, folder = text.partition("=")
        if not equals or not (is_remote(folder) or local_path(folder).is_dir()):
            raise UsageError(f"--root {text}: write SOURCE=FOLDER, with a folder that exists, or its URL")
        roots[source] = folder
    return roots


def _show_sequences(origins: "Origins", traced: "list[TracedSequence]", *, as_json: bool) -> None:
    """Show sequences in order; as JSON, an object for one and a list for several."""
    if as_json:
        found = [{"packed": origins.packed.reference, **one.model_dump(mode="json")} for one in traced]
        print_json(found[0] if len(found) == 1 else found)
        return
    for index, one in enumerate(traced):
        if index:
            say("")
        _show_sequence(origins, one)


def _show_sequence(origins: "Origins", traced: "TracedSequence") -> None:
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
    if as_json:
        print_json(documents)
        return
    for index, found in enumerate(documents):
        if index:
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
    """Describe a takedown in one line, from the metrics of the old and the new version."""
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
    """The first and the last of the tokens [start, start + length)."""
    return f"{start}–{start + length - 1}"


def _on_a_line(text: str) -> str:
    """The text on one line, shortened in the middle."""
    shown = " ".join(text.split())
    if len(shown) <= _SHOWN_CHARS:
        return shown
    half = _SHOWN_CHARS // 2 - 1
    return f"{shown[:half]} … {shown[-half:]}"
