"""Text and tokens as flat arrays: many documents in one buffer, cut by offsets, as in Arrow.

`data[offsets[d]:offsets[d + 1]]` is document d. Text is UTF-8 in uint8; ids are uint16 where the vocabulary
has at most 65,536 ids, otherwise uint32. Offsets are int64 and never decrease. pyarrow's arrays hand over
their buffers themselves, so it is not imported (Arrow columnar format, "Variable-size Binary Layout").
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokmill.tokenizer.core.errors import TokenizerError, VocabularyError

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
    """Return the bytes of an array's strings, and their offsets; chunks are laid into one buffer."""
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


Ids: TypeAlias = NDArray[np.uint16 | np.uint32]
Text: TypeAlias = str | bytes
Texts: TypeAlias = Iterable[Text] | ArrowStrings


@dataclass(frozen=True, slots=True)
class EncodedBatch:
    """The ids of many documents, ragged; indexing gives one document's ids, without a copy.

    Attributes:
        ids: uint16 or uint32, shape (num_tokens,).
        offsets: int64, shape (num_documents + 1,).
    """

    ids: Ids
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> Ids:
        document = range(len(self))[index]
        return self.ids[self.offsets[document] : self.offsets[document + 1]]

    def __iter__(self) -> Iterator[Ids]:
        return (self[document] for document in range(len(self)))

    def to_lists(self) -> list[list[int]]:
        """Return Python lists, one per document."""
        return [document.tolist() for document in self]


@dataclass(frozen=True, slots=True)
class LocatedBatch:
    """The ids of many documents, and where each token lies in their normalized text.

    Attributes:
        ids: int64, shape (num_tokens,).
        offsets: int64, shape (num_documents + 1,); document d has the tokens `offsets[d]:offsets[d + 1]`.
        starts: int64, shape (num_tokens,); token t covers the bytes `data[starts[t]:ends[t]]`.
        ends: int64, shape (num_tokens,).
        data: uint8, the normalized text of all documents.
        bounds: int64, shape (num_documents + 1,); document d is `data[bounds[d]:bounds[d + 1]]`.
    """

    ids: NDArray[np.int64]
    offsets: NDArray[np.int64]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    data: NDArray[np.uint8]
    bounds: NDArray[np.int64]


def utf8(text: Text, where: str = "text") -> bytes:
    """Encode a text as UTF-8; a lone surrogate, which UTF-8 cannot express, becomes U+FFFD as in tiktoken."""
    if isinstance(text, str):
        try:
            return text.encode()
        except UnicodeEncodeError:
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    if isinstance(text, bytes | bytearray):
        return bytes(text)
    raise TokenizerError(
        f"{where}: {text!r:.60} is of type {type(text).__name__}, but a text must be str, or bytes of UTF-8"
    )


def pack(texts: Texts, first: int = 0) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Lay texts into one buffer and return it with its offsets."""
    check_many(texts)
    if is_arrow(texts):
        return read_strings(cast(ArrowStrings, texts))
    return pack_bytes(
        [utf8(text, f"text {number}") for number, text in enumerate(cast(Iterable[Text], texts), first)]
    )


def check_many(texts: Texts) -> None:
    """Reject one text instead of several: a str is also a sequence of str, its characters."""
    if isinstance(texts, str | bytes | bytearray):
        raise TokenizerError(
            f"texts={texts!r:.60} is one text, but several are asked for; put it into a list"
        )
    if not isinstance(texts, Iterable) and not is_arrow(texts):
        raise TokenizerError(
            f"texts={texts!r:.60} is of type {type(texts).__name__}, but must be a list of texts or a "
            "pyarrow array of strings"
        )


def pack_bytes(strings: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Lay byte strings into one buffer and return it with its offsets."""
    offsets = np.zeros(len(strings) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, strings), np.int64, len(strings)), out=offsets[1:])
    return np.frombuffer(b"".join(strings), np.uint8), offsets


def unpack(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> list[bytes]:
    """Return the byte strings of a buffer, one object each."""
    whole, cuts = data.tobytes(), offsets.tolist()
    return [whole[cuts[i] : cuts[i + 1]] for i in range(len(cuts) - 1)]


def checked(data: ArrayLike, offsets: ArrayLike) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return a text buffer and its offsets as contiguous arrays, copied only if they are not contiguous."""
    flat, cuts = np.ascontiguousarray(data), np.asarray(offsets)
    if flat.dtype != np.uint8 or flat.ndim != 1:
        raise TokenizerError(
            f"buffers: data has dtype {flat.dtype} and {flat.ndim} dimensions, but text is one-dimensional "
            "uint8; use np.frombuffer(text.encode(), np.uint8)"
        )
    if cuts.ndim != 1 or cuts.shape[0] == 0 or not np.issubdtype(cuts.dtype, np.integer):
        raise TokenizerError(
            f"buffers: offsets of shape {cuts.shape} and dtype {cuts.dtype} must be integers of shape "
            "(num_documents + 1,); use [0, len(data)] for one document"
        )
    cuts = np.ascontiguousarray(cuts, np.int64)
    if cuts[0] < 0 or cuts[-1] > flat.shape[0] or (cuts[1:] < cuts[:-1]).any():
        raise TokenizerError(
            f"buffers: offsets from {cuts[0]} to {cuts[-1]} must never decrease and must lie within the "
            f"{flat.shape[0]} bytes of data"
        )
    return flat, cuts


def id_type(vocab_size: int) -> type[np.uint16] | type[np.uint32]:
    """Return the narrowest type of ids below `vocab_size`."""
    return np.uint16 if vocab_size <= 1 << 16 else np.uint32


def as_ids(ids: ArrayLike | Iterable[int]) -> NDArray[np.int64]:
    """Return token ids as int64, from any sequence or array of integers."""
    array = _as_array(ids)
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.ndim != 1 or not _holds_integers(array):
        raise TokenizerError(
            f"decode: ids of shape {array.shape} and dtype {array.dtype} must be a flat sequence of "
            "integers; decode_batch takes many documents"
        )
    if array.dtype.kind != "i":
        _check_width(array)
    return np.ascontiguousarray(array, np.int64)


def _as_array(ids: ArrayLike | Iterable[int]) -> NDArray[Any]:
    try:
        some = ids if isinstance(ids, np.ndarray | list | tuple) else list(cast(Iterable[int], ids))
        array = np.asarray(some)
        # integers of 64 bits, signed and not, become float in numpy, which loses the last digits
        return np.array(some, object) if array.dtype.kind == "f" and array is not some else array
    except (TypeError, ValueError, OverflowError) as error:  # not a sequence, or rows of different lengths
        raise TokenizerError(
            f"decode: ids of type {type(ids).__name__} must be a flat sequence of integers ({error}); use "
            "e.g. [464, 2068], or decode_batch for many documents"
        ) from None


def _holds_integers(array: NDArray[Any]) -> bool:
    if array.dtype == object:  # integers beyond 64 bits among them, or no integers at all
        return all(type(value) is int for value in array.ravel())
    return bool(np.issubdtype(array.dtype, np.integer))


def _check_width(array: NDArray[Any]) -> None:
    limits = np.iinfo(np.int64)
    wide = np.flatnonzero((array < limits.min) | (array > limits.max))
    if wide.size:
        raise VocabularyError(
            f"decode: id {array[wide[0]]} at position {wide[0]} is not a token of any vocabulary; was it "
            "made by another tokenizer?"
        )
