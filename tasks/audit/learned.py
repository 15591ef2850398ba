"""Which tokens a model has hardly learned, by its embeddings, beside what vocabulary and text say.

The indicator is the norm of a token's row in the input embeddings, or, where input and output are one
matrix, 1 minus the cosine of its row and the mean row of unused ids (`known_unused`, and rows that pad the
matrix): the lower, the less trained. A row of zeros has the distance 0, one with a value that is not finite
NaN. Memory does not grow with the matrix. Source: Land and Bartolo, "Fishing for Magikarp", EMNLP 2024,
section 3.2.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tokmill.tasks.core.errors import EmbeddingError
from tokmill.tasks.embeddings.resize import model_files
from tokmill.tasks.embeddings.safetensors import Tensor, TensorFile, to_floats

Floats = NDArray[np.float64]

MOST = 200
_I, _F, _S = pa.int64(), pa.float64(), pa.string()
SCHEMA = pa.schema(
    [
        *(("rank", _I), ("token_id", pa.uint32()), ("text", _S), ("kind", _S), ("indicator", _F)),
        *(("suspect_rank", _I), ("num_occurrences", pa.uint64())),
    ]
)
MOST_PADDING = 1024
"""A matrix with so many rows more than there are ids belongs to another vocabulary."""
_INPUTS = (
    *("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "tok_embeddings.weight"),
    *("embed_in.weight", "shared.weight"),
)
_OUTPUTS = ("lm_head.weight", "embed_out.weight", "output.weight", "predictions.decoder.weight")
_TYPES = ("F64", "F32", "F16", "BF16")
_ROWS_AT_A_TIME = 4096


@dataclass(frozen=True)
class Learned:
    """What a model has learned of a vocabulary.

    Attributes:
        indicator: which one is gone by: `norm` or `distance`.
        suspects: `vocab_suspects` with `indicator` (NULL if a row is not finite) and `indicator_rank`, 1 for
            the least trained of all ids.
        least: the ids with the lowest indicators; `suspect_rank` is NULL for those that are not suspects.
        agreement: the first suspects against as many of the least trained; see `compare`.
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


COMPARISON_SCHEMA = pa.schema([("first", _I), ("num_both", _I), ("share", _F), ("rank_correlation", _F)])


@dataclass(frozen=True)
class Indicators:
    """The indicators of all ids.

    Attributes:
        norm: float64 [vocab_size].
        distance: float64 [vocab_size]; None where no row is known to be unused.
        tied: whether one matrix is both input and output.
    """

    norm: Floats
    distance: Floats | None
    tied: bool

    @property
    def indicator(self) -> Floats:
        """The one to go by: the distance if there is one matrix, else the norm."""
        if not self.tied:
            return self.norm
        if self.distance is None:
            raise EmbeddingError(
                "embeddings: input and output are one matrix, and no id is known to be unused, so nothing "
                "tells what rows without training look like; name ids that the model never saw"
            )
        return self.distance


def read_indicators(
    path: Path, vocab_size: int, unused: Sequence[int] = (), *, names: tuple[str, str] | None = None
) -> Indicators:
    """Compute the indicators of a model.

    Args:
        path: a safetensors file with the embeddings, the index of several, or a folder with one of them.
        vocab_size: how many ids the tokenizer has.
        unused: ids that the model never saw.
        names: the tensors of input and output, if they have unusual names; twice the same if they are one.

    Raises:
        EmbeddingError: the file is not sound, has no embeddings or several, or ones of another vocabulary.
    """
    file = _Model.open(path)
    given, made = names or (_named(file, _INPUTS), _named(file, _OUTPUTS))
    if given is None:
        raise EmbeddingError(
            f"{path}: has no input embeddings with a usual name; name them, of {_names(file)}"
        )
    made = made or given
    for name in dict.fromkeys((given, made)):
        _check(file, name, vocab_size)
    outside = [token for token in unused if not 0 <= token < vocab_size]
    if outside:
        raise EmbeddingError(f"embeddings: unused id {outside[0]} is not among the {vocab_size} ids")
    norm = np.concatenate([np.linalg.norm(rows, axis=1) for _, rows in _rows(file, given)])[:vocab_size]
    return Indicators(_finite(norm), _distances(file, made, vocab_size, unused), tied=made == given)


def known_unused(tokens: pa.Table) -> list[int]:
    """Return the ids of `vocab_tokens` that are reserved, or that no text gives."""
    columns = (tokens[name].to_pylist() for name in ("token_id", "kind", "reachable"))
    return [
        token for token, kind, reached in zip(*columns, strict=True) if kind == "reserved" or reached is False
    ]


def compare(
    suspects: pa.Table, indicator: Floats, firsts: Sequence[int] = (50, 100, 200, 500, 1000)
) -> pa.Table:
    """Compare `vocab_suspects`, found without the indicator, with the indicator.

    Args:
        suspects: the table.
        indicator: float64 [vocab_size].
        firsts: how many first suspects are compared with as many tokens of the lowest indicators.

    Returns:
        `first`, `num_both` (tokens that are among the first of either), `share` of `first`, and
        `rank_correlation` (Spearman's, of all suspects' score and negative indicator; the same in each row;
        NULL if either is constant). Firsts beyond the number of suspects are left out.

    Raises:
        EmbeddingError: a suspect is beyond the indicator.
    """
    ids = suspects["token_id"].to_numpy().astype(np.int64)
    if len(ids) and ids.max() >= len(indicator):
        raise EmbeddingError(f"embeddings: suspect {ids.max()} is not among the {len(indicator)} ids")
    lowest = np.argsort(indicator, kind="stable")  # NaN comes last
    both = [len(np.intersect1d(ids[:first], lowest[:first])) for first in firsts]
    known = np.isfinite(indicator[ids])
    related = _spearman(suspects["score"].to_numpy()[known], -indicator[ids][known])
    rows = [
        {"first": first, "num_both": number, "share": round(number / first, 6), "rank_correlation": related}
        for first, number in zip(firsts, both, strict=True)
        if 0 < first <= len(ids)
    ]
    return pa.Table.from_pylist(rows, COMPARISON_SCHEMA)


@dataclass(frozen=True)
class _Model:
    """The tensors of a model, in a file or in several."""

    path: Path
    tensors: Mapping[str, Tensor]
    files: Mapping[str, TensorFile]

    @classmethod
    def open(cls, path: Path) -> Self:
        files = [TensorFile.open(file) for file in model_files(path)]
        tensors = {name: tensor for file in files for name, tensor in file.tensors.items()}
        return cls(path, tensors, {name: file for file in files for name in file.tensors})

    def rows(self, name: str, first: int, last: int) -> Floats:
        """Some rows of a matrix: float64 [last - first, columns]."""
        return to_floats(self.files[name].rows(name, first, last), self.tensors[name].dtype)


def _named(file: _Model, endings: tuple[str, ...]) -> str | None:
    """Return the tensor whose name has one of the endings, after a dot if after anything."""
    found = [name for name in file.tensors if f".{name}".endswith(tuple(f".{ending}" for ending in endings))]
    if len(found) > 1:
        raise EmbeddingError(f"{file.path}: {' and '.join(found)} may all be embeddings; name the right ones")
    return found[0] if found else None


def _check(file: _Model, name: str, vocab_size: int) -> None:
    """Raise unless a tensor is a matrix of floats with a row for each id."""
    tensor = file.tensors.get(name)
    if tensor is None:
        raise EmbeddingError(f"{file.path}: has no tensor {name!r}; name one of {_names(file)}")
    if len(tensor.shape) != 2 or not tensor.shape[1] or tensor.dtype not in _TYPES:
        raise EmbeddingError(
            f"{file.path}: {name} is {tensor.dtype} of shape {list(tensor.shape)}; embeddings are a matrix "
            f"in {', '.join(_TYPES)}"
        )
    if not vocab_size <= tensor.shape[0] < vocab_size + MOST_PADDING:
        raise EmbeddingError(
            f"{file.path}: {name} has {tensor.shape[0]} rows, and the tokenizer {vocab_size} ids; use the "
            "model of this tokenizer"
        )


def _rows(file: _Model, name: str) -> Iterator[tuple[int, Floats]]:
    """Yield the first row's number and the rows of a matrix, piece by piece: float64 [rows, columns]."""
    tensor = file.tensors[name]
    for first in range(0, tensor.shape[0], _ROWS_AT_A_TIME):
        last = min(first + _ROWS_AT_A_TIME, tensor.shape[0])
        yield first, file.rows(name, first, last)


def _distances(file: _Model, name: str, vocab_size: int, unused: Sequence[int]) -> Floats | None:
    """Return 1 minus the cosine of each id's row and the mean of the unused rows."""
    num_rows, columns = file.tensors[name].shape
    chosen = np.zeros(num_rows, np.bool_)
    chosen[[*unused, *range(vocab_size, num_rows)]] = True
    total = np.zeros(columns)
    for first, rows in _rows(file, name):
        picked = rows[chosen[first : first + len(rows)]]
        total += picked[np.isfinite(picked).all(axis=1)].sum(axis=0)
    length = float(np.linalg.norm(total))
    if not length:
        return None
    cosines = [_cosines(rows, total / length) for _, rows in _rows(file, name)]
    return 1.0 - np.concatenate(cosines)[:vocab_size]


def _cosines(rows: Floats, direction: Floats) -> Floats:
    """Return the cosine of each row and a direction of length 1; 1 for rows of zeros."""
    lengths = _finite(np.linalg.norm(rows, axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(lengths == 0, 1.0, _finite(rows @ direction / lengths))


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, np.nan)


def _spearman(left: Floats, right: Floats) -> float | None:
    """Return the correlation of ranks, equal values sharing the mean of theirs; None if one is constant."""
    ranks = [_ranks(left), _ranks(right)]
    centred = [rank - rank.mean() if len(rank) else rank for rank in ranks]
    scale = float(np.sqrt((centred[0] ** 2).sum() * (centred[1] ** 2).sum()))
    return round(float((centred[0] * centred[1]).sum()) / scale, 6) if scale else None


def _ranks(values: Floats) -> Floats:
    _, place, number = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(number) - (number - 1) / 2)[place]


def _names(file: _Model) -> str:
    return ", ".join(list(file.tensors)[:5]) or "none at all"
