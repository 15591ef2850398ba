"""Strings of pyarrow arrays as text buffers, without importing pyarrow: an array returns its buffers itself.

Source of the layout: the Arrow columnar format, "Variable-size Binary Layout".
"""

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import TokenizerError

_OFFSETS = {"string": np.int32, "binary": np.int32, "large_string": np.int64, "large_binary": np.int64}


class ArrowArray(Protocol):
    """The part of `pyarrow.Array` that is used here."""

    @property
    def type(self) -> Any: ...  # noqa: D102 - pyarrow's
    @property
    def null_count(self) -> int: ...  # noqa: D102
    @property
    def offset(self) -> int: ...  # noqa: D102
    def buffers(self) -> Sequence[Any]: ...  # noqa: D102
    def __len__(self) -> int: ...


class ArrowChunks(Protocol):
    """The part of `pyarrow.ChunkedArray` that is used here."""

    @property
    def chunks(self) -> Sequence[ArrowArray]: ...  # noqa: D102


ArrowStrings: TypeAlias = ArrowArray | ArrowChunks


def is_arrow(texts: object) -> bool:
    """Whether an object looks like a pyarrow array."""
    return hasattr(texts, "null_count") and (hasattr(texts, "buffers") or hasattr(texts, "chunks"))


def read_strings(texts: ArrowStrings) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of an array's strings, and their offsets; chunks are laid into one buffer.

    Raises:
        TokenizerError: it is not a pyarrow array of strings, or has nulls.
    """
    chunks = getattr(texts, "chunks", None)
    if chunks is None:
        return _read(texts, 0)
    parts, first = [], 0
    for chunk in chunks:
        parts.append(_read(chunk, first))
        first += len(chunk)
    if len(parts) == 1:
        return parts[0]
    strings = [data[offsets[0] : offsets[-1]] for data, offsets in parts]
    lengths = [np.diff(offsets) for _, offsets in parts]
    ends = np.cumsum(np.concatenate([np.zeros(1, np.int64), *lengths]))
    return np.concatenate([np.zeros(0, np.uint8), *strings]), ends


def _read(array: Any, first: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Read one array, whose first string is number `first` of all."""
    kind = str(getattr(array, "type", type(array).__name__))
    if kind not in _OFFSETS or not hasattr(array, "buffers"):
        raise TokenizerError(
            f"texts: got {kind}, but a pyarrow array must be of type {', '.join(_OFFSETS)}; "
            "cast it, or pass a list of texts"
        )
    if array.null_count:
        place = first + array.is_null().to_pylist().index(True)
        raise TokenizerError(
            f"texts: string {place} is null ({array.null_count} nulls in all), but every one must be "
            "a text; drop them with drop_null(), or fill them with fill_null('')"
        )
    if not len(array):
        return np.zeros(0, np.uint8), np.zeros(1, np.int64)
    _, cuts, text = array.buffers()
    offsets = np.frombuffer(cuts, _OFFSETS[kind])[array.offset : array.offset + len(array) + 1]
    data = np.zeros(0, np.uint8) if text is None else np.frombuffer(text, np.uint8)
    return data, offsets.astype(np.int64)
