"""`tokmill report`: the report of an audit as a folder, with charts and with other tokenizers beside it."""

from pathlib import Path
from typing import TYPE_CHECKING

from typer import Argument, Option

from tokmill.flows.cli.app import app, command
from tokmill.flows.cli.lookup import existing_store, find_artifact
from tokmill.flows.cli.options import EmbeddingsOption, EmbeddingTensorOption, StoreOption
from tokmill.flows.cli.output import require_new, say
from tokmill.flows.errors import UsageError

if TYPE_CHECKING:
    from tokmill.tasks.audit.learned import Learned
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
    store: StoreOption = None,
) -> None:
    """Write an audit or a sweep as an HTML page with its charts."""
    from tokmill.flows.commands.compare import load_one, names_of
    from tokmill.tasks.audit.report import write_report
    from tokmill.tasks.formats.tokenizer import open_tokenizer
    from tokmill.tasks.store.disk import whole_folder

    require_new("report", out, "folder")
    opened = existing_store(store)
    ref = find_artifact(opened, audit, kind="audit")
    if ref.kind == "sweep":
        from tokmill.tasks.sweep.report import write_sweep_report

        if compare or embeddings or tensor:
            raise UsageError(f"report: {audit} is a sweep; --compare and --embeddings are for audits")
        with whole_folder(out) as folder:
            page = write_sweep_report(opened.path(ref), folder)
        say(str(out / page.name))
        return
    if ref.kind != "audit":
        raise UsageError(f"report: {audit} is a {ref.kind}; name an audit or a sweep")
    (made_of,) = opened.record(ref).refs("tokenizer")
    others = {name: load_one(one, store) for name, one in names_of(compare or []).items()}
    usage = _usage(opened, ref)
    learned = _learned(opened.path(ref), usage, embeddings, tensor)
    tokenizer = open_tokenizer(opened.path(made_of))
    with whole_folder(out) as folder:
        page = write_report(
            opened.path(ref), folder, tokenizer=tokenizer, compared=others, usage=usage, learned=learned
        )
    say(str(out / page.name))


def _learned(
    audit: Path, usage: Path | None, model: Path | None, tensors: list[str] | None
) -> "Learned | None":
    """Compare the suspects with a model, if one is given."""
    from tokmill.flows.commands.suspects import learned_from, read_both

    if model is None and not tensors:
        return None
    if usage is None:
        raise UsageError("report: nothing was encoded since this audit, so there are no suspects to compare")
    return learned_from(*read_both(audit, usage), model, tensors)


def _usage(store: "Store", audit: "ArtifactRef") -> Path | None:
    """Return the folder of the newest usage artifact of an audit with this content, if there is one."""
    rows = store.catalog.query(_USAGE, {"digest": audit.content_digest})
    return store.path(store.resolve(rows[0]["fingerprint"])) if rows else None
