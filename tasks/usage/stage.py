"""usage: count how a vocabulary is used in what was encoded, by token and by source.

The figures come from the encoded shards' statistics and token counts; no text is read or encoded again.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.stage import Outcome, Params, Scalar, Stage
from tokmill.tasks.formats.encoded import Encoded, EncodedShard
from tokmill.tasks.formats.files.manifests import write_model
from tokmill.tasks.formats.tokenizer import open_tokenizer

if TYPE_CHECKING:
    import pyarrow as pa

    from tokmill.tasks.usage.summary import Summary
    from tokmill.tasks.usage.tables import SourceUse, Vocabulary


class UsageParams(Params):
    """Use of a vocabulary is measured without parameters."""


def run(
    params: UsageParams,
    *,
    out: Path,
    tokenizer: Path,
    encoded: Path,
    shards: Sequence[Path],
    audit: Path,
    counts: Path | None = None,
) -> Outcome:
    """Write the tables and summary into `out`."""
    from pyarrow import parquet

    from tokmill.tasks.usage.summary import SHOWN, SUMMARY_FILE, summarize, to_markdown
    from tokmill.tasks.usage.tables import usage_database, write_tables

    sources = _sources(encoded, shards)
    vocabulary = _vocabulary(tokenizer)
    with usage_database(vocabulary, sources) as database:
        summary = summarize(database, vocabulary, sources)
        write_tables(database, out / "catalog")
    suspects = _with_contexts(_suspects(audit, counts, sources), tokenizer, shards)
    parquet.write_table(suspects, out / "catalog" / "vocab_suspects.parquet", compression="zstd")
    write_model(out / SUMMARY_FILE, summary)
    (out / "summary.md").write_text(to_markdown(summary, suspects.slice(0, SHOWN).to_pylist()), "utf-8")
    return Outcome(metrics={**_metrics(summary), "num_suspects": len(suspects)})


def _suspects(audit: Path, counts: Path | None, sources: "Mapping[str, SourceUse]") -> "pa.Table":
    """Find the tokens that hardly occur, though they are in the vocabulary."""
    from tokmill.tasks.audit.suspects import find_suspects
    from tokmill.tasks.audit.tokens import read_table
    from tokmill.tasks.audit.training_counts import read_training
    from tokmill.tasks.formats.counts import Counts

    given = [use.token_counts for use in sources.values()]
    occurrences: NDArray[np.uint64] = np.stack(given).sum(axis=0)
    vocab_size = len(occurrences)
    tokens, trained = (read_table(audit, name, vocab_size) for name in ("vocab_tokens", "vocab_training"))
    counted = None if counts is None else Counts.open(counts)
    pretokens = {} if counted is None else {source: counted.counts(source) for source in counted.sources}
    return find_suspects(tokens, occurrences, training=read_training(trained, vocab_size), counts=pretokens)


def _with_contexts(suspects: "pa.Table", tokenizer: Path, shards: Sequence[Path]) -> "pa.Table":
    """Add the text around the first place of each of the first suspects."""
    import pyarrow as pa

    from tokmill.tasks.usage.contexts import MOST, find_contexts, sequences_of

    columns = (suspects[name].to_pylist()[:MOST] for name in ("token_id", "num_occurrences", "example"))
    tok = open_tokenizer(tokenizer)
    found = find_contexts(tok, sequences_of(tok, zip(*columns, strict=True)), shards)
    contexts = [found.get(token) for token in suspects["token_id"].to_pylist()]
    return suspects.append_column("context", pa.array(contexts, pa.string()))


def _sources(encoded: Path, shards: Sequence[Path]) -> "Mapping[str, SourceUse]":
    """Return each source's statistics and summed token counts; one shard is open at a time."""
    from tokmill.tasks.usage.tables import SourceUse

    manifest = Encoded.open(encoded)
    zeros = np.zeros(manifest.manifest.vocab_size, dtype=np.uint64)
    uses = {name: SourceUse(manifest.source(name).statistics, zeros.copy()) for name in manifest.sources}
    for name, _, path in manifest.pair(shards):
        uses[name].token_counts[:] += EncodedShard.open(path).token_counts
    return uses


def _vocabulary(path: Path) -> "Vocabulary":
    """Return the vocabulary's tokens by id, with kind and readable form."""
    from tokmill.tasks.usage.tables import Vocabulary

    definition = open_tokenizer(path).definition
    return Vocabulary(definition.tokens, definition.kinds(), definition.model.readable)


def _metrics(summary: "Summary") -> dict[str, Scalar]:
    overall = summary.overall
    ratios = {
        "bytes_per_token": overall.bytes_per_token,
        "chars_per_token": overall.chars_per_token,
        "renyi_efficiency": summary.renyi_efficiency,
        "unknown_share": summary.unknown_share,
    }
    return {
        "num_documents": overall.num_documents,
        "num_tokens": overall.num_tokens,
        "num_bytes": overall.num_bytes,
        "num_never_encoded_tokens": summary.num_never_encoded_tokens,
        "never_encoded_share": summary.never_encoded_share,
        **{name: value for name, value in ratios.items() if value is not None},
    }


USAGE = Stage(verb="usage", task="usage", kind="usage", version=8, params=UsageParams, run=run)
