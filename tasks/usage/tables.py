"""The tables of a vocabulary's use.

Ratios leave out the tokens that were added to the text: those that begin and end documents, and those of
fill-in-the-middle. A ratio whose denominator is 0 is NULL.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokmill.tasks.audit.tokens import EXTRAORDINARY
from tokmill.tasks.formats.encoded import EncodedStatistics
from tokmill.tokenizer.core.text import all_readable

_I, _U, _F, _S = pa.int64(), pa.uint64(), pa.float64(), pa.string()
SCHEMAS = {
    "vocab_occurrences": pa.schema([("source", _S), ("token_id", pa.uint32()), ("num_occurrences", _U)]),
    "usage_sources": pa.schema(
        [
            *(("source", _S), ("num_documents", _I), ("num_tokens", _I), ("num_text_tokens", _I)),
            *(("num_begin_tokens", _I), ("num_end_tokens", _I), ("num_fim_tokens", _I), ("num_bytes", _I)),
            *(("num_chars", _I), ("bytes_per_token", _F), ("chars_per_token", _F)),
            *(("num_used_tokens", _I), ("used_share", _F)),
        ]
    ),
    "usage_tokens": pa.schema(
        [
            *(("token_id", pa.uint32()), ("token", pa.binary()), ("readable", _S), ("kind", _S)),
            *(("num_bytes", _I), ("num_occurrences", _U), ("num_sources", _I)),
        ]
    ),
    "usage_lengths": pa.schema(
        [("num_bytes", _I), ("num_tokens", _I), ("num_unused", _I), ("num_occurrences", _U)]
    ),
}


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a model by id, as the model describes them."""

    tokens: Sequence[bytes]  # bytes of each token
    kinds: Sequence[str]  # kind of each token; see `tokmill.tokenizer.pipeline.model.Model.kinds`

    @cached_property
    def texts(self) -> list[str]:
        """Each token as one line of text."""
        return all_readable(self.tokens)

    def is_ordinary(self) -> NDArray[np.bool_]:
        """Whether each token stands for text (it is neither special nor reserved): bool [vocab_size]."""
        return np.array([kind not in EXTRAORDINARY for kind in self.kinds], dtype=np.bool_)


@dataclass(frozen=True)
class SourceUse:
    """The statistics of one source, and how often each id occurs in it: uint64 [vocab_size]."""

    statistics: EncodedStatistics
    token_counts: NDArray[np.uint64]


def usage_tables(vocabulary: Vocabulary, sources: Mapping[str, SourceUse]) -> dict[str, pa.Table]:
    """Return the tables by name; there is at least one source."""
    names, ordinary = sorted(sources), vocabulary.is_ordinary()
    counts = np.stack([sources[name].token_counts for name in names], axis=1)  # by id and source
    tokens, of_source = np.nonzero(counts)
    columns = {
        "vocab_occurrences": [pa.array(names).take(pa.array(of_source)), tokens, counts[tokens, of_source]],
        "usage_tokens": _tokens(vocabulary, counts),
        "usage_lengths": _lengths(vocabulary, ordinary, counts.sum(axis=1)),
    }
    rows = [source_row(name, use, ordinary) for name, use in sources.items()]
    found = {
        name: pa.Table.from_arrays(_typed(name, given), schema=SCHEMAS[name])
        for name, given in columns.items()
    }
    return {**found, "usage_sources": pa.Table.from_pylist(rows, SCHEMAS["usage_sources"])}


def source_row(name: str, use: SourceUse, ordinary: NDArray[np.bool_]) -> dict[str, Any]:
    """Return a row of `usage_sources`.

    Args:
        name: of the source.
        use: how the vocabulary is used in it.
        ordinary: bool [vocab_size], the tokens that stand for text.
    """
    statistics, used = use.statistics, int(np.count_nonzero(use.token_counts[ordinary]))
    columns = SCHEMAS["usage_sources"].names
    return {
        **{column: getattr(statistics, column) for column in columns if hasattr(statistics, column)},
        "source": name,
        "bytes_per_token": _ratio(statistics.num_bytes, statistics.num_text_tokens),
        "chars_per_token": _ratio(statistics.num_chars, statistics.num_text_tokens),
        "num_used_tokens": used,
        "used_share": _ratio(used, int(np.count_nonzero(ordinary))),
    }


def _typed(name: str, columns: Sequence[Any]) -> list[pa.Array]:
    return [pa.array(given, field.type) for given, field in zip(columns, SCHEMAS[name], strict=True)]


def _ratio(amount: int, by: int) -> float | None:
    return amount / by if by else None


def _tokens(vocabulary: Vocabulary, counts: NDArray[np.uint64]) -> list[Any]:
    ids = [token for token, kind in enumerate(vocabulary.kinds) if kind != "hole"]
    tokens = [vocabulary.tokens[token] for token in ids]
    described = [[vocabulary.texts[token] for token in ids], [vocabulary.kinds[token] for token in ids]]
    return [
        ids,
        tokens,
        *described,
        [*map(len, tokens)],
        counts.sum(axis=1)[ids],
        np.count_nonzero(counts, axis=1)[ids],
    ]


def _lengths(
    vocabulary: Vocabulary, ordinary: NDArray[np.bool_], occurrences: NDArray[np.uint64]
) -> list[Any]:
    """Return the columns of `usage_lengths`, which has a row for each length of ordinary tokens."""
    lengths = np.array([*map(len, vocabulary.tokens)], np.int64)[ordinary]
    distinct, which, number = np.unique(lengths, return_inverse=True, return_counts=True)
    unused, sums = np.zeros((2, len(distinct)), np.uint64)
    np.add.at(unused, which, occurrences[ordinary] == 0)
    np.add.at(sums, which, occurrences[ordinary])
    return [distinct, number, unused, sums]
