"""usage: count how a vocabulary is used in what was encoded, by token and by source.

The figures come from the encoded shards' statistics and token counts; no text is read or encoded again.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.context import report_progress
from tokmill.tasks.core.markdown import on_one_line
from tokmill.tasks.core.stage import Outcome, Params, Scalar, Stage
from tokmill.tasks.formats.encoded import Encoded, EncodedShard
from tokmill.tasks.formats.files.manifests import write_model
from tokmill.tasks.formats.tokenizer import open_tokenizer
from tokmill.tokenizer.core.stopping import raise_if_stopped

if TYPE_CHECKING:
    import pyarrow as pa

    from tokmill.tasks.usage.summary import Summary
    from tokmill.tasks.usage.tables import SourceUse
    from tokmill.tokenizer import Tokenizer

MOST = 200
"""So many of the first suspects get a context."""
MARKS = ("⟦", "⟧")
"""What stands around the token, or the pre-token that holds it."""
_AROUND = 12
"""Tokens on either side."""
_CUT_BEFORE = re.compile(r"^(\\x[89ab][0-9a-f])+")
_CUT_BEHIND = re.compile(r"(\\x[c-f][0-9a-f])?(\\x[89ab][0-9a-f])*$")
"""Parts of characters where the text around a token was cut."""
_TOO_LONG = 64
"""A pre-token of more tokens is not looked for."""


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
    from tokmill.tasks.formats.files.arrays import write_catalog
    from tokmill.tasks.usage.summary import SHOWN, SUMMARY_FILE, summarize, to_markdown
    from tokmill.tasks.usage.tables import Vocabulary, usage_tables

    sources = _sources(encoded, shards)
    definition = open_tokenizer(tokenizer).definition
    vocabulary = Vocabulary(definition.tokens, definition.kinds())
    tables = usage_tables(vocabulary, sources)
    summary = summarize(tables, vocabulary, sources)
    suspects = _with_contexts(_suspects(audit, counts, sources), tokenizer, shards)
    write_catalog(out, {**tables, "vocab_suspects": suspects})
    write_model(out / SUMMARY_FILE, summary)
    (out / "summary.md").write_text(to_markdown(summary, suspects.slice(0, SHOWN).to_pylist()), "utf-8")
    return Outcome(metrics={**_metrics(summary), "num_suspects": len(suspects)})


def _suspects(audit: Path, counts: Path | None, sources: "Mapping[str, SourceUse]") -> "pa.Table":
    from tokmill.tasks.audit.suspects import find_suspects
    from tokmill.tasks.audit.tokens import read_table
    from tokmill.tasks.audit.training_counts import read_training
    from tokmill.tasks.formats.counts import Counts

    given = [use.token_counts for use in sources.values()]
    occurrences: NDArray[np.uint64] = np.stack(given).sum(axis=0)
    vocab_size = len(occurrences)
    tokens, trained = (read_table(audit, name, vocab_size) for name in ("vocab_tokens", "vocab_training"))
    counted = None if counts is None else Counts.open(counts)
    pretokens = None if counted is None else map(counted.counts, counted.sources)
    return find_suspects(tokens, occurrences, training=read_training(trained, vocab_size), counts=pretokens)


def _with_contexts(suspects: "pa.Table", tokenizer: Path, shards: Sequence[Path]) -> "pa.Table":
    import pyarrow as pa

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
        raise_if_stopped()
        uses[name].token_counts[:] += EncodedShard.open(path).token_counts
    return uses


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


USAGE = Stage(verb="usage", task="usage", kind="usage", version=9, params=UsageParams, run=run)


def sequences_of(
    tokenizer: "Tokenizer", suspects: Iterable[tuple[int, int, str | None]]
) -> dict[int, Sequence[int]]:
    """Return the ids that stand for each suspect in text: its own, or those of its example."""
    sequences: dict[int, Sequence[int]] = {}
    for token, occurrences, example in suspects:
        if occurrences:
            sequences[token] = [token]
        elif example:
            ids = tokenizer.encode_pretoken(example.encode())
            if 0 < len(ids) <= _TOO_LONG:
                sequences[token] = ids
    return sequences


def find_contexts(
    tokenizer: "Tokenizer", sequences: Mapping[int, Sequence[int]], shards: Sequence[Path]
) -> dict[int, str]:
    """Return where each sequence occurs first, the same for any number of workers."""
    left, found = dict(sequences), dict[int, str]()
    for number, path in enumerate(shards):
        if not left:
            break
        report_progress(number, len(shards), "shards")
        shard = EncodedShard.open(path)
        here = {token: ids for token, ids in left.items() if all(shard.token_counts[one] for one in ids)}
        if here:
            shard.check_ids(tokenizer.vocab_size, shard.tokens)
            found |= _found_in(tokenizer, shard, here)
            left = {token: ids for token, ids in left.items() if token not in found}
    return found


def _found_in(
    tokenizer: "Tokenizer", shard: EncodedShard, sequences: Mapping[int, Sequence[int]]
) -> dict[int, str]:
    """Look for the rarest id of each sequence, then for the rest of it around that."""
    rarest = {
        token: min(range(len(ids)), key=lambda k: int(shard.token_counts[ids[k]]))
        for token, ids in sequences.items()
    }
    wanted: NDArray[np.bool_] = np.zeros(len(shard.token_counts), np.bool_)
    wanted[[ids[rarest[token]] for token, ids in sequences.items()]] = True
    places = np.flatnonzero(wanted[shard.tokens])
    there = shard.tokens[places]
    found = {}
    for token, ids in sequences.items():
        starts = places[there == ids[rarest[token]]] - rarest[token]
        first = _first(shard, starts, np.asarray(ids, shard.tokens.dtype))
        if first is not None:
            found[token] = _context(tokenizer, shard, first, len(ids))
    return found


def _first(shard: EncodedShard, starts: NDArray[np.int64], ids: NDArray[np.integer]) -> int | None:
    """Return the first of some places where a sequence stands within one document."""
    starts = starts[(starts >= 0) & (starts + len(ids) <= len(shard.tokens))]
    for k, one in enumerate(ids):
        starts = starts[shard.tokens[starts + k] == one]
    ends = shard.offsets[np.searchsorted(shard.offsets, starts, side="right")]
    starts = starts[starts + len(ids) <= ends]
    return int(starts[0]) if len(starts) else None


def _context(tokenizer: "Tokenizer", shard: EncodedShard, first: int, number: int) -> str:
    """Return some tokens between marks, and the text around them in their document, as one line."""
    document = int(np.searchsorted(shard.offsets, first, side="right")) - 1
    begin, end = int(shard.offsets[document]), int(shard.offsets[document + 1])
    after = first + number
    parts = (
        shard.tokens[max(begin, first - _AROUND) : first],
        shard.tokens[first:after],
        shard.tokens[after : min(end, after + _AROUND)],
    )
    before, shown, behind = (tokenizer.decode(part, "backslashreplace") for part in parts)
    before, behind = _CUT_BEFORE.sub("", before), _CUT_BEHIND.sub("", behind)
    return on_one_line(f"{before}{MARKS[0]}{shown}{MARKS[1]}{behind}").strip()
