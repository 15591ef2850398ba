"""`tokmill trace`: the documents in packed sequences, and the sequences with a document."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.table import Table
from typer import Option

from tokmill.flows.cli.app import app, command
from tokmill.flows.cli.lookup import existing_store, find_artifact
from tokmill.flows.cli.options import JsonOption, PackedArgument, RootOption, StoreOption
from tokmill.flows.cli.output import draw, print_json, say, table
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted
from tokmill.tasks.core.errors import TracingError

if TYPE_CHECKING:
    from tokmill.tasks.tracing import Origins, TracedDocument, TracedSequence

_SHOWN_CHARS = 60


@command(
    app,
    "tokmill trace packed/quickstart --sequence 123",
    "tokmill trace packed/quickstart -s 123 -s 124",
    "tokmill trace packed/quickstart --document sw:sw.txt:3",
    "tokmill trace packed/quickstart --sequence 123 --json",
)
def trace(
    packed: PackedArgument,
    sequence: list[int] | None = Option(
        None, "--sequence", "-s", metavar="N", help="A sequence; repeatable."
    ),
    document: str | None = Option(
        None,
        "--document",
        "-d",
        metavar="SOURCE:ID",
        help="A document's id, or FILE:ROW from 0: its sequences.",
    ),
    root: RootOption = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the documents of a sequence, or the sequences of a document."""
    from tokmill.tasks.tracing import trace_document, trace_sequence

    if bool(sequence) == (document is not None):
        raise UsageError("trace: give either --sequence N or --document SOURCE:ID")
    try:
        origins = origins_of(packed, root, store)
        if document is not None:
            documents = trace_document(origins, document)
        traced = [trace_sequence(origins, number) for number in sequence or ()]
    except TracingError as error:
        raise UsageError(f"trace: {error}") from error
    if document is not None:
        print_json(documents) if as_json else _show(map(_document, documents))
    elif as_json:
        found = [{"packed": origins.packed.reference, **one.model_dump(mode="json")} for one in traced]
        print_json(found[0] if len(found) == 1 else found)
    else:
        _show(_sequence(origins, one) for one in traced)


def origins_of(packed: str, root: list[str] | None, store: str | None) -> "Origins":
    """Return what traces documents in the packed artifact that a command names."""
    from tokmill.tasks.tracing import Origins

    opened = existing_store(store)
    return Origins.of(opened, find_artifact(opened, packed), _roots(root or []))


def _roots(texts: list[str]) -> dict[str, str]:
    from tokmill.tasks.remote.location import is_remote, local_path

    roots = {}
    for text in texts:
        source, equals, folder = text.partition("=")
        if not equals or not (is_remote(folder) or local_path(folder).is_dir()):
            raise UsageError(f"--root {text}: write SOURCE=FOLDER, with a folder that exists, or its URL")
        roots[source] = folder
    return roots


def _show(parts: Iterable[tuple[str, Table | None]]) -> None:
    """Show a sentence for each sequence or document, and a table of its pieces, if it has any."""
    for index, (words, pieces) in enumerate(parts):
        say(f"\n{words}" if index else words)
        if pieces is not None:
            say("")
            draw(pieces)


def _sequence(origins: "Origins", traced: "TracedSequence") -> tuple[str, Table | None]:
    padding = f", and {traced.num_padding_tokens:,} of padding" if traced.num_padding_tokens else ""
    words = (
        f"{origins.packed.reference}, sequence {traced.sequence}: {traced.num_tokens:,} tokens in "
        f"{counted(len(traced.pieces), 'piece')}{padding}"
    )
    rows = []
    for piece in traced.pieces:
        part = f"{_range(piece.document_start, piece.num_document_tokens)} of {piece.document_length}"
        rows.append((_range(piece.start, piece.length), part, piece.name, _on_a_line(piece.text)))
    columns = ("tokens", "of the document's", "document", "text")
    return words, table(columns, rows, columns[:2]) if rows else None


def _document(traced: "TracedDocument") -> tuple[str, Table | None]:
    words = f"{traced.name}: source {traced.source}, {traced.place}\n"
    if traced.absent is not None:
        return f"{words}in no sequence: {traced.absent}", None
    rows = []
    for piece in traced.pieces:
        part = _range(piece.document_start, piece.num_document_tokens)
        rows.append((str(piece.sequence), _range(piece.start, piece.length), part, str(piece.epoch)))
    sequences = counted(len({piece.sequence for piece in traced.pieces}), "sequence")
    words += f"{counted(traced.document_length, 'token')}; {counted(len(rows), 'piece')} in {sequences}"
    columns = ("sequence", "tokens", "of the document's", "epoch")
    return words, table(columns, rows, columns)


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
