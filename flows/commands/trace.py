"""`tokmill trace`: the documents in packed sequences, and the sequences with a document."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from typer import Option

from tokmill.flows.cli.app import Answer, app, command
from tokmill.flows.cli.lookup import find_artifact
from tokmill.flows.cli.options import DEFAULT, ExistingStore, PackedArgument, RootOption
from tokmill.flows.cli.output import Part, table
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted

if TYPE_CHECKING:
    from tokmill.tasks.store import Store
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
    store: ExistingStore = DEFAULT,
) -> Answer:
    """Show the documents of a sequence, or the sequences of a document."""
    from tokmill.tasks.tracing import trace_document, trace_sequence

    if bool(sequence) == (document is not None):
        raise UsageError("trace: give either --sequence N or --document SOURCE:ID")
    origins = origins_of(store, packed, root)
    if document is not None:
        documents = trace_document(origins, document)
        return Answer(documents, _joined(map(_document, documents)))
    reference = origins.packed.reference
    traced = [trace_sequence(origins, number) for number in sequence or ()]
    found = [{"packed": reference, **one.model_dump(mode="json")} for one in traced]
    return Answer(
        found[0] if len(found) == 1 else found, _joined(_sequence(reference, one) for one in traced)
    )


def origins_of(store: "Store", packed: str, roots: list[str] | None) -> "Origins":
    """Return what traces documents in the packed artifact that a command names."""
    from tokmill.tasks.remote.location import is_remote, local_path
    from tokmill.tasks.tracing import Origins

    folders = {}
    for text in roots or ():
        source, equals, folder = text.partition("=")
        if not equals or not (is_remote(folder) or local_path(folder).is_dir()):
            raise UsageError(f"--root {text}: write SOURCE=FOLDER, with a folder that exists, or its URL")
        folders[source] = folder
    return Origins.of(store, find_artifact(store, packed), folders)


def _joined(blocks: Iterable[Iterable[Part]]) -> Iterator[Part]:
    for index, block in enumerate(blocks):
        if index:
            yield ""
        yield from block


def _sequence(reference: str, traced: "TracedSequence") -> Iterator[Part]:
    padding = f", and {traced.num_padding_tokens:,} of padding" if traced.num_padding_tokens else ""
    pieces = counted(len(traced.pieces), "piece")
    yield f"{reference}, sequence {traced.sequence}: {traced.num_tokens:,} tokens in {pieces}{padding}"
    rows = []
    for piece in traced.pieces:
        part = f"{_range(piece.document_start, piece.num_document_tokens)} of {piece.document_length}"
        text = " ".join(piece.text.split())
        if len(text) > _SHOWN_CHARS:
            text = f"{text[: _SHOWN_CHARS // 2 - 1]} … {text[1 - _SHOWN_CHARS // 2 :]}"
        rows.append((_range(piece.start, piece.length), part, piece.name, text))
    columns = ("tokens", "of the document's", "document", "text")
    if rows:
        yield ""
        yield table(columns, rows, columns[:2])


def _document(traced: "TracedDocument") -> Iterator[Part]:
    yield f"{traced.name}: source {traced.source}, {traced.place}"
    if traced.absent is not None:
        yield f"in no sequence: {traced.absent}"
        return
    rows = []
    for piece in traced.pieces:
        part = _range(piece.document_start, piece.num_document_tokens)
        rows.append((str(piece.sequence), _range(piece.start, piece.length), part, str(piece.epoch)))
    sequences = counted(len({piece.sequence for piece in traced.pieces}), "sequence")
    yield f"{counted(traced.document_length, 'token')}; {counted(len(rows), 'piece')} in {sequences}"
    yield ""
    columns = ("sequence", "tokens", "of the document's", "epoch")
    yield table(columns, rows, columns)


def _range(start: int, length: int) -> str:
    """The first and the last of the tokens [start, start + length)."""
    return f"{start}–{start + length - 1}"
