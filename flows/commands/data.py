"""`tokmill data`: export packed sequences, find the artifacts that a text went into, and take it down."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from tokmill.flows.cli.app import Answer, command, in_data
from tokmill.flows.cli.lookup import find_artifact
from tokmill.flows.cli.options import DEFAULT, ExistingStore, PackedArgument, RootOption
from tokmill.flows.cli.output import Part, require_new, shown, shown_address, table
from tokmill.flows.commands.trace import origins_of
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted, key_figures
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.markdown import number
from tokmill.tasks.core.stage import NO_SOURCE, Scalar

if TYPE_CHECKING:
    from tokmill.tasks.takedown.impact import Impact
    from tokmill.tasks.takedown.request import TakenDown
    from tokmill.tasks.tracing import Origins


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
    ref = find_artifact(store, packed, "packed", bare=False)
    require_new("export", out, "folder")
    with store.at_work("export"):
        made = export_packed(store, ref, wanted, labels=labels)
        path = store.path(made) if out is None else copy_out(store, made, out)
    metrics = dict(store.record(made).metrics)
    called = f"{made.kind}/{made.name}@{store.label(made, made.name)}"
    holds = key_figures("packed", metrics)
    return Answer(
        {"artifact": called, "path": str(path), "metrics": metrics},
        [{"artifact": called, "files": shown(path), "formats": ", ".join(wanted), "holds": holds}],
    )


@command(
    in_data,
    "tokmill data impact text/web.jsonl",
    "tokmill data impact text/web.jsonl:17",
    "tokmill data impact 's3://bucket/web/*.jsonl.zst' --json",
)
def impact(
    file: str = Argument(
        ..., metavar="FILE", help="A path, a glob, a URL, or a digest of content; :ROW after it for one row."
    ),
    store: ExistingStore = DEFAULT,
) -> Answer:
    """List the artifacts that a file, or a row of it, went into.

    Rows are counted from 0; the file may be gone.
    """
    from tokmill.tasks.takedown.impact import impact_of

    found = impact_of(store, file)
    artifacts = [each._asdict() for each in found.artifacts]
    files = [each._asdict() for each in found.files]
    return Answer({"files": files, "row": found.row, "artifacts": artifacts}, _impact(found))


def _impact(found: "Impact") -> Iterator[Part]:
    from tokmill.tasks.store.layout import printable

    for file in found.files:
        yield printable(f"{file.source}:{file.name}  {file.origin}  {file.digest[:16]}")
    yield ""
    rows = []
    for artifact in found.artifacts:
        where = "" if artifact.sequences is None else counted(artifact.sequences, "sequence")
        rows.append([artifact.reference, artifact.holds, where, artifact.why])
    yield table(("artifact", "holds", "where", "why"), rows)


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
    repack: bool = Option(
        False, "--repack", help="Pack the mixture again without them, instead of replacing them by padding."
    ),
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
    origins = origins_of(store, packed, root)
    with store.at_work("takedown"):
        taken = take_down(origins, read_names(documents), repacked=repack, reason=why)
    return Answer(lambda: _taken_document(origins, taken), _taken(origins, taken))


def _taken_document(origins: "Origins", taken: "TakenDown") -> dict[str, object]:
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


def _taken(origins: "Origins", taken: "TakenDown") -> Iterator[Part]:
    record = taken.record
    for document, why in taken.absent:
        yield f"{document.name}: in no sequence: {why}"
    if record is None:
        yield f"{origins.packed.reference} has none of the documents; nothing to do"
    else:
        how = "made" if taken.made else "exists already"
        yield f"{record.reference} {how}: {_changes(origins.packed.metrics, taken)}"
        yield ""
        rows = [
            [account.source, account.unit, number(gone), number(account.num_in - gone)]
            for account in taken.accounts
            if (gone := account.became.get("taken_down")) and account.source != NO_SOURCE
        ]
        yield table(["source", "unit", "taken down", "left"], rows, ["taken down", "left"])
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


def _changes(before: Mapping[str, Scalar], taken: "TakenDown") -> str:
    """Describe a takedown in one line, from the metrics of the old and the new version."""
    after = taken.record.metrics if taken.record else {}
    documents, num_sequences = counted(len(taken.documents), "document"), number(after["num_sequences"])
    if "num_changed_sequences" not in after:
        return (
            f"packed again without {documents}, {num_sequences} sequences instead of "
            f"{number(before['num_sequences'])}"
        )
    sequences = counted(int(after["num_changed_sequences"]), "sequence")
    shards = f"{counted(int(after['num_changed_shards']), 'shard')} of {number(after['num_shards'])}"
    return f"{documents} taken out of {sequences} of {num_sequences}, in {shards}"
