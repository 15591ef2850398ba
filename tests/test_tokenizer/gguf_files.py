"""Writes small GGUF files: the header, metadata, and no tensors."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

_TYPES = {"u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "u8": 10, "i8": 11, "f8": 12}


def write_gguf(path: Path, metadata: Mapping[str, Any], *, order: str = "<", version: int = 3) -> Path:
    """Write a file; numbers are u4, and numpy arrays keep their type."""
    keys = b"".join(_text(key, order) + _value(value, order) for key, value in metadata.items())
    path.write_bytes(b"GGUF" + struct.pack(f"{order}IQQ", version, 0, len(metadata)) + keys)
    return path


def _text(text: str, order: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    return struct.pack(f"{order}Q", len(data)) + data


def _value(value: Any, order: str) -> bytes:
    if isinstance(value, bool):
        return struct.pack(f"{order}IB", 7, value)
    if isinstance(value, int):
        return struct.pack(f"{order}II", 4, value)
    if isinstance(value, str):
        return struct.pack(f"{order}I", 8) + _text(value, order)
    if isinstance(value, np.ndarray):
        head = struct.pack(f"{order}IIQ", 9, _TYPES[value.dtype.str[1:]], len(value))
        return head + value.astype(value.dtype.newbyteorder(order)).tobytes()  # type: ignore[arg-type]
    elements = [_value(element, order) for element in value]
    kind, content = elements[0][:4], b"".join(element[4:] for element in elements)
    return struct.pack(f"{order}I", 9) + kind + struct.pack(f"{order}Q", len(value)) + content
