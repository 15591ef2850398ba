"""`tokmill trace` and `tokmill data`: from sequences to documents and back, exports, impact and takedowns."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from tokmill.flows.cli.app import Answer, app, command, in_data
from tokmill.flows.cli.options import DEFAULT, ExistingStore, find_artifact
from tokmill.flows.cli.output import Part, Table, called, require_new, shown_address
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted, key_figures, shown
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.markdown import number
from tokmill.tasks.core.stage import NO_SOURCE

if TYPE_CHECKING:
    from tokmill.tasks.store import Store
    from tokmill.tasks.takedown.impact import Impact
    from tokmill.tasks.takedown.request import TakenDown
    from tokmill.tasks.tracing import Origins, TracedDocument, TracedSequence

_SHOWN_CHARS = 60
PackedArgument = Annotated[
    str, Argument(metavar="PACKED", help="packed/name, packed/name@v3, or a fingerprint's first digits.")
]
RootOption = Annotated[
    list[str] | None,
    Option(metavar="SOURCE=FOLDER", help="The folder or URL of a source's files, if they moved; repeatable."),
]


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
    origins = _origins(store, packed, root)
    if document is not None:
        documents = trace_document(origins, document)
        return Answer(documents, _joined(map(_document, documents)))
    reference = origins.packed.reference
    traced = [trace_sequence(origins, place) for place in sequence or ()]
    entries = [{"packed": reference, **one.model_dump(mode="json")} for one in traced]
    parts = _joined(_sequence(reference, one) for one in traced)
    return Answer(entries[0] if len(entries) == 1 else entries, parts)


def _origins(store: "Store", packed: str, roots: list[str] | None) -> "Origins":
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
        yield from [""] * (index > 0)
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
        yield Table(columns, rows, columns[:2])


def _document(traced: "TracedDocument") -> Iterator[Part]:
    yield f"{traced.name}: source {traced.source}, {traced.place}"
    if traced.absent is not None:
        yield f"in no sequence: {traced.absent}"
        return
    rows = [
        (
            *(str(piece.sequence), _range(piece.start, piece.length)),
            *(_range(piece.document_start, piece.num_document_tokens), str(piece.epoch)),
        )
        for piece in traced.pieces
    ]
    sequences = counted(len({piece.sequence for piece in traced.pieces}), "sequence")
    yield f"{counted(traced.document_length, 'token')}; {counted(len(rows), 'piece')} in {sequences}"
    yield ""
    columns = ("sequence", "tokens", "of the document's", "epoch")
    yield Table(columns, rows, columns)


def _range(start: int, length: int) -> str:
    """Return the first and the last of the tokens [start, start + length)."""
    return f"{start}–{start + length - 1}"


@command(
    in_data,
    "tokmill data export packed/quickstart --format megatron",
    "tokmill data export packed/quickstart --format arrow --format mds --out data/quickstart",
)
def export(
    packed: PackedArgument,
    formats: list[str] = Option(
        ...,
        "--format",
        "-f",
        metavar="FORMAT",
        help="arrow, jsonl, mds, megatron, memmap, npy or parquet; repeatable.",
    ),
    out: Path | None = Option(
        None, "--out", "-o", metavar="FOLDER", help="Also copy the files to this new folder, with checksums."
    ),
    labels: bool = Option(False, "--labels", help="Also labels, attention_mask, OLMo's label_mask files."),
    store: ExistingStore = DEFAULT,
) -> Answer:
    """Write packed sequences in another format.

    Nothing is encoded or packed again.
    """
    from tokmill.flows.library.derived import copy_out, export_packed, parse_formats

    wanted = parse_formats(formats)
    ref = find_artifact(store, packed, "packed")
    require_new("export", out, "folder")
    with store.at_work("export"):
        made = export_packed(store, ref, wanted, labels=labels)
        path = store.path(made) if out is None else copy_out(store, made, out)
    metrics, name = dict(store.record(made).metrics), called(store, made)
    holds = key_figures("packed", metrics)
    return Answer(
        {"artifact": name, "path": str(path), "metrics": metrics},
        [{"artifact": name, "files": shown(path), "formats": ", ".join(wanted), "holds": holds}],
    )


@command(
    in_data,
    "tokmill data impact text/web.jsonl",
    "tokmill data impact text/web.jsonl:17",
    "tokmill data impact 's3://bucket/web/*.jsonl.zst' --json",
)
def impact(
    file: str = Argument(
        ..., metavar="FILE", help="Path, glob, URL or digest of content; :ROW after it for a row."
    ),
    store: ExistingStore = DEFAULT,
) -> Answer:
    """List the artifacts that a file, or a row of it, went into.

    Rows are counted from 0; the file may be gone.
    """
    from tokmill.tasks.takedown.impact import impact_of

    reached = impact_of(store, file)
    artifacts = [each._asdict() for each in reached.artifacts]
    files = [each._asdict() for each in reached.files]
    return Answer({"files": files, "row": reached.row, "artifacts": artifacts}, _impact(reached))


def _impact(reached: "Impact") -> Iterator[Part]:
    from tokmill.tasks.store.layout import printable

    for file in reached.files:
        yield printable(f"{file.source}:{file.name}  {file.origin}  {file.digest[:16]}")
    yield ""
    rows = [
        (
            each.reference,
            each.holds,
            "" if each.sequences is None else counted(each.sequences, "sequence"),
            each.why,
        )
        for each in reached.artifacts
    ]
    yield Table(("artifact", "holds", "where", "why"), rows)


@command(
    in_data,
    "tokmill data takedown packed/quickstart --documents list.txt",
    "tokmill data takedown packed/quickstart@v3 --documents list.txt --json",
    'tokmill data takedown packed/quickstart --documents list.txt --reason "case 17"',
)
def takedown(
    packed: PackedArgument,
    documents: Path = Option(
        ...,
        "--documents",
        "-d",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="One SOURCE:ID or SOURCE:FILE:ROW per line; lines that begin with # are comments.",
    ),
    repack: bool = Option(False, "--repack", help="Pack again without them, not padding instead."),
    reason: str = Option("", metavar="TEXT", help="Why; kept in the records of new and old."),
    root: RootOption = None,
    store: ExistingStore = DEFAULT,
) -> Answer:
    """Make a version of packed sequences without some documents.

    They are replaced by padding.
    """
    from tokmill.tasks.store.record import check_reason
    from tokmill.tasks.takedown.request import read_names, take_down

    try:
        why = check_reason(reason.strip())
    except StoreError as error:
        raise UsageError(f"takedown: {error}") from error
    origins = _origins(store, packed, root)
    with store.at_work("takedown"):
        taken = take_down(origins, read_names(documents), repacked=repack, reason=why)
    record = taken.record
    version = record and {
        "reference": record.reference,
        "path": store.address(record.ref),
        "fingerprint": record.fingerprint,
        "metrics": record.metrics,
        "accounts": taken.accounts,
    }
    document = {
        "packed": origins.packed.reference,
        "made": taken.made,
        "version": version,
        "documents": [document.name for document in taken.documents],
        "card": taken.card.reference if taken.card else None,
        "holders": [holder.reference for holder in taken.holders],
        "absent": [{"name": document.name, "why": why} for document, why in taken.absent],
    }
    return Answer(document, _taken(origins, taken))


def _taken(origins: "Origins", taken: "TakenDown") -> Iterator[Part]:
    record = taken.record
    for document, why in taken.absent:
        yield f"{document.name}: in no sequence: {why}"
    if record is None:
        yield f"{origins.packed.reference} has none of the documents; nothing to do"
    else:
        how = "made" if taken.made else "exists already"
        yield f"{record.reference} {how}: {_changes(origins, taken)}"
        yield ""
        rows = [
            (account.source, account.unit, gone, account.num_in - gone)
            for account in taken.accounts
            if (gone := account.became.get("taken_down")) and account.source != NO_SOURCE
        ]
        yield Table(("source", "unit", "taken down", "left"), rows, ("taken down", "left"))
        read = sum(each.became.get("taken_down", 0) for each in taken.accounts if each.unit == "documents")
        if read > len(taken.documents):
            yield "a document counts here as often as the mixture reads it: once per epoch"
        yield f"\npacked shards  {shown_address(origins.store, record.ref)}"
        if taken.card is not None:
            yield f"data card      {taken.card.reference}"
    if taken.holders:
        yield "\nthese still contain documents of the list; `tokmill store remove ARTIFACT` deletes one"
    for holder in taken.holders:
        yield f"  {holder.reference}{f' (perhaps: {holder.unknown})' if holder.unknown else ''}"


def _changes(origins: "Origins", taken: "TakenDown") -> str:
    """Describe a takedown in one line, from the metrics of the old and the new version."""
    before, after = origins.packed.metrics, taken.record.metrics if taken.record else {}
    documents, num_sequences = counted(len(taken.documents), "document"), number(after["num_sequences"])
    if "num_changed_sequences" not in after:
        old = number(before["num_sequences"])
        return f"packed again without {documents}, {num_sequences} sequences instead of {old}"
    sequences = counted(int(after["num_changed_sequences"]), "sequence")
    shards = f"{counted(int(after['num_changed_shards']), 'shard')} of {number(after['num_shards'])}"
    return f"{documents} taken out of {sequences} of {num_sequences}, in {shards}"
