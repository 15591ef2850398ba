"""`tokmill vocab extend`, `trim` and `resize`: change a vocabulary, and a model's embeddings with it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typer import Argument, Option

from tokmill.flows.cli.app import Answer, command, in_vocab
from tokmill.flows.cli.lookup import existing_store, find_artifact
from tokmill.flows.cli.options import StoreOption
from tokmill.flows.cli.output import Part, require_new, shown, shown_address, table, warning
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted, key_figures
from tokmill.tasks.core.faults import read_named
from tokmill.tasks.core.markdown import percent

if TYPE_CHECKING:
    from tokmill.tasks.core.stage import ArtifactRef, Params, Stage
    from tokmill.tasks.store import Store

_TERMS_SHOWN = 12
_MAX_SEED = (1 << 63) - 1
_MAX_PADDING = 1 << 20

TokenizerArgument = Annotated[
    str, Argument(metavar="TOKENIZER", help="tokenizer/name, or a file or folder in a known format.")
]
NameOption = Annotated[str | None, Option(help="Name of the new tokenizer; default: the old one's.")]
CorpusOption = Annotated[
    list[str] | None, Option(metavar="FILES", help="Texts of the domain, a file or a pattern; repeatable.")
]
OthersOption = Annotated[
    list[str] | None, Option(metavar="FILES", help="Other texts, for the report alone; repeatable.")
]
ColumnOption = Annotated[str, Option(help="Column of the text in JSONL, Parquet, …")]
PatternOption = Annotated[str | None, Option(help="For files that do not say it: cl100k, o200k, …")]


@command(
    in_vocab,
    "tokmill vocab extend tokenizer/own --terms terms.txt --corpus 'medical/*.jsonl'",
    "tokmill vocab extend cl100k_base.tiktoken --split-pattern cl100k --mine 500 --corpus notes.txt",
    "tokmill vocab extend tokenizer/own --merges 2000 --corpus 'medical/*.jsonl' --others 'web/*.jsonl'",
)
def extend(
    tokenizer: TokenizerArgument,
    terms: Path | None = Option(None, help="A file with a term a line."),
    mine: int = Option(0, min=0, metavar="N", help="Also add the N words that save most tokens."),
    merges: int = Option(0, min=0, metavar="N", help="Also learn N merges from the texts."),
    forms: Literal["both", "spaced", "bare"] = Option(
        "both", help="Terms with a blank before, without, or both."
    ),
    corpus: CorpusOption = None,
    others: OthersOption = None,
    text_column: ColumnOption = "text",
    split_pattern: PatternOption = None,
    name: NameOption = None,
    store: StoreOption = None,
) -> Answer:
    """Add terms or merges to a vocabulary; no old id changes."""
    from tokmill.tasks.vocabulary.stage import EXTEND

    options = {"terms": _terms(terms), "num_mined": mine, "num_merges": merges, "forms": forms}
    files = {"texts": corpus or [], "others": others or []}
    return _made(EXTEND, tokenizer, options, files, (text_column, split_pattern, name, store))


@command(in_vocab, "tokmill vocab trim tokenizer/own --to 32000 --corpus 'data/*.jsonl.zst'")
def trim(
    tokenizer: TokenizerArgument,
    to: int = Option(..., min=257, metavar="N", help="Tokens that are to be left."),
    corpus: CorpusOption = None,
    others: OthersOption = None,
    text_column: ColumnOption = "text",
    split_pattern: PatternOption = None,
    name: NameOption = None,
    store: StoreOption = None,
) -> Answer:
    """Remove the tokens that the texts need least."""
    from tokmill.tasks.vocabulary.stage import TRIM

    if not corpus:
        raise UsageError("trim: --corpus is needed: tokens that occur least often in it are taken away")
    files = {"texts": corpus, "others": others or []}
    about = (text_column, split_pattern, name, store)
    return _made(TRIM, tokenizer, {"vocab_size": to}, files, about)


@command(
    in_vocab,
    "tokmill vocab resize model/ --plan tokenizer/own --out model-extended",
    "tokmill vocab resize model.safetensors --plan embedding-plan.json --method normal --out new",
    name="resize",
)
def resize_embeddings(
    model: Path = Argument(..., help="A safetensors file, an index of shards, or their folder."),
    plan: str = Option(..., help="An embedding-plan.json, or the tokenizer that has one."),
    out: Path = Option(..., "--out", "-o", help="A new folder."),
    method: Literal["mean", "weighted_mean", "normal"] = Option(
        "mean", help="New rows: the (weighted) mean of their parts' rows, or at random."
    ),
    seed: int = Option(0, min=0, max=_MAX_SEED, help="Seed of --method normal."),
    tensor: list[str] | None = Option(None, help="A tensor to resize; usual names by default."),
    pad_to_multiple_of: int = Option(1, min=1, max=_MAX_PADDING, help="Add rows up to a multiple of this."),
    store: StoreOption = None,
) -> Answer:
    """Resize a model's embeddings for a changed vocabulary."""
    from tokmill.tasks.embeddings.resize import resize_embeddings as resize

    require_new("resize", out, "folder")
    done = resize(
        model,
        _plan(plan, store),
        out,
        method=method,
        seed=seed,
        names=tuple(tensor or ()),
        pad_to_multiple_of=pad_to_multiple_of,
    )
    shapes = {name: [" × ".join(map(str, each)) for each in pair] for name, pair in done.tensors.items()}
    changed = {name: " → ".join(pair) for name, pair in shapes.items()}
    tied = {"tied": "the output shares the input's matrix, as config.json says"} if done.tied else {}
    document = {"out": str(out), "tied": done.tied, "tensors": changed}
    return Answer(document, [{**changed, **tied, "files": shown(out)}])


def _terms(file: Path | None) -> tuple[str, ...]:
    """Return the lines of a file of terms, without blank ones, comments and repetitions."""
    from tokmill.tokenizer.core.text import split_lines

    if file is None:
        return ()
    try:
        lines = split_lines(read_named(file))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"extend: {file} cannot be read as UTF-8: {error}") from error
    return tuple(dict.fromkeys(line for line in lines if line.strip() and not line.startswith("#")))


def _made(
    stage: "Stage[Any]",
    tokenizer: str,
    options: Mapping[str, Any],
    files: Mapping[str, Sequence[str]],
    about: tuple[str, str | None, str | None, str | None],
) -> Answer:
    """Publish a changed tokenizer, and say where it is."""
    from pydantic import ValidationError

    from tokmill.flows.library.derived import change
    from tokmill.flows.profile.problems import first_problem
    from tokmill.flows.run.machine import store_url, writable_store

    text_column, split_pattern, name, location = about
    store = writable_store(store_url(location))
    try:
        params: Params = stage.params(**options, read={"text_column": text_column})
    except ValidationError as error:
        raise UsageError(first_problem(error)) from error
    made = change(store, stage, params, tokenizer, files, split_pattern=split_pattern, name=name)
    called = f"{made.kind}/{made.name}@{store.label(made, made.name)}"
    metrics = dict(store.record(made).metrics)
    return Answer(
        {"artifact": called, "path": store.address(made), "metrics": metrics}, _shown(store, made, called)
    )


def _shown(store: "Store", made: "ArtifactRef", called: str) -> Iterator[Part]:
    from tokmill.tasks.formats.files.manifests import read_model
    from tokmill.tasks.vocabulary.report import Report

    figures = store.record(made).metrics
    saved = "not measured: name texts of the domain with --corpus"
    if "num_saved_tokens" in figures:
        share = percent(float(figures["saved_share"]))
        saved = f"{figures['num_saved_tokens']:,} tokens of the texts ({share})"
    yield {
        "artifact": called,
        "holds": key_figures("tokenizer", figures),
        "changed": f"{figures['num_changed_tokens']:,} tokens",
        "saved": saved,
        "report": shown_address(store, made, "report.md"),
        "embedding plan": shown_address(store, made, "embedding-plan.json"),
    }
    report = read_model(store.path(made) / "report.json", Report, "report")
    if report.skipped:
        yield f"not added: {counted(len(report.skipped), 'form')} of terms; the report has the reasons"
    terms = [(repr(term)[1:-1], f"{number:,}") for term, number in report.saved_by_term.items()]
    if terms:
        yield table(("term", "tokens saved"), terms[:_TERMS_SHOWN], right=("tokens saved",))
    if len(terms) > _TERMS_SHOWN:
        yield f"and {len(terms) - _TERMS_SHOWN:,} more in the report"
    if report.warning:
        yield warning(report.warning)


def _plan(reference: str, store: str | None) -> Any:
    """Read an embedding plan from a file or from the tokenizer that has it."""
    import orjson

    from tokmill.tasks.vocabulary.stage import PLAN_FILE
    from tokmill.tokenizer.adaptation.plan import EmbeddingPlan

    file = Path(reference)
    if not file.is_file():
        opened = existing_store(store)
        file = opened.path(find_artifact(opened, reference)) / PLAN_FILE
    try:
        spec = orjson.loads(read_named(file))
    except (OSError, orjson.JSONDecodeError) as error:
        raise UsageError(
            f"resize: {file} is not an embedding plan ({error}); give that of `tokmill vocab extend` or "
            "`tokmill vocab trim`"
        ) from error
    if not isinstance(spec, dict):
        raise UsageError(f"resize: {file} is not an embedding plan")
    return EmbeddingPlan.from_spec(spec, str(file))
