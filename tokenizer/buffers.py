"""Text and tokens as flat arrays: many documents in one buffer, cut by offsets, as Arrow lays them out.

`data[offsets[d]:offsets[d + 1]]` is document d. Text is UTF-8 in uint8; ids are uint16 where the vocabulary
has at most 65,536 ids, else uint32. Offsets are int64 and never decrease.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tokenizer.errors import TokenizerError

Ids: TypeAlias = NDArray[np.uint16 | np.uint32]


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
        """Return Python lists, one a document."""
        return [document.tolist() for document in self]


def utf8(text: str) -> bytes:
    """Encode a text; a lone surrogate, which no UTF-8 can hold, becomes U+FFFD as in tiktoken."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def pack(texts: Iterable[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Lay texts into one buffer and return it with its offsets."""
    return pack_bytes([utf8(text) for text in texts])


def pack_bytes(pieces: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Lay byte strings into one buffer and return it with its offsets."""
    offsets = np.zeros(len(pieces) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, pieces), np.int64, len(pieces)), out=offsets[1:])
    return np.frombuffer(b"".join(pieces), np.uint8), offsets


def unpack(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> list[bytes]:
    """Return the byte strings of a buffer, one object each."""
    whole, cuts = data.tobytes(), offsets.tolist()
    return [whole[cuts[i] : cuts[i + 1]] for i in range(len(cuts) - 1)]


def checked(data: ArrayLike, offsets: ArrayLike) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return a text buffer and its offsets as contiguous arrays, copied only where they are not.

    Raises:
        TokenizerError: `data` is not one-dimensional uint8, or `offsets` are not one-dimensional integers
            that start at 0 or above, never decrease and end within `data`.
    """
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
    """Return token ids as int64, whatever sequence or array of integers they come in.

    Raises:
        TokenizerError: they are not integers.
    """
    array = np.asarray(ids if isinstance(ids, np.ndarray | list | tuple) else list(cast(Iterable[int], ids)))
    if array.size == 0:
        return np.zeros(0, np.int64)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise TokenizerError(
            f"decode: ids of shape {array.shape} and dtype {array.dtype} must be a flat sequence of "
            "integers; decode_batch takes many documents"
        )
    return np.ascontiguousarray(array, np.int64)
