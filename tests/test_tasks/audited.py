"""Audits of small texts, made by the audit's own functions, for tests of what reads their tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from tokmill.tasks.audit import parity
from tokmill.tasks.audit.entropy import entropies
from tokmill.tasks.audit.measurement import measure_texts
from tokmill.tasks.audit.params import AuditParams
from tokmill.tasks.audit.probes import probe
from tokmill.tasks.audit.sources import source_tables, total
from tokmill.tasks.audit.stage import summarize, write_audit
from tokmill.tasks.audit.suspects import find_suspects
from tokmill.tasks.audit.tokens import describe_tokens
from tokmill.tasks.audit.training_counts import TRAINING
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.buffers import pack


def audited(
    folder: Path,
    tok: Tokenizer,
    texts: Mapping[str, Sequence[str]],
    parallel: Mapping[str, Sequence[str]] | None = None,
) -> Path:
    """Write an audit, and the suspects that a later use would find, into a folder."""
    measured = {name: measure_texts(tok, *pack(documents)) for name, documents in texts.items()}
    counts = total(tok, measured).token_counts
    tables: dict[str, pa.Table] = {
        "vocab_tokens": describe_tokens(tok, None, counts > 0),
        "vocab_training": TRAINING.empty_table(),
        **source_tables(tok, "corpus", measured),
        "vocab_entropy": entropies(tok, "corpus", measured),
        "vocab_parity": parity.SCHEMA.empty_table(),
        "vocab_probes": probe(tok),
    }
    if parallel:
        tables["vocab_parity"] = parity.parity(tok, parallel, next(iter(parallel)))
    folder.mkdir(parents=True, exist_ok=True)
    write_audit(folder, tables, summarize(AuditParams(), tok, "corpus", tables, counts, {}))
    suspects = find_suspects(tables["vocab_tokens"], counts)
    parquet.write_table(suspects, folder / "catalog" / "vocab_suspects.parquet")
    return folder
