"""`tokmill export`: writes packed sequences in another format, to the store and optionally to a folder."""

from pathlib import Path
from typing import Annotated

import typer

from tokmill.flows.cli.app import app, examples
from tokmill.flows.cli.options import JsonOption, StoreOption
from tokmill.flows.cli.output import draw, pairs, print_json, shown
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import key_figures


@app.command(
    rich_help_panel="Store",
    epilog=examples(
        "tokmill export packed/quickstart --format megatron",
        "tokmill export packed/quickstart --format arrow --format mds --out data/quickstart",
    ),
)
def export(
    packed: Annotated[
        str,
        typer.Argument(
            metavar="PACKED", help="packed/name, packed/name@v3, or first digits of a fingerprint."
        ),
    ],
    formats: Annotated[
        list[str],
        typer.Option(
            "--format",
            "-f",
            metavar="FORMAT",
            help="arrow, jsonl, mds, megatron, memmap, npy or parquet; may be given several times.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FOLDER",
            help="Also copy the files to this new folder, with checksums.",
        ),
    ] = None,
    labels: Annotated[
        bool,
        typer.Option("--labels", help="Also write labels, attention_mask, and OLMo's label_mask files."),
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write packed sequences in another format, without encoding or packing again."""
    from tokmill.flows.cli.lookup import existing_store, find_artifact
    from tokmill.flows.library.derived import copy_out, export_packed, parse_formats

    wanted = parse_formats(formats)
    opened = existing_store(store)
    ref = find_artifact(opened, packed)
    if ref.kind != "packed":
        raise UsageError(f"export: {packed} is a {ref.kind}, not packed sequences; name a packed/NAME")
    if out is not None and out.exists():
        raise UsageError(f"export: {out} exists; name a new folder")
    with opened.at_work("export"):
        made = export_packed(opened, ref, wanted, labels=labels)
        path = opened.path(made) if out is None else copy_out(opened, made, out)
    record = opened.record(made)
    called = f"{made.kind}/{made.name}@{opened.label(made, made.name)}"
    if as_json:
        print_json({"artifact": called, "path": str(path), "metrics": dict(record.metrics)})
        return
    rows = {
        "artifact": called,
        "files": shown(path),
        "formats": ", ".join(wanted),
        "holds": key_figures("packed", record.metrics),
    }
    draw(pairs(rows))
