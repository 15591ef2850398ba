"""`tokmill report`: the report of an audit as a folder, with charts and with other tokenizers beside it."""

from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from tokmill.flows.cli.app import app, command
from tokmill.flows.cli.lookup import find_artifact, load_tokenizers
from tokmill.flows.cli.options import DEFAULT, EmbeddingsOption, EmbeddingTensorOption, ExistingStore
from tokmill.flows.cli.output import require_new
from tokmill.flows.errors import UsageError

if TYPE_CHECKING:
    from tokmill.tasks.core.stage import ArtifactRef
    from tokmill.tasks.store import Store

_USAGE = """
    SELECT a.fingerprint FROM artifacts a JOIN inputs i USING (fingerprint)
    WHERE a.kind = 'usage' AND i.role = 'audit' AND i.digest = $digest ORDER BY a.ended DESC LIMIT 1
"""


@command(
    app,
    "tokmill report own --out report",
    "tokmill report sweep/own --out report",
    "tokmill report audit/own@v2 --out report --compare gpt2/vocab.json --compare tokenizer/own@v1",
    "tokmill report own --out report --embeddings model/",
)
def report(
    audit: str = Argument(
        ...,
        metavar="AUDIT",
        help="audit/name or sweep/name, with a version; a fingerprint; or an audit's name.",
    ),
    out: Path = Option(..., "--out", "-o", help="A new folder."),
    compare: list[str] | None = Option(None, metavar="TOKENIZER", help="Shown beside it; repeatable."),
    embeddings: EmbeddingsOption = None,
    tensor: EmbeddingTensorOption = None,
    store: ExistingStore = DEFAULT,
) -> str:
    """Write an audit or a sweep as an HTML page with its charts."""
    from tokmill.tasks.store.disk import whole_folder

    require_new("report", out, "folder")
    ref = find_artifact(store, audit, "audit", "sweep")
    if ref.kind == "sweep":
        from tokmill.tasks.sweep.report import write_sweep_report

        if compare or embeddings or tensor:
            raise UsageError(f"report: {audit} is a sweep; --compare and --embeddings are for audits")
        with whole_folder(out) as folder:
            page = write_sweep_report(store.path(ref), folder)
        return str(out / page.name)
    from tokmill.flows.commands.suspects import learned_from, read_both
    from tokmill.tasks.audit.report import write_report
    from tokmill.tasks.formats.tokenizer import open_tokenizer

    others, usage, learned = load_tokenizers(compare or [], store.location), _usage(store, ref), None
    if embeddings is not None or tensor:
        if usage is None:
            raise UsageError("report: nothing was encoded since this audit, so no suspects can be compared")
        learned = learned_from(*read_both(store.path(ref), usage), embeddings, tensor)
    (made_of,) = store.record(ref).refs("tokenizer")
    tokenizer = open_tokenizer(store.path(made_of))
    with whole_folder(out) as folder:
        page = write_report(
            store.path(ref), folder, tokenizer=tokenizer, compared=others, usage=usage, learned=learned
        )
    return str(out / page.name)


def _usage(store: "Store", audit: "ArtifactRef") -> Path | None:
    """Return the folder of the newest usage artifact of an audit with this content, if there is one."""
    rows = store.catalog.query(_USAGE, {"digest": audit.content_digest})
    return store.path(store.resolve(rows[0]["fingerprint"])) if rows else None
