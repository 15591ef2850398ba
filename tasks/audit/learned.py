"""Suspects beside a model's embeddings: what vocabulary and text say, and what the model has learned."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from tokmill.tasks.audit.embeddings import Floats, compare, known_unused, read_indicators

MOST = 200
_I, _F, _S = pa.int64(), pa.float64(), pa.string()
SCHEMA = pa.schema(
    [
        *(("rank", _I), ("token_id", pa.uint32()), ("text", _S), ("kind", _S), ("indicator", _F)),
        *(("suspect_rank", _I), ("num_occurrences", pa.uint64())),
    ]
)


@dataclass(frozen=True)
class Learned:
    """What a model has learned of a vocabulary.

    Attributes:
        indicator: which one is gone by: `norm` or `distance`; see `tasks.audit.embeddings`.
        suspects: `vocab_suspects` with `indicator` (NULL if a row is not finite) and `indicator_rank`, 1 for
            the least trained of all ids.
        least: the ids with the lowest indicators; `suspect_rank` is NULL for those that are no suspects.
        agreement: the first suspects against as many of the least trained; see `embeddings.compare`.
    """

    indicator: str
    suspects: pa.Table
    least: pa.Table
    agreement: pa.Table


def compare_with_model(
    tokens: pa.Table, suspects: pa.Table, model: Path, *, names: tuple[str, str] | None = None
) -> Learned:
    """Compare suspects with the embeddings of a model.

    Args:
        tokens: `vocab_tokens`, a row per id.
        suspects: `vocab_suspects`.
        model: a safetensors file, the index of several, or a folder with one of them.
        names: the tensors of input and output embeddings, if they have unusual names.

    Raises:
        EmbeddingError: see `read_indicators`.
    """
    found = read_indicators(model, len(tokens), known_unused(tokens), names=names)
    indicator = found.indicator
    order = np.argsort(indicator, kind="stable")
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(1, len(order) + 1)
    return Learned(
        "distance" if found.tied else "norm",
        _beside(suspects, indicator, places),
        _least(tokens, suspects, indicator, order[:MOST]),
        compare(suspects, indicator),
    )


def _beside(suspects: pa.Table, indicator: Floats, places: np.ndarray) -> pa.Table:
    ids = suspects["token_id"].to_numpy().astype(np.int64)
    values = pa.array(np.round(indicator[ids], 6), from_pandas=True)
    return suspects.append_column("indicator", values).append_column(
        "indicator_rank", pa.array(places[ids], _I)
    )


def _least(tokens: pa.Table, suspects: pa.Table, indicator: Floats, order: np.ndarray) -> pa.Table:
    """Return the rows of the lowest indicators; ids whose row is not finite are left out."""
    by_id = tokens.sort_by("token_id")
    ranks = _by_id(suspects, "rank")
    occurrences = _by_id(suspects, "num_occurrences")
    rows = [
        {
            "rank": place,
            "token_id": token,
            "text": by_id["text"][token].as_py(),
            "kind": by_id["kind"][token].as_py(),
            "indicator": round(float(indicator[token]), 6),
            "suspect_rank": ranks.get(token),
            "num_occurrences": occurrences.get(token),
        }
        for place, token in enumerate(order.tolist(), 1)
        if np.isfinite(indicator[token])
    ]
    return pa.Table.from_pylist(rows, SCHEMA)


def _by_id(suspects: pa.Table, name: str) -> Mapping[int, int]:
    return dict(zip(suspects["token_id"].to_pylist(), suspects[name].to_pylist(), strict=True))
