"""audit: judge a tokenizer, before anything is encoded with it, and give a verdict.

It is judged by its vocabulary, by its training text (`audit_counts`), text that was encoded to be measured
(`audit_shard`) and parallel text. The audit is published with its verdict even if the gate fails, so that
the reason can be looked up; the run stops after that if `on_failure` is "fail".
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tokmill.tasks.audit.params import AuditParams
from tokmill.tasks.audit.text import read_measured, read_occurrences, sampled
from tokmill.tasks.core.errors import AuditError, GateError
from tokmill.tasks.core.stage import Outcome, Scalar, Stage
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.formats.counts import Counts
from tokmill.tasks.formats.files.manifests import write_model
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tasks.remote.location import located
from tokmill.tokenizer.core.stopping import raise_if_stopped

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from tokmill.tasks.audit.measurement import Measured
    from tokmill.tasks.audit.summary import AuditSummary
    from tokmill.tasks.audit.tokens import Occurrences
    from tokmill.tokenizer import Tokenizer


TABLES = (
    *("vocab_tokens", "vocab_sources", "vocab_lengths", "vocab_frequencies", "vocab_roundtrip"),
    *("vocab_entropy", "vocab_parity", "vocab_training", "vocab_probes", "vocab_gates"),
)
"""The tables that an audit adds to the catalog."""


def run(  # noqa: PLR0913 - one for each input
    params: AuditParams,
    *,
    out: Path,
    tokenizer: Path,
    corpus: Path,
    texts: Sequence[Path],
    counts: Path | None = None,
    training: Sequence[Path] = (),
    balance: Path | None = None,
    parallel: Iterable[Mapping[str, str]] = (),
    compare_with: Path | None = None,
    compared_texts: Sequence[Path] = (),
) -> Outcome:
    """Write the audit's tables and summary into `out`.

    Args:
        params: what was read, and the gate.
        out: the artifact's directory.
        tokenizer: the tokenizer artifact.
        corpus: the corpus that the text is of.
        texts: what was measured of its sampled shards (`audit_shard`), in order.
        counts: the counts that the tokenizer was trained on, if it was trained here.
        training: what was counted of their sources (`audit_counts`), in order.
        balance: the balance of that training.
        parallel: language and path of each parallel text.
        compare_with: another tokenizer, for `max_regression`.
        compared_texts: what was measured with that one.

    Raises:
        AuditError: a limit is for what does not exist, or parallel texts are not parallel.
        StoreError: an input is broken.
    """
    from tokmill.tasks.audit.entropy import entropies
    from tokmill.tasks.audit.probes import probe
    from tokmill.tasks.audit.sources import source_tables, total
    from tokmill.tasks.audit.tokens import describe_tokens
    from tokmill.tasks.audit.training_counts import training_table

    tok, opened = open_tokenizer(tokenizer), Corpus.open(corpus)
    text = "held_out" if opened.part == "validation" else "corpus"
    measured = _measured(params, tok, opened, texts)
    every = total(tok, measured).token_counts
    lengths = _compared(params, compare_with, opened, compared_texts)
    by_source = {} if counts is None else read_occurrences(Counts.open(counts), training, tok.vocab_size)
    tables = {
        "vocab_tokens": describe_tokens(tok, _training(tok, by_source, balance), every > 0),
        "vocab_training": training_table(by_source),
        **source_tables(tok, text, measured),
        "vocab_entropy": entropies(tok, text, measured, lengths or None),
        "vocab_parity": _parity(params, tok, list(parallel)),
        "vocab_probes": probe(tok, params.probes),
    }
    summary = summarize(params, tok, text, tables, every, _regressions(measured, lengths))
    write_audit(out, tables, summary)
    return Outcome(metrics=_metrics(summary))


def check_gate(params: AuditParams, path: Path, reference: str) -> None:
    """Raise if the gate of a published audit did not pass and `on_failure` is "fail".

    Args:
        params: see `AuditParams`.
        path: the audit artifact's directory.
        reference: what finds it, among other versions of its name.

    Raises:
        GateError: the gate failed, or could not measure one of its limits.
        StoreError: the summary is missing or broken.
    """
    from tokmill.tasks.audit.gates import not_passed
    from tokmill.tasks.audit.summary import read_summary

    if params.on_failure == "warn":
        return
    summary = read_summary(path)
    if not_passed(summary.gate):
        failed = summary.gate.startswith("failed")
        change = "change the tokenizer or the limit" if failed else "give that text, or take the limit out"
        raise GateError(
            f"audit: gate {summary.gate}; `tokmill show {reference} --read` shows why; {change}, "
            "or set audit.on_failure='warn' to continue anyway",
            summary.gate,
            summary.limits,
        )


def _measured(
    params: AuditParams, tok: "Tokenizer", corpus: Corpus, texts: Sequence[Path]
) -> "dict[str, Measured]":
    """Return what was measured of each source; sources without text were measured as empty."""
    from tokmill.tasks.audit.measurement import Measured

    found = {source: Measured.none(tok.vocab_size) for source in corpus.sources}
    for (shard, _), path in zip(sampled(corpus, params.sample_megabytes), texts, strict=True):
        raise_if_stopped()
        found[shard.source].add(read_measured(path, tok.vocab_size))
    return found


def _compared(
    params: AuditParams, tokenizer: Path | None, corpus: Corpus, texts: Sequence[Path]
) -> dict[str, int]:
    """Return the tokens of each source with the tokenizer that this one is compared with."""
    if tokenizer is None:
        return {}
    measured = _measured(params, open_tokenizer(tokenizer), corpus, texts)
    return {source: found.amounts.num_tokens for source, found in measured.items()}


def _regressions(measured: "Mapping[str, Measured]", lengths: Mapping[str, int]) -> dict[str, float | None]:
    from tokmill.tasks.audit.sources import ratio

    return {
        source: ratio(measured[source].amounts.num_tokens - length, length)
        for source, length in lengths.items()
    }


def _training(
    tok: "Tokenizer", by_source: "Mapping[str, np.ndarray]", balance: Path | None
) -> "Occurrences | None":
    """Return how often each token occurs in the text that the tokenizer was trained on."""
    from tokmill.tasks.audit.training_counts import training_occurrences
    from tokmill.tasks.formats.counts import Balance

    if balance is None:
        return None
    return training_occurrences(by_source, Balance.open(balance), tok.vocab_size)


def _parity(params: AuditParams, tok: "Tokenizer", parallel: Sequence[Mapping[str, str]]) -> "pa.Table":
    from tokmill.tasks.audit.parity import SCHEMA, parity, read_parallel

    texts = read_parallel({one["language"]: located(one["path"]) for one in parallel})
    if texts:
        return parity(tok, texts, params.reference or next(iter(texts)), params.seed)
    if params.reference is not None:
        raise AuditError("audit.reference needs parallel text: name the files in audit.parallel")
    return SCHEMA.empty_table()


def summarize(
    params: AuditParams,
    tok: "Tokenizer",
    text: Any,
    tables: "Mapping[str, pa.Table]",
    token_counts: "np.ndarray",
    regressions: Mapping[str, float | None],
) -> "AuditSummary":
    """Sum up the audit's tables, and compare them with the gate's limits."""
    import pyarrow.compute as pc

    from tokmill.tasks.audit.gates import compare, verdict
    from tokmill.tasks.audit.params import EVERY
    from tokmill.tasks.audit.sources import ALL
    from tokmill.tasks.audit.summary import (
        AuditSummary,
        describe_vocabulary,
        limits_of,
        unmet,
    )
    from tokmill.tokenizer.splitting.marks import marks_apart_in_use

    sources, premiums = (tables[name].to_pylist() for name in ("vocab_sources", "vocab_parity"))
    vocabulary = describe_vocabulary(tables["vocab_tokens"], token_counts)
    comparisons = compare(
        params,
        sources=[row for row in sources if row["source"] != ALL],
        premiums=[row for row in premiums if row["language"] != EVERY],
        regressions=regressions,
        unused_share=vocabulary.unused_share,
        num_unreachable=vocabulary.num_unreachable,
        held_out=text == "held_out",
    )
    return AuditSummary(
        family=tok.family,
        vocab_size=tok.vocab_size,
        text=text,
        sources=sources,
        parity=premiums,
        entropy=tables["vocab_entropy"].to_pylist(),
        vocabulary=vocabulary,
        marks_apart=marks_apart_in_use(tok.definition.tokens, token_counts),
        probes=unmet(tables["vocab_probes"]),
        num_probes=pc.sum(pc.is_valid(tables["vocab_probes"]["expectation"])).as_py(),
        regressions=dict(regressions),
        limits=limits_of(comparisons),
        gate=verdict(comparisons),
    )


def write_audit(out: Path, tables: "Mapping[str, pa.Table]", summary: "AuditSummary") -> None:
    """Write the files of an audit."""
    import pyarrow as pa

    from tokmill.tasks.audit.gates import SCHEMA
    from tokmill.tasks.audit.summary import SUMMARY_FILE, to_markdown
    from tokmill.tasks.formats.files.arrays import write_catalog

    write_catalog(out, {**tables, "vocab_gates": pa.Table.from_pylist(summary.limits, SCHEMA)})
    write_model(out / SUMMARY_FILE, summary)
    (out / "summary.md").write_text(to_markdown(summary), "utf-8")


def _metrics(summary: "AuditSummary") -> dict[str, Scalar]:
    from tokmill.tasks.audit.gates import not_passed

    overall, vocabulary = summary.overall, summary.vocabulary
    warned = {"warnings": f"gate {summary.gate}"} if not_passed(summary.gate) else {}
    dearest = max((row["premium"] for row in summary.parity if row["premium"] is not None), default=None)
    numbers = {
        **{
            name: overall.get(name)
            for name in ("bytes_per_token", "chars_per_token", "fertility", "whole_share")
        },
        "unknown_share": overall.get("unknown_share"),
        "renyi_efficiency": summary.entropy_of(overall.get("source", "")).get("renyi_efficiency"),
        "bits_per_byte": summary.entropy_of(overall.get("source", "")).get("trigram_bits_per_byte"),
        "max_premium": dearest,
        "unused_share": vocabulary.unused_share,
    }
    return {
        "gate": summary.gate,
        "text": summary.text,
        "num_documents": overall.get("num_documents", 0),
        "num_bytes": overall.get("num_bytes", 0),
        "num_tokens": overall.get("num_tokens", 0),
        "num_unused_tokens": vocabulary.num_unused,
        "unused_in": vocabulary.unused_in,
        "num_unmet_probes": len(summary.probes),
        "num_unreachable_tokens": vocabulary.num_unreachable,
        **{name: value for name, value in numbers.items() if value is not None},
        **warned,
    }


AUDIT = Stage(verb="audit", task="audit", kind="audit", version=16, params=AuditParams, run=run)
