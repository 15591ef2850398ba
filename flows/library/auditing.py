"""`tokmill.audit`: a tokenizer judged on columns of text."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from tokmill.flows.figures import labelled
from tokmill.flows.library.artifact import Artifact
from tokmill.flows.library.bench import parted
from tokmill.flows.library.columns import OnError
from tokmill.flows.library.options import AuditOptions, HoldoutOptions
from tokmill.flows.library.table import Table
from tokmill.flows.library.training import bench_for
from tokmill.flows.profile.model import Auditing
from tokmill.tasks.core.markdown import number
from tokmill.tasks.store import Store as ArtifactStore
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core import markup

if TYPE_CHECKING:
    from tokmill.tasks.audit.summary import AuditSummary

_COLUMNS = (
    *("source", "num_documents", "num_bytes", "num_tokens", "bytes_per_token", "fertility", "whole_share"),
)
_EVERY = "*"


class Audit:
    """What an audit found: the gate's verdict, key figures, and a table for every question.

    Attributes:
        artifact: the artifact, with its path and record.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact

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
    def figures(self) -> dict[str, Any]:
        """The key figures, e.g. `bytes_per_token`, `fertility` (tokens per word), `unused_share`."""
        return dict(self.artifact.figures)

    @property
    def sources(self) -> Table:
        """One row per source, and `*` for all: documents, bytes, tokens, bytes per token, tokens per word."""
        return self.artifact.table("vocab_sources")

    @property
    def tokens(self) -> Table:
        """One row per token: its text, bytes, kind, whether a text can give it, how often it occurs."""
        return self.artifact.table("vocab_tokens")

    def table(self, name: str) -> Table:
        """Return one of the audit's tables, e.g. `vocab_parity`; see docs/audit.md for all."""
        return self.artifact.table(name)

    def text(self) -> str:
        """Return the summary for people, in Markdown."""
        return self.artifact.text()

    def __repr__(self) -> str:
        found = self.figures
        amounts = ", ".join(
            f"{name}={number(found[name])}" for name in ("bytes_per_token", "fertility") if name in found
        )
        return f"Audit({self.artifact.reference!r}, gate={self.gate!r}, {amounts})"

    def _repr_html_(self) -> str:
        pairs = dict(labelled(name, value) for name, value in self.figures.items())
        rows = [
            ["all sources" if row["source"] == _EVERY else str(row["source"])]
            + ["–" if row[name] is None else number(row[name]) for name in _COLUMNS[1:]]
            for row in self.sources
        ]
        grid = markup.grid([name.removeprefix("num_").replace("_", " ") for name in _COLUMNS], rows)
        return markup.sheet(f"Audit {self.artifact.reference}", grid, markup.figures(pairs), detail=self.gate)


def audit(
    tok: Tokenizer | str | Path,
    texts: Any = None,
    *,
    store: str | Path | ArtifactStore | None = None,
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
        store: where the audit is published; by default where `tok` was trained.
        name: of the artifacts in the store; by default that of the training.
        on_error: what becomes of null rows: "fail", or "quarantine" to leave them out.
        workers: parallel tasks; by default one per core. It changes no result.
        progress: see `run`.
        holdout: which documents are kept from training, for validation: a share, or the parameters of
            `[holdout]`; by default none, or as `tok` was trained.
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
    _, done = bench.with_sections(audit=limits).made("audit", workers=workers, progress=progress)
    return Audit(done["audit"])
