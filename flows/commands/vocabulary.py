"""`tokmill vocab`: try tokenizers, and change a vocabulary with a model's embeddings."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from typer import Argument, Option

from tokmill.flows.cli.app import Answer, command, in_vocab
from tokmill.flows.cli.options import (
    MemoryOption,
    NoPrefectOption,
    ProfileArgument,
    SetOption,
    StoreOption,
    WorkersOption,
    existing_store,
    find_artifact,
)
from tokmill.flows.cli.output import Part, Table, called, notes, require_new, results, shown_address, warning
from tokmill.flows.commands.run import planned, watched
from tokmill.flows.errors import UsageError
from tokmill.flows.figures import counted, key_figures, shown
from tokmill.tasks.core.faults import read_named
from tokmill.tasks.core.markdown import percent

if TYPE_CHECKING:
    from tokmill.tasks.core.stage import ArtifactRef, Stage
    from tokmill.tasks.store import Store
    from tokmill.tasks.sweep.stage import SweepSummary

_WIDE = 100
_TERMS_SHOWN = 12
_MAX_SEED = (1 << 63) - 1
_MAX_PADDING = 1 << 20
_T = TypeVar("_T", int, float, str)

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
    "tokmill vocab sweep quickstart --vocab-size 1000,2000,4000",
    "tokmill vocab sweep own.toml --vocab-size 8000,16000 --temperature 1,3.3 --family byte_bpe,unigram",
    "tokmill vocab sweep own.toml --vocab-size 32000,64000 --d-model 4096 --num-layers 32 --json",
)
def sweep(
    profile: ProfileArgument,
    vocab_size: str | None = Option(None, metavar="N,…", help="Sizes to try.", show_default="the profile's"),
    temperature: str | None = Option(None, metavar="T,…", help="Temperatures.", show_default="the profile's"),
    family: str | None = Option(None, metavar="NAME,…", help="Families.", show_default="the profile's"),
    d_model: int = Option(2048, min=1, help="Width of the model."),
    num_layers: int = Option(24, min=1, help="Layers of the model."),
    context: int = Option(4096, min=1, help="Tokens in the model's context."),
    tied: bool = Option(False, "--tied", help="The output layer has the parameters of the embedding."),
    tolerance: float = Option(0.02, min=0, help="The share that a fairer tokenizer may cost more."),
    only_plan: bool = Option(False, "--plan", help="Show what would be made, and make nothing."),
    overrides: SetOption = None,
    store: StoreOption = None,
    workers: WorkersOption = None,
    memory: MemoryOption = None,
    no_prefect: NoPrefectOption = False,
) -> Answer:
    """Train tokenizers over a grid, compare them, and recommend one.

    The grid has families, temperatures and vocabulary sizes.
    """
    from tokmill.flows.library import api
    from tokmill.flows.profile import load_profile
    from tokmill.flows.run.machine import open_store, store_url
    from tokmill.flows.run.sweeping import grid_of, model_of
    from tokmill.flows.run.target import Target
    from tokmill.tasks.sweep.stage import SweepSummary

    tried = (
        _listed("--vocab-size", vocab_size, int),
        _listed("--temperature", temperature, float),
        _listed("--family", family, str),
    )
    model = model_of(d_model=d_model, num_layers=num_layers, context=context, tied=tied, tolerance=tolerance)
    loaded = load_profile(profile, overrides or [])
    location = store_url(store, loaded.execution)
    if only_plan:
        target, opened = Target(grid=grid_of(*tried), model=model), open_store(location)
        return planned(loaded.name, opened, api.planned(loaded, target, opened, reporter=notes))
    sizes, temperatures, families = tried
    with watched(location) as shown:
        result = api.sweep(
            loaded,
            vocab_sizes=sizes,
            temperatures=temperatures,
            families=families,
            model=model,
            store=location,
            prefect=not no_prefect,
            workers=workers,
            memory=memory,
            reporter=shown,
        )
    artifact = result["sweep"]
    summary, reference = SweepSummary.open(artifact.path), artifact.record.reference
    made = f"{result.num_made} of {len(result.rows)} tasks made"
    document = {"artifact": reference, **summary.model_dump(mode="json")}
    return Answer(document, _swept(summary, reference, made))


def _swept(summary: "SweepSummary", reference: str, made: str) -> Iterator[Part]:
    from tokmill.tasks.sweep.stage import LOSSY, SHOWN, as_table

    narrow = {name: head for name, head in SHOWN.items() if not name.startswith("embedding")}
    heads, rows = as_table(summary, SHOWN if results().width >= _WIDE else narrow)
    yield Table(heads, rows, right=heads[1:-1])
    if any(row["lossy"] for row in summary.cells):
        yield f"\n{LOSSY}"
    if summary.text == "training":
        yield "\nmeasured on the text that was trained on; a profile with [holdout] measures other text"
    yield f"\nrecommended: {summary.recommended or '–'}\n{summary.reason}"
    yield from (f"  {change}" for change in summary.changes)
    yield f"\n{made}: {reference}; `tokmill report {reference} --out FOLDER` draws its curves"


def _listed(option: str, text: str | None, kind: type[_T]) -> list[_T]:
    """Return the values between commas; none without the option."""
    parts = [] if text is None else [part.strip() for part in text.split(",")]
    if all(parts):
        with suppress(ValueError):
            return [kind(part) for part in parts]
    example = "unigram,wordpiece" if kind is str else "8000,16000"
    raise UsageError(f"{option} {text}: write values with commas between, e.g. {example}")


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
    forms: Literal["both", "spaced", "bare"] = Option("both", help="With a blank before, without, or both."),
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
    return _changed(EXTEND, tokenizer, options, files, text_column, split_pattern, name, store)


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
    return _changed(TRIM, tokenizer, {"vocab_size": to}, files, text_column, split_pattern, name, store)


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


def _changed(
    stage: "Stage[Any]",
    tokenizer: str,
    options: Mapping[str, Any],
    files: Mapping[str, Sequence[str]],
    text_column: str,
    split_pattern: str | None,
    name: str | None,
    location: str | None,
) -> Answer:
    """Publish a changed tokenizer, and say where it is."""
    from pydantic import ValidationError

    from tokmill.flows.library.derived import change
    from tokmill.flows.profile.problems import first_problem
    from tokmill.flows.run.machine import store_url, writable_store

    store = writable_store(store_url(location))
    try:
        params = stage.params(**options, read={"text_column": text_column})
    except ValidationError as error:
        raise UsageError(first_problem(error)) from error
    made = change(store, stage, params, tokenizer, files, split_pattern=split_pattern, name=name)
    metrics = dict(store.record(made).metrics)
    document = {"artifact": called(store, made), "path": store.address(made), "metrics": metrics}
    return Answer(document, _report(store, made))


def _report(store: "Store", made: "ArtifactRef") -> Iterator[Part]:
    from tokmill.tasks.formats.files.manifests import read_model
    from tokmill.tasks.vocabulary.report import Report

    figures = store.record(made).metrics
    saved = "not measured: name texts of the domain with --corpus"
    if "num_saved_tokens" in figures:
        share = percent(float(figures["saved_share"]))
        saved = f"{figures['num_saved_tokens']:,} tokens of the texts ({share})"
    yield {
        "artifact": called(store, made),
        "holds": key_figures("tokenizer", figures),
        "changed": f"{figures['num_changed_tokens']:,} tokens",
        "saved": saved,
        "report": shown_address(store, made, "report.md"),
        "embedding plan": shown_address(store, made, "embedding-plan.json"),
    }
    report = read_model(store.path(made) / "report.json", Report, "report")
    if report.skipped:
        yield f"not added: {counted(len(report.skipped), 'form')} of terms; the report has the reasons"
    terms = [(repr(term)[1:-1], number) for term, number in report.saved_by_term.items()]
    if terms:
        yield Table(("term", "tokens saved"), terms[:_TERMS_SHOWN], right=("tokens saved",))
    if len(terms) > _TERMS_SHOWN:
        yield f"and {len(terms) - _TERMS_SHOWN:,} more in the report"
    if report.warning:
        yield warning(report.warning)


@command(
    in_vocab,
    "tokmill vocab resize model/ --plan tokenizer/own --out model-extended",
    "tokmill vocab resize model.safetensors --plan embedding-plan.json --method normal --out new",
)
def resize(
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
    import orjson

    from tokmill.tasks.embeddings.resize import resize_embeddings
    from tokmill.tasks.vocabulary.stage import PLAN_FILE
    from tokmill.tokenizer.adaptation.plan import EmbeddingPlan

    require_new("resize", out, "folder")
    file = Path(plan)
    if not file.is_file():
        opened = existing_store(store)
        file = opened.path(find_artifact(opened, plan)) / PLAN_FILE
    try:
        spec = orjson.loads(read_named(file))
        if not isinstance(spec, dict):
            raise UsageError(f"resize: {file} is not an embedding plan")
    except (OSError, orjson.JSONDecodeError) as error:
        raise UsageError(
            f"resize: {file} is not an embedding plan ({error}); give that of `tokmill vocab extend` or "
            "`tokmill vocab trim`"
        ) from error
    done = resize_embeddings(
        model,
        EmbeddingPlan.from_spec(spec, str(file)),
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
