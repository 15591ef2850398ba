"""`tokmill report` and `tokmill vocab suspects`: what audits and sweeps say, as pages and on the terminal."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from tokmill.flows.cli.app import Answer, app, command, in_vocab
from tokmill.flows.cli.options import DEFAULT, ExistingStore, find_artifact, load_tokenizers
from tokmill.flows.cli.output import Part, Table, require_new
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import percentage
from tokmill.tasks.core.markdown import number

if TYPE_CHECKING:
    import pyarrow as pa

    from tokmill.tasks.audit.learned import Learned

EmbeddingsOption = Annotated[
    Path | None,
    Option(metavar="MODEL", help="A safetensors file, index or folder: what the model learned least."),
]
EmbeddingTensorOption = Annotated[
    list[str] | None,
    Option("--tensor", help="Tensor of the input embeddings, and again for the output's; default: by name."),
]
_SHOWN_CHARS = 24
_HEADS = {
    **{"token_id": "id", "text": "token", "num_occurrences": "found", "context": "in text"},
    **{"suspect_rank": "rank as suspect", "indicator_rank": "its rank", "num_both": "in both"},
}
_SUSPECTS = ("token_id", "text", "reason", "expected", "num_occurrences")
_LEAST = ("rank", "token_id", "text", "kind", "indicator", "suspect_rank")
_USAGE = """
    SELECT a.fingerprint FROM artifacts a JOIN inputs i USING (fingerprint)
    WHERE a.kind = 'usage' AND i.role = 'audit' AND i.digest = $digest ORDER BY a.ended DESC LIMIT 1
"""


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
    rows, learned = _suspects(store.path(audit), store.path(ref), embeddings, tensor)
    document: dict[str, Any] = {"num_suspects": len(rows), "suspects": rows.slice(0, limit).to_pylist()}
    if learned is not None:
        document |= {
            "indicator": learned.indicator,
            "suspects": learned.suspects.slice(0, limit).to_pylist(),
            "least_trained": learned.least.slice(0, limit).to_pylist(),
            "agreement": learned.agreement.to_pylist(),
        }
    return Answer(document, _shown(document))


def _suspects(
    audit: Path, usage: Path, model: Path | None, tensors: list[str] | None
) -> "tuple[pa.Table, Learned | None]":
    """Return the suspects of what was encoded since an audit; and compared with a model's embeddings."""
    from tokmill.tasks.audit.learned import compare_with_model
    from tokmill.tasks.audit.tokens import read_table, read_tokens

    tokens, names = read_tokens(audit), tensors or []
    rows = read_table(usage, "vocab_suspects", len(tokens))
    if model is None and names:
        raise UsageError("--tensor names a matrix of --embeddings; give both, or neither")
    if model is None:
        return rows, None
    if len(names) > 2:
        raise UsageError(f"--tensor: {len(names)} are given; name the input embeddings, then the output's")
    return rows, compare_with_model(tokens, rows, model, names=(names[0], names[-1]) if names else None)


def _shown(document: dict[str, Any]) -> Iterator[Part]:
    rows = document["suspects"]
    yield f"{len(rows):,} of {document['num_suspects']:,} suspects, the most suspicious first"
    indicator = document.get("indicator")
    if indicator is None:
        yield _table(rows, *_SUSPECTS, "context")
        return
    yield _table(rows, *_SUSPECTS, "indicator", "indicator_rank", "context")
    yield f"\nLeast trained in the model, by {indicator}; the lower, the less"
    yield _table(document["least_trained"], *_LEAST)
    if document["agreement"]:
        yield "\nSuspects among as many of the least trained"
        yield _table(document["agreement"], "first", "num_both", "share")


def _table(rows: list[dict[str, Any]], *names: str) -> Table:
    """Return some columns of a table, the text of a token quoted, the number columns to the right."""
    heads = {name: _HEADS.get(name, name) for name in names}
    right = [head for name, head in heads.items() if name not in {"text", "reason", "kind", "context"}]
    return Table(list(heads.values()), [[_cell(name, row[name]) for name in names] for row in rows], right)


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
            return str(out / write_sweep_report(store.path(ref), folder).name)
    from tokmill.tasks.audit.report import write_report
    from tokmill.tasks.formats.tokenizer import open_tokenizer

    others, learned = load_tokenizers(compare or [], store.location), None
    newest = store.catalog.query(_USAGE, {"digest": ref.content_digest})
    usage = store.path(store.resolve(newest[0]["fingerprint"])) if newest else None
    if embeddings is not None or tensor:
        if usage is None:
            raise UsageError("report: nothing was encoded since this audit, so no suspects can be compared")
        _, learned = _suspects(store.path(ref), usage, embeddings, tensor)
    (made_of,) = store.record(ref).refs("tokenizer")
    tokenizer = open_tokenizer(store.path(made_of))
    with whole_folder(out) as folder:
        page = write_report(
            store.path(ref), folder, tokenizer=tokenizer, compared=others, usage=usage, learned=learned
        )
    return str(out / page.name)
