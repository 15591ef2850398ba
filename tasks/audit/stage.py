"""audit: measure how a tokenizer encodes a corpus, by token and by source, and give a verdict.

The figures come from the encoded shards' statistics and token counts; no text is read or encoded again. The
stage publishes `catalog/audit_sources.parquet`, `catalog/audit_tokens.parquet` and
`catalog/audit_lengths.parquet` (which the store's catalog indexes), `summary.json` and `summary.md`.

The gate compares the summary with thresholds. The audit is published with the verdict even if the gate fails,
so that the reason can be looked up. If the gate fails and `on_failure` is "fail", the run stops after that.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from pydantic import Field

from tokmill.tasks.core.errors import GateError
from tokmill.tasks.core.stage import Outcome, Params, Scalar, Stage
from tokmill.tasks.formats.encoded import Encoded, EncodedShard
from tokmill.tasks.formats.files.manifests import write_model
from tokmill.tasks.formats.tokenizer import open_tokenizer

if TYPE_CHECKING:
    from tokmill.tasks.audit.summary import Summary, Yield
    from tokmill.tasks.audit.tables import SourceUse, Vocabulary


class AuditParams(Params):
    """Thresholds of the gate; those that are not set are not checked."""

    min_bytes_per_token: float | None = Field(
        default=None, gt=0, description="Every source must have at least this many bytes of text per token."
    )
    max_fertility: float | None = Field(
        default=None, gt=0, description="Every source must have at most this many tokens per word."
    )
    max_unused_share: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="At most this fraction of the vocabulary, without special and reserved tokens, may be "
        "unused.",
    )
    on_failure: Literal["warn", "fail"] = Field(
        default="warn",
        description="What the run does if the gate fails: 'warn' continues, 'fail' stops. The audit is "
        "published in either case.",
    )


def run(
    params: AuditParams, *, out: Path, tokenizer: Path, encoded: Path, shards: Sequence[Path], corpus: Path
) -> Outcome:
    """Write the audit's tables and summary into `out`.

    Args:
        params: the gate.
        out: the artifact's directory.
        tokenizer: the tokenizer artifact.
        encoded: the encoded artifact (the manifest).
        shards: its shards, in the manifest's order.
        corpus: the corpus artifact; not read, but an input, so that the audit's record refers to it.

    Raises:
        StoreError: an input is broken, or the shards are not those of the manifest.
    """
    from tokmill.tasks.audit.summary import SUMMARY_FILE, summarize, to_markdown
    from tokmill.tasks.audit.tables import audit_database, write_tables

    sources = _sources(encoded, shards)
    vocabulary = _vocabulary(tokenizer)
    with audit_database(vocabulary, sources) as database:
        summary = summarize(database, vocabulary, sources)
        summary = summary.model_copy(update={"gate": verdict(params, summary)})
        write_tables(database, out / "catalog")
    write_model(out / SUMMARY_FILE, summary)
    (out / "summary.md").write_text(to_markdown(summary), "utf-8")
    return Outcome(metrics=_metrics(summary))


def check_gate(params: AuditParams, path: Path, name: str) -> None:
    """Raise if the gate of a published audit failed and `on_failure` is "fail".

    Args:
        params: see `AuditParams`.
        path: the audit artifact's directory.
        name: its name.

    Raises:
        GateError: the gate failed.
        StoreError: the summary is missing or broken.
    """
    from tokmill.tasks.audit.summary import read_summary

    if params.on_failure == "warn":
        return
    gate = read_summary(path).gate
    if gate.startswith("failed"):
        raise GateError(
            f"audit: gate {gate}; `tokmill show audit/{name} --read` shows why; change the tokenizer or "
            "the threshold, or set audit.on_failure='warn' to continue anyway"
        )


def verdict(params: AuditParams, summary: "Summary") -> str:
    """Return "passed", "failed: " and each threshold that is not met, or "none" if no threshold is set."""
    thresholds = (params.min_bytes_per_token, params.max_fertility, params.max_unused_share)
    if all(threshold is None for threshold in thresholds):
        return "none"
    failures = [failure for source in summary.sources for failure in _source_failures(params, source)]
    if params.max_unused_share is not None and summary.unused_share > params.max_unused_share:
        failures.append(
            f"unused_share={summary.unused_share:g} is above max_unused_share={params.max_unused_share:g}"
        )
    return f"failed: {'; '.join(failures)}" if failures else "passed"


def _source_failures(params: AuditParams, source: "Yield") -> Iterator[str]:
    low, high = params.min_bytes_per_token, params.max_fertility
    if low is not None and source.bytes_per_token is not None and source.bytes_per_token < low:
        yield f"source '{source.source}': bytes_per_token={source.bytes_per_token:g} is below {low:g}"
    if high is not None and source.fertility is not None and source.fertility > high:
        yield f"source '{source.source}': fertility={source.fertility:g} is above {high:g}"


def _sources(encoded: Path, shards: Sequence[Path]) -> "Mapping[str, SourceUse]":
    """Return each source's statistics and summed token counts; one shard is open at a time."""
    from tokmill.tasks.audit.tables import SourceUse

    manifest = Encoded.open(encoded)
    zeros = np.zeros(manifest.manifest.vocab_size, dtype=np.uint64)
    uses = {name: SourceUse(manifest.source(name).statistics, zeros.copy()) for name in manifest.sources}
    for name, _, path in manifest.pair(shards):
        uses[name].token_counts[:] += EncodedShard.open(path).token_counts
    return uses


def _vocabulary(path: Path) -> "Vocabulary":
    """Return the vocabulary's tokens by id, with kind and readable form."""
    from tokmill.tasks.audit.tables import Vocabulary

    model = open_tokenizer(path).definition.model
    return Vocabulary(model.vocabulary.tokens, model.kinds(), model.readable)


def _metrics(summary: "Summary") -> dict[str, Scalar]:
    overall = summary.overall
    ratios = {
        "bytes_per_token": overall.bytes_per_token,
        "chars_per_token": overall.chars_per_token,
        "fertility": overall.fertility,
        "renyi_efficiency": summary.renyi_efficiency,
        "unknown_share": summary.unknown_share,
    }
    return {
        "gate": summary.gate,
        "num_documents": overall.num_documents,
        "num_tokens": overall.num_tokens,
        "num_bytes": overall.num_bytes,
        "num_unused_tokens": summary.num_unused_tokens,
        "unused_share": summary.unused_share,
        **{name: value for name, value in ratios.items() if value is not None},
    }


AUDIT = Stage(verb="audit", task="audit", kind="audit", version=4, params=AuditParams, run=run)
