"""Tables of how each source is encoded: `vocab_sources`, `_lengths`, `_frequencies` and `_roundtrip`.

`vocab_sources` has a row per source, and `*` for all; docs/formats.md has the columns. `vocab_frequencies`
has the occurrences at ranks whose steps grow with the rank, `vocab_roundtrip` the documents that come back
changed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokmill.tasks.audit.measurement import Measured, fallback_ids, unknown_ids
from tokmill.tasks.audit.tokens import EXTRAORDINARY, surfaces_of
from tokmill.tokenizer import Tokenizer

ALL = "*"
"""The source of rows over all sources."""

_PARTS = (0.5, 0.9, 0.99)
_RANKS_A_DECADE = 30


def source_tables(tok: Tokenizer, text: str, sources: Mapping[str, Measured]) -> dict[str, pa.Table]:
    """Return the tables of a text, by name."""
    rows = dict(sources)
    if len(sources) != 1:
        rows[ALL] = total(tok, sources)
    vocabulary = _Vocabulary(tok)
    return {
        "vocab_sources": pa.Table.from_pylist(
            [{"text": text, "source": name, **vocabulary.figures(one)} for name, one in rows.items()], SOURCES
        ),
        "vocab_lengths": _joined(
            [vocabulary.lengths(text, name, one) for name, one in rows.items()], LENGTHS
        ),
        "vocab_frequencies": _joined([_ranked(text, name, one) for name, one in rows.items()], FREQUENCIES),
        "vocab_roundtrip": pa.Table.from_pylist(
            [_round_trip(text, name, one) for name, one in rows.items()], ROUND_TRIPS
        ),
    }


def total(tok: Tokenizer, sources: Mapping[str, Measured]) -> Measured:
    """Return what was measured of all sources together, without their ids."""
    every = Measured.none(tok.vocab_size)
    for one in sources.values():
        every.add(Measured(one.amounts, one.halves, example=one.example))
    return every


_I, _F, _S = pa.int64(), pa.float64(), pa.string()
SOURCES = pa.schema(
    [
        *(("text", _S), ("source", _S), ("num_documents", _I), ("num_bytes", _I), ("num_chars", _I)),
        *(("num_words", _I), ("num_tokens", _I), ("bytes_per_token", _F)),
        *(("bytes_per_token_error", _F), ("chars_per_token", _F)),
        *(("fertility", _F), ("num_whole_words", _I), ("whole_share", _F), ("num_continued_words", _I)),
        *(("num_unknown", _I), ("unknown_share", _F), ("num_fallback", _I), ("fallback_share", _F)),
        *(("tokens_50", _I), ("tokens_90", _I), ("tokens_99", _I), ("num_used", _I), ("unused_share", _F)),
    ]
)
LENGTHS = pa.schema(
    [("text", _S), ("source", _S), ("num_bytes", _I), ("num_tokens", _I), ("num_occurrences", _I)]
)
FREQUENCIES = pa.schema([("text", _S), ("source", _S), ("rank", _I), ("num_occurrences", _I)])
ROUND_TRIPS = pa.schema(
    [
        *(("text", _S), ("source", _S), ("num_documents", _I), ("num_changed", _I), ("changed_share", _F)),
        *(("num_unstable", _I), ("example", _S)),
    ]
)


def ratio(amount: float, by: float) -> float | None:
    """Return a ratio, rounded to six digits; None if there is nothing to divide by."""
    return round(amount / by, 6) if by else None


class _Vocabulary:
    """What the figures of a text need to know of a vocabulary, looked up once."""

    def __init__(self, tok: Tokenizer) -> None:
        kinds = tok.definition.kinds()
        self.ordinary = np.array([kind not in EXTRAORDINARY for kind in kinds], np.bool_)
        self.unknown = unknown_ids(tok)
        self.fallback = fallback_ids(tok)
        self.num_bytes = np.array([len(text) for text in surfaces_of(tok)], np.int64)

    def figures(self, one: Measured) -> dict[str, Any]:
        """Return a row of `vocab_sources`."""
        amounts, counts = one.amounts, one.token_counts
        unknown = int(counts[self.unknown].sum()) if self.unknown else None
        fallback, used = int(counts[self.fallback].sum()), int((counts[self.ordinary] > 0).sum())
        tokens = amounts.num_tokens
        return {
            **{name: value for name, value in amounts._asdict().items() if name in SOURCES.names},
            "bytes_per_token": ratio(amounts.num_bytes, tokens),
            "bytes_per_token_error": amounts.bytes_per_token_error,
            "chars_per_token": ratio(amounts.num_chars, tokens),
            "fertility": ratio(tokens, amounts.num_words),
            "whole_share": ratio(amounts.num_whole_words, amounts.num_words),
            "num_continued_words": amounts.num_words - amounts.num_whole_words,
            "num_unknown": unknown,
            "unknown_share": None if unknown is None else ratio(unknown, tokens),
            "num_fallback": fallback,
            "fallback_share": ratio(fallback, tokens),
            **_covering(counts),
            "num_used": used,
            "unused_share": ratio(int(self.ordinary.sum()) - used, int(self.ordinary.sum())),
        }

    def lengths(self, text: str, source: str, one: Measured) -> list[dict[str, Any]]:
        """Return rows of `vocab_lengths`: the ordinary tokens that occur, by length."""
        used = np.flatnonzero(self.ordinary & (one.token_counts > 0))
        of_length = np.bincount(self.num_bytes[used])
        occurring = np.zeros(len(of_length), np.int64)
        np.add.at(occurring, self.num_bytes[used], one.token_counts[used].astype(np.int64))
        place = {"text": text, "source": source}
        return [
            {**place, "num_bytes": length, "num_tokens": int(number), "num_occurrences": int(times)}
            for length, (number, times) in enumerate(zip(of_length, occurring, strict=True))
            if number
        ]


def _covering(counts: NDArray[np.uint64]) -> dict[str, int | None]:
    """Return how many of the most frequent ids make up 50, 90 and 99 % of the tokens."""
    summed = np.cumsum(np.sort(counts)[::-1].astype(np.int64))
    found: dict[str, int | None] = {}
    for part in _PARTS:
        needed = part * int(summed[-1]) if len(summed) else 0
        found[f"tokens_{round(part * 100)}"] = int(np.searchsorted(summed, needed)) + 1 if needed else None
    return found


def _ranked(text: str, source: str, one: Measured) -> list[dict[str, Any]]:
    counts = np.sort(one.token_counts[one.token_counts > 0])[::-1].astype(np.int64)
    return [
        {"text": text, "source": source, "rank": rank, "num_occurrences": int(counts[rank - 1])}
        for rank in log_spaced(len(counts))
    ]


def log_spaced(number: int) -> Sequence[int]:
    """Return ranks from 1 to a number, each the next one or about 8 % more, and the number itself."""
    ranks = list[int]()
    rank = 1
    while rank < number:
        ranks.append(rank)
        rank = max(rank + 1, rank + rank * 2 // _RANKS_A_DECADE)
    return [*ranks, number] if number else []


def _round_trip(text: str, source: str, one: Measured) -> dict[str, Any]:
    amounts = one.amounts
    return {
        "text": text,
        "source": source,
        "num_documents": amounts.num_documents,
        "num_changed": amounts.num_changed,
        "changed_share": ratio(amounts.num_changed, amounts.num_documents),
        "num_unstable": amounts.num_unstable,
        "example": one.example or None,
    }


def _joined(rows: list[list[dict[str, Any]]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist([row for part in rows for row in part], schema)
