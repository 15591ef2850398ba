"""Compare tokenizers on the same text: compression, words, premiums, and the tokens that they share.

The first tokenizer is the one that the others are compared with. Bits per byte compare units of any kind, but
a tokenizer that loses text (unknown tokens, or normalization that cannot be undone) need not encode what it
lost; its bits are None, and `changed_share` says how many documents come back changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokmill.tasks.audit.entropy import entropies, fit_trigrams
from tokmill.tasks.audit.measurement import Measured, measure_texts
from tokmill.tasks.audit.params import EVERY
from tokmill.tasks.audit.parity import parity
from tokmill.tasks.audit.sources import ALL, ratio, source_tables
from tokmill.tasks.audit.tokens import surfaces_of
from tokmill.tokenizer import Tokenizer

Texts = Mapping[str, tuple[NDArray[np.uint8], NDArray[np.int64]]]
"""Documents by name of the text, as buffers; see `Tokenizer.encode_buffers`."""

_OF_SOURCES = (
    *("num_documents", "num_bytes", "num_tokens", "bytes_per_token", "chars_per_token", "fertility"),
    *("whole_share", "unknown_share", "fallback_share", "tokens_90", "num_used"),
)


def compare_texts(tokenizers: Mapping[str, Tokenizer], texts: Texts) -> list[dict[str, Any]]:
    """Return a row per text and tokenizer.

    Returns:
        Rows with `tokenizer`, `text`, the figures of `vocab_sources`, `changed_share`, `renyi_efficiency`,
        `bits_per_byte` (None if the tokenizer loses text), `relative_length`: tokens over those of the first
        tokenizer, and `lossy`: whether it loses text, by unknown tokens or by what it normalizes.
    """
    rows: list[dict[str, Any]] = []
    first: dict[str, int] = {}
    for name, tok in tokenizers.items():
        measured = {text: fit_trigrams(measure_texts(tok, *given)) for text, given in texts.items()}
        rows += _rows(name, tok, measured, first)
    return rows


def _rows(
    name: str, tok: Tokenizer, measured: Mapping[str, Measured], first: dict[str, int]
) -> list[dict[str, Any]]:
    tables = source_tables(tok, "compared", measured)
    trips = {row["source"]: row for row in tables["vocab_roundtrip"].to_pylist()}
    entropy = {row["source"]: row for row in entropies(tok, "compared", measured).to_pylist()}
    rows = []
    for row in tables["vocab_sources"].to_pylist():
        source = row["source"]
        loses = trips[source]["num_changed"] > 0 or bool(row["num_unknown"])
        first.setdefault(source, row["num_tokens"])
        rows.append(
            {
                "tokenizer": name,
                "text": "all" if source == ALL else source,
                **{column: row[column] for column in _OF_SOURCES},
                "changed_share": trips[source]["changed_share"],
                "renyi_efficiency": entropy[source]["renyi_efficiency"],
                "bits_per_byte": entropy[source]["trigram_bits_per_byte"],
                "relative_length": ratio(row["num_tokens"], first[source]),
                "lossy": loses,
            }
        )
    return rows


def compare_parity(
    tokenizers: Mapping[str, Tokenizer], lines: Mapping[str, Sequence[str]], reference: str, seed: int = 0
) -> list[dict[str, Any]]:
    """Return a row per tokenizer and language: those of `vocab_parity`, with `tokenizer`.

    Raises:
        AuditError: see `parity`.
    """
    found = {name: parity(tok, lines, reference, seed).to_pylist() for name, tok in tokenizers.items()}
    return [
        {"tokenizer": name, **row, "language": "all" if row["language"] == EVERY else row["language"]}
        for name, rows in found.items()
        for row in rows
    ]


def compare_vocabularies(tokenizers: Mapping[str, Tokenizer]) -> list[dict[str, Any]]:
    """Return a row per tokenizer: its family and size, and the tokens that it shares with the first.

    Tokens are compared by what they add to a text, so ` the`, `▁the` and GPT-2's `Ġthe` are the same.
    """
    texts = {name: {text for text in surfaces_of(tok) if text} for name, tok in tokenizers.items()}
    first = next(iter(texts.values()))
    return [
        {
            "tokenizer": name,
            "family": tok.family,
            "vocab_size": tok.vocab_size,
            "num_shared": len(texts[name] & first),
            "shared_share": ratio(len(texts[name] & first), len(texts[name])),
        }
        for name, tok in tokenizers.items()
    ]


def as_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Return rows as a table; for files of them."""
    return pa.Table.from_pylist([dict(row) for row in rows])
