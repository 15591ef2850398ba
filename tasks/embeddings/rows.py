"""Compute the rows of new ids from rows of old ones, in every floating-point type that embeddings have.

Means are computed in 64 bits and rounded to the matrix's own type, to nearest, ties to even. bfloat16, which
numpy does not know, is the upper half of a 32-bit float.
"""

from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import EmbeddingError
from tokmill.tasks.embeddings.safetensors import TensorFile
from tokmill.tokenizer.adaptation.plan import EmbeddingPlan

Method: TypeAlias = Literal["mean", "weighted_mean", "normal"]
Floats: TypeAlias = NDArray[np.float64]

_TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16}
_ROWS_AT_A_TIME = 4096


def to_floats(rows: NDArray[np.uint8], dtype: str) -> Floats:
    """Return rows of bytes as numbers: float64 [n, columns].

    Raises:
        EmbeddingError: the type is none that embeddings have.
    """
    if dtype == "BF16":
        upper = np.ascontiguousarray(rows).view("<u2").astype(np.uint32)
        return (upper << np.uint32(16)).view(np.float32).astype(np.float64)
    if dtype not in _TYPES:
        raise EmbeddingError(
            f"resize: embeddings of type {dtype} have no mean; use a model in F32, F16, BF16 or F64"
        )
    return np.ascontiguousarray(rows).view(np.dtype(_TYPES[dtype]).newbyteorder("<")).astype(np.float64)


def to_bytes(values: Floats, dtype: str) -> bytes:
    """Return numbers as the bytes of a type, rounded to nearest, ties to even."""
    if dtype != "BF16":
        return values.astype(np.dtype(_TYPES[dtype]).newbyteorder("<")).tobytes()
    bits = values.astype(np.float32).view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    finite = np.isfinite(values)
    return np.where(finite, rounded >> np.uint32(16), bits >> np.uint32(16)).astype("<u2").tobytes()


class NewRows:
    """The rows of new ids for one matrix.

    Args:
        file: the file with the matrix.
        name: the matrix.
        plan: what new ids are made from.
        method: `mean` or `weighted_mean` of the old rows, or `normal`, drawn at random with the mean and the
            standard deviation of each column of the old matrix. New ids that are made from no old ones have
            the mean of all rows.
        seed: of the draws; a new id has the same draw in every matrix of as many columns.
    """

    def __init__(self, file: TensorFile, name: str, plan: EmbeddingPlan, method: Method, seed: int) -> None:
        self._file, self._name, self._plan, self._method = file, name, plan, method
        self._dtype = file.tensors[name].dtype
        self._seed = seed
        self._moments: tuple[Floats, Floats] | None = None

    def row(self, new: int) -> bytes:
        """The bytes of one new row.

        Raises:
            EmbeddingError: a value is infinite or NaN, as the rows are that it is made from, or too large
                for the matrix's type.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            data = to_bytes(self._values(new), self._dtype)
        if not np.isfinite(to_floats(np.frombuffer(data, np.uint8), self._dtype)).all():
            raise EmbeddingError(
                f"resize: the new row {new} of {self._name!r:.200} would not be finite: {self._dtype} cannot "
                "hold it, or the old rows are infinite or NaN; mend the model, or use another --method"
            )
        return data

    def _values(self, new: int) -> Floats:
        """The numbers of one new row: float64 [1, columns]."""
        ids = self._plan.sources.get(new, ())
        if self._method == "normal" or not ids:
            mean, deviation = self._column_moments()
            scale = _normal(self._seed, new, len(mean)) if self._method == "normal" else 0.0
            return np.asarray((mean + deviation * scale)[None])
        values = np.concatenate([self._old(old) for old in ids])
        weights = self._plan.weights[new] if self._method == "weighted_mean" else [1] * len(ids)
        parts = np.array(weights, dtype=np.float64)[:, None]
        return np.asarray((values * parts).sum(axis=0, keepdims=True) / parts.sum())

    def _old(self, old: int) -> Floats:
        return to_floats(self._file.rows(self._name, old, old + 1), self._dtype)

    def _column_moments(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each column of the old vocabulary's rows."""
        if self._moments is None:
            size = self._plan.old_size
            total = squares = np.float64(0)
            for first in range(0, size, _ROWS_AT_A_TIME):
                part = self._file.rows(self._name, first, min(first + _ROWS_AT_A_TIME, size))
                values = to_floats(part, self._dtype)
                total, squares = total + values.sum(axis=0), squares + (values**2).sum(axis=0)
            mean = np.asarray(total / size)
            self._moments = mean, np.sqrt(np.maximum(squares / size - mean**2, 0.0))
        return self._moments


def _normal(seed: int, new: int, number: int) -> Floats:
    """Return numbers from a standard normal distribution, by Box and Muller, from Philox's bits."""
    generator = np.random.Philox(key=seed, counter=[0, 0, 0, new])
    pairs = -(-number // 2)
    units = (generator.random_raw(2 * pairs) >> np.uint64(11)).astype(np.float64) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log1p(-units[:pairs]))
    angle = 2.0 * np.pi * units[pairs:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:number]
