"""`tokmill report` and `tokmill vocab suspects`: what audits and sweeps say, as pages and on the terminal."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer import Argument, Option

from tokmill.flows.cli.app import Answer, app, command, in_vocab
from tokmill.flows.cli.lookup import find_artifact, load_tokenizers
from tokmill.flows.cli.options import DEFAULT, EmbeddingsOption, EmbeddingTensorOption, ExistingStore
from tokmill.flows.cli.output import Part, require_new, table
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import percentage
from tokmill.tasks.core.markdown import number

if TYPE_CHECKING:
    import pyarrow as pa

    from tokmill.tasks.audit.learned import Learned
    from tokmill.tasks.core.stage import ArtifactRef
    from tokmill.tasks.store import Store

_SHOWN_CHARS = 24
_COLUMNS = {
    "token_id": "id",
    "text": "token",
    "reason": "reason",
    "expected": "expected",
    "num_occurrences": "found",
}
_CONTEXT = {"context": "in text"}
_LEARNED_COLUMNS = {"indicator": "indicator", "indicator_rank": "its rank"}


@command(
    in_vocab,
    "tokmill vocab suspects own",
    "tokmill vocab suspects usage/own@v2 --limit 100 --json",
    "tokmill vocab suspects own --embeddings model/",
)
def suspects(
    usage: str = Argument(..., metavar="USAGE", help="usage/name, with a version; or just the name."),
    embeddings: EmbeddingsOption = None,
    tensor: EmbeddingTensorOption = None,
    limit: int = Option(20, min=1, max=1 << 31, help="How many are shown."),
    store: ExistingStore = DEFAULT,
) -> Answer:
    """Show tokens that a model hardly ever sees, or has learned least."""
    ref = find_artifact(store, usage, "usage")
    (audit,) = store.record(ref).refs("audit")
    tokens, found = _tables(store.path(audit), store.path(ref))
    learned = _learned(tokens, found, embeddings, tensor)
    return Answer(_document(found, learned, limit), _shown(found, learned, limit))


def _tables(audit: Path, usage: Path) -> "tuple[pa.Table, pa.Table]":
    """Return `vocab_tokens` of an audit, and `vocab_suspects` of what was encoded since."""
    from tokmill.tasks.audit.tokens import read_table, read_tokens

    tokens = read_tokens(audit)
    return tokens, read_table(usage, "vocab_suspects", len(tokens))


def _learned(
    tokens: "pa.Table", found: "pa.Table", model: Path | None, tensors: list[str] | None
) -> "Learned | None":
    """Compare suspects with a model, if one is given, by its input embeddings and its output embeddings."""
    from tokmill.tasks.audit.learned import compare_with_model

    names = tensors or []
    if model is None:
        if names:
            raise UsageError("--tensor names a matrix of --embeddings; give both, or neither")
        return None
    if len(names) > 2:
        raise UsageError(f"--tensor: {len(names)} are given; name the input embeddings, then the output's")
    pair = (names[0], names[-1]) if names else None
    return compare_with_model(tokens, found, model, names=pair)


def _document(found: "pa.Table", learned: "Learned | None", limit: int) -> dict[str, Any]:
    suspects = (found if learned is None else learned.suspects).slice(0, limit).to_pylist()
    document = {"num_suspects": len(found), "suspects": suspects}
    if learned is None:
        return document
    return {
        **document,
        "indicator": learned.indicator,
        "least_trained": learned.least.slice(0, limit).to_pylist(),
        "agreement": learned.agreement.to_pylist(),
    }


def _shown(found: "pa.Table", learned: "Learned | None", limit: int) -> Iterator[Part]:
    yield f"{min(limit, len(found)):,} of {len(found):,} suspects, the most suspicious first"
    if learned is None:
        yield _table(found.slice(0, limit), _COLUMNS | _CONTEXT)
        return
    yield _table(learned.suspects.slice(0, limit), _COLUMNS | _LEARNED_COLUMNS | _CONTEXT)
    yield f"\nLeast trained in the model, by {learned.indicator}; the lower, the less"
    columns = {"rank": "rank", "token_id": "id", "text": "token", "kind": "kind", "indicator": "indicator"}
    yield _table(learned.least.slice(0, limit), columns | {"suspect_rank": "rank as suspect"})
    if len(learned.agreement):
        yield "\nSuspects among as many of the least trained"
        yield _table(learned.agreement, {"first": "first", "num_both": "in both", "share": "share"})


def _table(rows: "pa.Table", columns: dict[str, str]) -> Part:
    """Return some columns of a table, the text of a token quoted, the number columns to the right."""
    cells = [[_cell(name, row[name]) for name in columns] for row in rows.to_pylist()]
    right = [title for name, title in columns.items() if name not in {"text", "reason", "kind", "context"}]
    return table(list(columns.values()), cells, right)


def _cell(name: str, value: Any) -> str:
    from tokmill.tokenizer.core.text import readable

    if name in {"text", "context"} and value is not None:
        cut = name == "text" and len(value) > _SHOWN_CHARS
        text = readable((f"{value[:_SHOWN_CHARS]}…" if cut else value).encode())
        text = text.replace("\\\\", "\\")  # backslashes stand for bytes that are not text
        return f"'{text}'" if name == "text" else text
    if name == "share" and value is not None:
        return percentage(value, 0)
    if name == "expected" and value is not None:
        return f"{value:,.0f}"
    return f"{value:.4g}" if isinstance(value, float) else number(value)


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
    from tokmill.tasks.audit.report import write_report
    from tokmill.tasks.formats.tokenizer import open_tokenizer

    others, usage, learned = load_tokenizers(compare or [], store.location), _usage(store, ref), None
    if embeddings is not None or tensor:
        if usage is None:
            raise UsageError("report: nothing was encoded since this audit, so no suspects can be compared")
        learned = _learned(*_tables(store.path(ref), usage), embeddings, tensor)
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
