"""GGUF's container: the metadata that stands before the tensors of a llama.cpp model.

Read: versions 2 and 3, of either byte order. Of the metadata only what concerns the tokenizer is kept, and
the tensors are never touched, so a file of any size costs what its vocabulary does. Every count and length is
checked against what is left of the file and against a limit, so a damaged or hostile file costs no more.

Source: ggml-org/ggml, `docs/gguf.md`.
"""

import stat
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from tokmill.tokenizer.core.errors import FormatError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
KEPT = ("tokenizer.", "general.architecture")
"""What the keys begin with whose values are kept."""

MAX_KEYS = 1 << 16
MAX_ELEMENTS = 1 << 22  # of all arrays of strings or of arrays together
MAX_DEPTH = 4
MAX_BYTES = 1 << 30  # of all metadata
_MAX_KEY_BYTES = 1 << 16

_NUMBERS: Mapping[int, str] = {
    **{0: "u1", 1: "i1", 2: "u2", 3: "i2", 4: "u4", 5: "i4"},
    **{6: "f4", 7: "?", 10: "u8", 11: "i8", 12: "f8"},
}
"""numpy's types by those of GGUF."""
_STRING, _ARRAY = 8, 9


def read_metadata(path: Path) -> dict[str, Any]:
    """Read the metadata of a file that concern the tokenizer.

    Returns:
        Values by key: numbers, truth values, bytes (texts), lists of bytes, and numpy arrays of numbers.

    Raises:
        FormatError: it cannot be read, is cut off, or is no such file; or it has more than a limit allows.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{path}: is not a regular file; pass a tokenizer's file or folder")
        with path.open("rb") as file:
            return _Reader(file, status.st_size, str(path)).metadata()
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from error


class _Reader:
    """Reads a file from its beginning on, and knows how much of it is left."""

    def __init__(self, file: BinaryIO, size: int, where: str) -> None:
        self._file, self._where = file, where
        self._left, self._size = min(size, MAX_BYTES), size
        self._elements_left = MAX_ELEMENTS
        self._order: Literal["<", ">"] = "<"

    def metadata(self) -> dict[str, Any]:
        """Return the values that are kept, by key."""
        if self._take(4, "the first bytes") != MAGIC:
            raise self._trouble("does not begin as a GGUF file does")
        self._read_version()
        self._number("u8", "the number of tensors")
        found: dict[str, Any] = {}
        for _ in range(self._count("u8", MAX_KEYS, "keys")):
            key = self._key()
            kind = int(self._number("u4", f"the type of {key}"))
            if key in found:
                raise self._trouble(f"has the key {key} twice")
            found[key] = self._value(kind, key, keep=key.startswith(KEPT))
        return {key: value for key, value in found.items() if key.startswith(KEPT)}

    def _read_version(self) -> None:
        raw = self._take(4, "the version")
        version = int.from_bytes(raw, "little")
        if version & 0xFFFF == 0:  # no version is that great, so the file was made for the other byte order
            self._order, version = ">", int.from_bytes(raw, "big")
        if version not in VERSIONS:
            raise self._trouble(
                f"is of version {version}, but only {' and '.join(map(str, VERSIONS))} can be read; convert "
                "the model anew"
            )

    def _key(self) -> str:
        size = self._count("u8", _MAX_KEY_BYTES, "bytes of a key")
        try:
            return self._take(size, "a key").decode()
        except UnicodeDecodeError:
            raise self._trouble("has a key that is no text; it is damaged") from None

    def _value(self, kind: int, key: str, *, keep: bool, depth: int = 0) -> Any:
        """Read a value; one that is not kept is skipped, and None."""
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind], key)
        if kind == _STRING:
            return self._string(key, keep=keep)
        if kind != _ARRAY or depth == MAX_DEPTH:
            raise self._trouble(
                f"{key}: is nested more than {MAX_DEPTH} deep"
                if kind == _ARRAY
                else f"{key}: has type {kind}, which is not known; the file is damaged"
            )
        return self._array(key, keep=keep, depth=depth)

    def _array(self, key: str, *, keep: bool, depth: int) -> Any:
        kind = int(self._number("u4", f"the type of {key}"))
        if kind in _NUMBERS:
            dtype = np.dtype(_NUMBERS[kind])
            size = self._count("u8", MAX_BYTES // dtype.itemsize, f"numbers of {key}") * dtype.itemsize
            data = self._take_or_skip(size, key, keep=keep)
            return (
                None if data is None else np.frombuffer(data, dtype.newbyteorder(self._order)).astype(dtype)
            )
        number = self._count("u8", self._elements_left, f"elements of {key}")
        self._elements_left -= number
        read = (self._value(kind, key, keep=keep, depth=depth + 1) for _ in range(number))
        if keep:
            return list(read)
        for _ in read:
            pass
        return None

    def _string(self, key: str, *, keep: bool) -> bytes | None:
        size = self._count("u8", MAX_BYTES, f"bytes of {key}")
        return self._take_or_skip(size, key, keep=keep)

    def _count(self, dtype: str, most: int, what: str) -> int:
        count = int(self._number(dtype, f"the number of {what}"))
        if count > most:
            raise self._trouble(f"claims {count} {what}, but at most {most} can be read")
        return count

    def _number(self, dtype: str, what: str) -> Any:
        size = np.dtype(dtype).itemsize
        raw = self._take(size, what)
        if dtype.startswith("f"):
            return struct.unpack(f"{self._order}{'f' if size == 4 else 'd'}", raw)[0]
        value = int.from_bytes(raw, "little" if self._order == "<" else "big", signed=dtype.startswith("i"))
        return bool(value) if dtype == "?" else value

    def _take_or_skip(self, size: int, what: str, *, keep: bool) -> bytes | None:
        if keep:
            return self._take(size, what)
        self._check(size, what)
        self._file.seek(size, 1)
        return None

    def _take(self, size: int, what: str) -> bytes:
        self._check(size, what)
        data = self._file.read(size)
        if len(data) < size:
            raise self._trouble(f"ends in {what}; the file is cut off")
        return data

    def _check(self, size: int, what: str) -> None:
        if size > self._left:
            raise self._trouble(
                f"ends in {what}, which claims {size} bytes; the file is cut off or damaged"
                if self._size <= MAX_BYTES
                else f"has more than {MAX_BYTES} bytes of metadata, or {what} claims more"
            )
        self._left -= size

    def _trouble(self, what: str) -> FormatError:
        return FormatError(f"{self._where}: {what}")
