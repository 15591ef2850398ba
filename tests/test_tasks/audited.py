"""Audits of small texts, made by the audit's own functions, for tests of what reads their tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import parquet

from tokmill import tokenizer
from tokmill.tasks.audit import parity
from tokmill.tasks.audit.entropy import entropies, fit_trigrams
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

UNKNOWN = {"special_tokens": ["[UNK]"]}
FAMILIES = {
    "wordpiece": {"split_pattern": "bert", **UNKNOWN},
    "sentencepiece": {"family": "unigram", "mode": "sentencepiece"},
    **dict.fromkeys(("word_bpe", "unigram", "char_bpe", "word_level", "character_level"), UNKNOWN),
    "byte_bpe": {},
}
TEXTS = ["the cat sat on the mat, the cats sit 12", "unhappy cats unwind", "mats and hats 345"] * 3


def of_family(family: str) -> Tokenizer:
    """A small tokenizer of a family, or of SentencePiece's kind."""
    options = {"family": family, "vocab_size": 300, "allow_smaller": True, **FAMILIES[family]}
    return tokenizer.train(TEXTS, **options)


def audited(
    folder: Path,
    tok: Tokenizer,
    texts: Mapping[str, Sequence[str]],
    parallel: Mapping[str, Sequence[str]] | None = None,
) -> Path:
    """Write an audit, and the suspects that a later use would find, into a folder."""
    measured = {name: fit_trigrams(measure_texts(tok, *pack(documents))) for name, documents in texts.items()}
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
