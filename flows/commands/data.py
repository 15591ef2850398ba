"""`tokmill data`: export packed sequences, find the artifacts that a text went into, and take it down."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from tokmill.flows.cli.app import command, in_data
from tokmill.flows.cli.lookup import existing_store, find_artifact
from tokmill.flows.cli.options import JsonOption, PackedArgument, RootOption, StoreOption
from tokmill.flows.cli.output import draw, pairs, print_json, require_new, say, shown, shown_address, table
from tokmill.flows.commands.trace import origins_of
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted, key_figures
from tokmill.tasks.core.errors import StoreError, TracingError
from tokmill.tasks.core.markdown import number
from tokmill.tasks.core.stage import NO_SOURCE, Scalar

if TYPE_CHECKING:
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
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write packed sequences in another format.

    Nothing is encoded or packed again.
    """
    from tokmill.flows.library.derived import copy_out, export_packed, parse_formats

    wanted = parse_formats(formats)
    opened = existing_store(store)
    ref = find_artifact(opened, packed)
    if ref.kind != "packed":
        raise UsageError(f"export: {packed} is a {ref.kind}, not packed sequences; name a packed/NAME")
    require_new("export", out, "folder")
    with opened.at_work("export"):
        made = export_packed(opened, ref, wanted, labels=labels)
        path = opened.path(made) if out is None else copy_out(opened, made, out)
    record = opened.record(made)
    called = f"{made.kind}/{made.name}@{opened.label(made, made.name)}"
    if as_json:
        print_json({"artifact": called, "path": str(path), "metrics": dict(record.metrics)})
        return
    holds = key_figures("packed", record.metrics)
    draw(pairs({"artifact": called, "files": shown(path), "formats": ", ".join(wanted), "holds": holds}))


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
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the artifacts that a file, or a row of it, went into.

    Rows are counted from 0; the file may be gone.
    """
    from tokmill.tasks.store.layout import printable
    from tokmill.tasks.takedown.impact import impact_of

    try:
        found = impact_of(existing_store(store), file)
    except TracingError as error:
        raise UsageError(f"impact: {error}") from error
    if as_json:
        artifacts = [each._asdict() for each in found.artifacts]
        print_json(
            {"files": [each._asdict() for each in found.files], "row": found.row, "artifacts": artifacts}
        )
        return
    for each in found.files:
        say(printable(f"{each.source}:{each.name}  {each.origin}  {each.digest[:16]}"))
    say("")
    rows = []
    for artifact in found.artifacts:
        where = "" if artifact.sequences is None else counted(artifact.sequences, "sequence")
        rows.append([artifact.reference, artifact.holds, where, artifact.why])
    draw(table(("artifact", "holds", "where", "why"), rows))


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
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a version of packed sequences without some documents.

    They are replaced by padding.
    """
    from tokmill.tasks.store.tombstones import check_reason
    from tokmill.tasks.takedown.request import read_names, take_down

    try:
        why = check_reason(reason.strip())
    except StoreError as error:
        raise UsageError(f"takedown: {error}") from error
    try:
        origins = origins_of(packed, root, store)
        with origins.store.at_work("takedown"):
            names = read_names(documents)
            taken = take_down(origins, names, repacked=repack, reason=why)
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
        [account.source, account.unit, number(gone), number(account.num_in - gone)]
        for account in taken.accounts
        if (gone := account.became.get("taken_down")) and account.source != NO_SOURCE
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
    say("these still contain documents of the list; `tokmill store remove ARTIFACT` deletes one permanently:")
    for holder in taken.holders:
        say(f"  {holder.reference}{f' (perhaps: {holder.unknown})' if holder.unknown else ''}")


def _what_changed(taken: str, before: Mapping[str, Scalar], after: Mapping[str, Scalar]) -> str:
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
