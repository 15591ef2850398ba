"""`tokmill.train` and `audit`: a tokenizer from columns of text, and one judged on them."""

from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Unpack

from tokmill.flows.errors import UsageError
from tokmill.flows.library.api import AnyStore
from tokmill.flows.library.artifact import Artifact, figures_of
from tokmill.flows.library.bench import Bench, Made, held_out, parted
from tokmill.flows.library.columns import OnError, named_columns, sources_of
from tokmill.flows.library.options import AuditOptions, HoldoutOptions, TrainingOptions
from tokmill.flows.library.store import Store
from tokmill.flows.library.table import Table
from tokmill.flows.profile.model import Auditing
from tokmill.tasks.balance.stage import BalanceParams
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.core.markdown import number
from tokmill.tasks.encode.stage import EncodeParams
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.store.fingerprint import digest_bytes
from tokmill.tasks.store.runs import read_run, run_path
from tokmill.tasks.train.stage import TrainParams
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.components.post_processors import Template
from tokmill.tokenizer.core import markup
from tokmill.tokenizer.pipeline.definition import Definition

if TYPE_CHECKING:
    from tokmill.tasks.audit.summary import AuditSummary

_NAME_CHARS = 24
_COLUMNS = ["num_documents", "num_bytes", "num_tokens", "bytes_per_token", "fertility", "whole_share"]


class TrainedTokenizer(Tokenizer):
    """A tokenizer that knows the artifact that it is from.

    It is equal to the tokenizer alone. `add_special_tokens` adds the tokens of its template; without one,
    those that `[encode]` of its run adds, so that the ids are those of `tokmill.encode`.

    Attributes:
        artifact: the artifact, with its path and figures; None after a change, such as `with_roles`.
    """

    def __init__(
        self,
        definition: Definition,
        artifact: Artifact | None = None,
        bench: Bench | None = None,
        around: Template | None = None,
    ) -> None:
        super().__init__(definition)
        self.artifact = artifact
        self.bench = bench
        self._around = around

    @classmethod
    def of(cls, artifact: Artifact, bench: Bench | None = None) -> "TrainedTokenizer":
        """Open the tokenizer of an artifact, and check its attestation."""
        definition = open_tokenizer(artifact.path).definition
        encode = _encoding_of(artifact) if bench is None else bench.table.get("encode", {})
        names = (
            encode.get(name, getattr(EncodeParams(), name))
            for name in ("begin_of_document", "end_of_document")
        )
        begin, end = ([name] if name in definition.named_tokens else [] for name in names)
        around = Template.around_each(begin, end) if begin or end else None
        return cls(definition, artifact, bench, around)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what decides the ids; the artifact is left behind."""
        return _unpickled, (self.spec(), self._around)

    @property
    def _template(self) -> Template | None:
        return self.definition.post_processor or self._around


def _unpickled(spec: Mapping[str, Any], around: Template | None) -> TrainedTokenizer:
    return TrainedTokenizer(Definition.from_spec(spec), around=around)


def _encoding_of(artifact: Artifact) -> Mapping[str, Any]:
    """Return `[encode]` of the run that made a tokenizer; empty if there is none."""
    run_id = artifact.record.provenance.run_id or ""
    try:
        run = read_run(run_path(artifact.store.layout.runs, run_id))
    except StoreError:
        return {}
    encode = run.parameters.get("encode", {})
    return {"begin_of_document": None, "end_of_document": None, **encode}  # what is None is not recorded


class Audit(Made):
    """What an audit found: the gate's verdict, key figures, and a table for every question."""

    @cached_property
    def summary(self) -> "AuditSummary":
        """The summary: vocabulary, sources, premiums, probes, limits."""
        from tokmill.tasks.audit.summary import read_summary  # noqa: PLC0415 - imports pyarrow

        return read_summary(self.artifact.path)

    @property
    def gate(self) -> str:
        """The gate's verdict: `passed`, `failed: …`, or that no limit was set."""
        return self.summary.gate

    @property
    def sources(self) -> Table:
        """One row per source, and `*` for all: documents, bytes, tokens, bytes per token, tokens per word."""
        return self.table("vocab_sources")

    @property
    def tokens(self) -> Table:
        """One row per token: its text, bytes, kind, whether a text can give it, how often it occurs."""
        return self.table("vocab_tokens")

    def table(self, name: str) -> Table:
        """Return one of the audit's tables, e.g. `vocab_parity`; see docs/audit.md for all."""
        return self.artifact.table(name)

    def text(self) -> str:
        """Return the summary for people, in Markdown."""
        return self.artifact.text()

    def __repr__(self) -> str:
        figures = {name: self.figures.get(name) for name in ("bytes_per_token", "fertility")}
        amounts = ", ".join(f"{name}={number(value)}" for name, value in figures.items() if value is not None)
        return f"Audit({self.artifact.reference!r}, gate={self.gate!r}, {amounts})"

    def _repr_html_(self) -> str:
        columns = ["source", *(name.removeprefix("num_").replace("_", " ") for name in _COLUMNS)]
        rows = [
            [
                "all sources" if row["source"] == "*" else row["source"],
                *(number(row[name]) for name in _COLUMNS),
            ]
            for row in self.sources
        ]
        title, grid = f"Audit {self.artifact.reference}", markup.grid(columns, rows)
        return figures_of(title, self.figures, grid, self.gate)


def train(
    texts: Any,
    *,
    vocab_size: int,
    store: AnyStore | None = None,
    name: str = "notebook",
    on_error: OnError = "fail",
    workers: int | None = None,
    progress: bool | None = None,
    holdout: float | HoldoutOptions | None = None,
    **options: Unpack[TrainingOptions],
) -> TrainedTokenizer:
    """Train a tokenizer on a column of texts, or on several sources, as the pipeline does.

        tok = tokmill.train(df["text"], vocab_size=8_000)
        tok = tokmill.train({"web": web["text"], "code": code["text"]}, vocab_size=32_000, temperature=3.3)

    The texts are written to disk, counted by all cores, and balanced; memory grows with the distinct
    pre-tokens, not with the texts. `tokmill.tokenizer.train` is the algorithm alone, in memory.

    Args:
        texts: a column (pandas, polars, Arrow, numpy, list, or an iterable that is read once), or source →
            column.
        vocab_size: tokens in the vocabulary, special and reserved ones included.
        store: where the tokenizer is published, with what it was made from; without one, it lasts as long as
            the process, or until it is saved.
        name: of the artifacts in the store.
        on_error: what becomes of null rows: "fail", or "quarantine" to leave them out.
        workers: parallel tasks; by default one per core. It changes no result.
        progress: see `run`.
        holdout: which documents are kept from training, for validation: a share, or the parameters of
            `[holdout]`; by default none.
        **options: parameters of training (`family`, `split_pattern`, `special_tokens`, `normalizer`, …; see
            `tokmill profiles train`) and of balancing (`temperature`, `weights`, `method`,
            `max_repetition`). Special tokens are `<|endoftext|>` by default, as in profiles.

    Returns:
        The tokenizer; its `artifact` has figures and the folder with exports for other libraries.

    Raises:
        UsageError: a column is none, has a null row, or there is no such parameter.
        ProfileError: a parameter is invalid, or parameters contradict each other.
        RunError: too little text for `vocab_size`; the message has a feasible size.
    """
    training, balance = parted("train", options, TrainParams, BalanceParams)
    bench = Bench.of(store, name=name, train={"vocab_size": vocab_size, **training}, balance=balance)
    sources = sources_of(named_columns(texts), bench.store, on_error)
    bench = bench.with_sections(holdout=held_out(holdout), sources=sources)
    return TrainedTokenizer.of(bench.made("tokenizer", workers=workers, progress=progress), bench)


def audit(
    tok: Tokenizer | str | Path,
    texts: Any = None,
    *,
    store: AnyStore | None = None,
    name: str | None = None,
    on_error: OnError = "fail",
    workers: int | None = None,
    progress: bool | None = None,
    holdout: float | HoldoutOptions | None = None,
    **options: Unpack[AuditOptions],
) -> Audit:
    """Judge a tokenizer on columns of text, as the pipeline's audit does.

        audit = tokmill.audit(tok, {"web": web["text"], "code": code["text"]}, max_fertility=2.5)
        audit.gate, audit.figures["bytes_per_token"], audit.sources.to_pandas()

    Args:
        tok: a tokenizer, the path of one, or the name of an artifact (`tokenizer/quickstart`).
        texts: a column, or source → column; by default what `tok` was trained on by `tokmill.train`. With
            these, the training's counts tell which tokens are unused.
        store: see `train`; by default where `tok` was trained.
        name: see `train`; by default that of the training.
        on_error: see `train`.
        workers: see `train`.
        progress: see `run`.
        holdout: see `train`; by default as `tok` was trained.
        **options: parameters of the audit: what is read (`sample_megabytes`), the gate's limits
            (`max_fertility`, `max_unused_share`, …), `parallel` texts, `probes`, `compare_with`,
            `on_failure`.

    Raises:
        UsageError: a column is none, has a null row, or there is no such parameter.
        ProfileError: a parameter is invalid.
        GateError: the gate failed or did not measure, and `on_failure` is "fail"; the audit is published all
            the same.
    """
    (limits,) = parted("audit", options, Auditing)
    bench = bench_for(tok, texts, store=store, name=name, on_error=on_error, holdout=holdout)
    bench = bench.with_sections(audit=limits)
    return Audit(bench.made("audit", workers=workers, progress=progress), bench)


def bench_for(
    tok: Tokenizer | str | Path,
    texts: Any,
    *,
    store: AnyStore | None,
    name: str | None,
    on_error: OnError,
    holdout: float | HoldoutOptions | None = None,
) -> Bench:
    """Return the profile in which a tokenizer works on texts; see `audit`."""
    trained = tok.bench if isinstance(tok, TrainedTokenizer) and tok.bench and tok.bench.table else None
    bench = trained if store is None and trained is not None else Bench.of(store, name="notebook")
    if texts is not None:
        sources = sources_of(named_columns(texts), bench.store, on_error)
    elif trained is not None:
        sources = trained.table["sources"]
    else:
        raise UsageError("texts: this tokenizer was not trained by tokmill.train here; name the texts")
    if (
        trained is not None
        and sources == trained.table["sources"]
        and bench.store.location == trained.store.location
    ):
        bench = trained
    else:
        used = {"use": _use(tok, bench.store)}
        bench = Bench(bench.store, {"name": bench.table["name"], "sources": sources, "tokenizer": used})
    return bench.with_sections(name=name, holdout=held_out(holdout))


def _use(tok: Tokenizer | str | Path, store: Store) -> str:
    """Return how a profile names a tokenizer; one in memory is written beside the store first."""
    if not isinstance(tok, Tokenizer):
        return str(tok)
    artifact = tok.artifact if isinstance(tok, TrainedTokenizer) else None
    if artifact is not None:
        here = artifact.store.location == store.location
        return artifact.ref.fingerprint if here else str(artifact.path)
    folder = store.layout.texts
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder, prefix=".tokenizer-") as unfinished:
        (file,) = tok.save(unfinished, format="tokmill")
        place = folder / f"{digest_bytes(file.read_bytes())[:_NAME_CHARS]}.tokmill.json"
        file.replace(place)
    return str(place)
