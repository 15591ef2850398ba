"""Audits of small texts, made by the audit's own functions, for tests of what reads their tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson
import pyarrow as pa
from pyarrow import parquet

from tokmill.tasks.audit.entropy import entropies
from tokmill.tasks.audit.measurement import measure_texts
from tokmill.tasks.audit.parity import parity
from tokmill.tasks.audit.probes import probe
from tokmill.tasks.audit.sources import source_tables, total
from tokmill.tasks.audit.suspects import find_suspects
from tokmill.tasks.audit.tokens import describe_tokens
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.buffers import pack


def write_audit(
    folder: Path,
    tok: Tokenizer,
    texts: Mapping[str, Sequence[str]],
    parallel: Mapping[str, Sequence[str]] | None = None,
    without: Sequence[str] = (),
) -> Path:
    """Write the tables of an audit into a folder, some of them left out."""
    measured = {name: measure_texts(tok, *pack(documents)) for name, documents in texts.items()}
    counts = total(tok, measured).token_counts
    tokens = describe_tokens(tok, None, counts > 0)
    tables: dict[str, pa.Table] = {
        "vocab_tokens": tokens,
        **source_tables(tok, "corpus", measured),
        "vocab_entropy": entropies(tok, "corpus", measured),
        "vocab_suspects": find_suspects(tokens, counts),
        "vocab_probes": probe(tok),
    }
    if parallel:
        tables["vocab_parity"] = parity(tok, parallel, next(iter(parallel)))
    (folder / "catalog").mkdir(parents=True)
    for name in tables.keys() - set(without):
        parquet.write_table(tables[name], folder / "catalog" / f"{name}.parquet")
    (folder / "summary.json").write_bytes(orjson.dumps({"gate": "none"}))
    return folder
