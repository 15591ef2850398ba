"""Read and write safetensors files as they lie on the disk: a header, and tensors at their places.

    8 bytes          little-endian length of the header
    header           JSON: name → {"dtype", "shape", "data_offsets": [begin, end]}, and "__metadata__"
    data             the tensors; offsets count from here

A header has at most 100 MB; tensors do not overlap, have the size that dtype and shape say, and fill the
file. These rules of the format (huggingface/safetensors, README) keep a damaged or hostile file from being
read anywhere else than it says. Tensors are copied piece by piece, so memory does not grow with the model.
Rows of new ids are means of rows of old ones, computed in 64 bits and rounded to the matrix's own type, to
nearest, ties to even. bfloat16, which numpy does not know, is the upper half of a 32-bit float.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, Self, TypeAlias

import numpy as np
import orjson
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tokmill.tasks.core.errors import EmbeddingError
from tokmill.tokenizer.adaptation.plan import EmbeddingPlan

MAX_HEADER_BYTES = 100_000_000
_MAX_DIMENSIONS = 64  # as of numpy's arrays
_CHUNK_BYTES = 16 << 20
_BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2", "F8_E8M0"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
Write: TypeAlias = Callable[[BinaryIO], None]
"""Writes the data of one tensor."""
Method: TypeAlias = Literal["mean", "weighted_mean", "normal"]
Floats: TypeAlias = NDArray[np.float64]
_Number: TypeAlias = Annotated[int, Field(ge=0, lt=1 << 62)]
_TYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16}
_ROWS_AT_A_TIME = 4096


@dataclass(frozen=True)
class Tensor:
    """A tensor in a file: its type, its shape, and where its bytes begin in the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int

    @property
    def num_bytes(self) -> int:
        """Its size."""
        return math.prod(self.shape) * _BITS[self.dtype] // 8


class _Entry(BaseModel):
    model_config = ConfigDict(strict=True)

    dtype: Literal[tuple(_BITS)]  # type: ignore[valid-type]
    shape: tuple[_Number, ...] = Field(max_length=_MAX_DIMENSIONS)
    data_offsets: tuple[_Number, _Number]


class _Header(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, _Entry]

    metadata: dict[str, str] | None = Field(default=None, alias="__metadata__")


@dataclass(frozen=True)
class TensorFile:
    """An opened file: its tensors by name, in order of place, and its metadata."""

    path: Path
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, str]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the header, and check it.

        Raises:
            EmbeddingError: it breaks a rule of the format, or the file cannot be read.
        """
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                length = int.from_bytes(file.read(8), "little")
                if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
                    raise _broken(path, f"its header says that it has {length} bytes")
                header = _Header.model_validate_json(file.read(length))
        except OSError as error:
            raise EmbeddingError(
                f"{path}: cannot be read: {error.strerror}; name a safetensors file, an index of shards, or "
                "their folder"
            ) from error
        except ValidationError as error:
            problem = error.errors(include_input=False, include_url=False)[0]
            what = f"{' '.join(map(str, problem['loc'])):.80} in its header: {problem['msg']}"
            raise _broken(path, what) from error
        place, tensors = 8 + length, {}
        # a tensor without data may begin where another one does
        for name, entry in sorted(header.__pydantic_extra__.items(), key=lambda item: item[1].data_offsets):
            begin, end = (8 + length + offset for offset in entry.data_offsets)
            tensors[name] = tensor = Tensor(entry.dtype, entry.shape, begin)
            if begin != place or end - begin != tensor.num_bytes:
                said = f"tensor {name!r:.80} is at bytes {begin} to {end}, not {place} to"
                raise _broken(path, f"{said} {place + tensor.num_bytes}")
            place = end
        if place != size:
            raise _broken(path, f"its tensors end at byte {place} of {size}")
        return cls(path, tensors, header.metadata or {})

    def rows(self, name: str, first: int, last: int) -> NDArray[np.uint8]:
        """Return rows of a tensor as bytes: uint8 [last - first, bytes of a row], mapped from the file."""
        tensor = self.tensors[name]
        width = tensor.num_bytes // max(1, tensor.shape[0])
        begin = tensor.begin + first * width
        mapped = np.memmap(self.path, np.uint8, "r", begin, ((last - first) * width,))
        return mapped.reshape(last - first, width)

    def copy(self, name: str, out: BinaryIO) -> None:
        """Copy a tensor's bytes."""
        tensor = self.tensors[name]
        with self.path.open("rb") as file:
            file.seek(tensor.begin)
            left = tensor.num_bytes
            while left:
                chunk = file.read(min(left, _CHUNK_BYTES))
                if not chunk:
                    raise _broken(self.path, f"it ends within {name!r:.80}")
                out.write(chunk)
                left -= len(chunk)


def _broken(path: Path, what: str) -> EmbeddingError:
    return EmbeddingError(f"{path}: not a sound safetensors file: {what}; get it again")


def write_file(path: Path, tensors: Mapping[str, tuple[Tensor, Write]], metadata: Mapping[str, str]) -> None:
    """Write a file of tensors, in the order that is given.

    Args:
        path: the file; it must not exist.
        tensors: by name, type and shape (its `begin` is not used), and what writes its bytes.
        metadata: texts by name.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    place = 0
    for name, (tensor, _) in tensors.items():
        offsets = [place, place + tensor.num_bytes]
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": offsets}
        place = offsets[1]
    text = orjson.dumps(header)
    text += b" " * (-len(text) % 8)
    with path.open("xb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name, (tensor, write) in tensors.items():
            before = file.tell()
            write(file)
            if file.tell() - before != tensor.num_bytes:
                raise EmbeddingError(f"{path}: {name!r:.80} was written with another size than planned")


def to_floats(rows: NDArray[np.uint8], dtype: str) -> Floats:
    """Return rows of bytes as numbers: float64 [n, columns].

    Raises:
        EmbeddingError: embeddings do not have this type.
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
        """The bytes of one new row."""
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
        values = np.concatenate(
            [to_floats(self._file.rows(self._name, old, old + 1), self._dtype) for old in ids]
        )
        weights = self._plan.weights[new] if self._method == "weighted_mean" else [1] * len(ids)
        parts = np.array(weights, dtype=np.float64)[:, None]
        return np.asarray((values * parts).sum(axis=0, keepdims=True) / parts.sum())

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
