"""Protocol Buffers' wire format, as far as a SentencePiece model needs it: varints, bytes and 32-bit floats.

A message is a row of fields, each with a number and a type. Every length is checked against what is left, so
a damaged or hostile file costs no more than its own size.

Source: Protocol Buffers' documentation, "Encoding".
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from tokmill.tokenizer.core.errors import FormatError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_VARINT_BITS = 70
_MOST = 1 << 64


class WireField(NamedTuple):
    """A field of a message.

    Attributes:
        number: its number.
        value: an integer, or its bytes: 4 or 8 for a fixed type.
    """

    number: int
    value: int | bytes


def read_varint(data: bytes, at: int, where: str) -> tuple[int, int]:
    """Return an integer, and where the next byte is.

    Raises:
        FormatError: the data ends before the integer, or the integer is too long.
    """
    value = 0
    for shift in range(0, _VARINT_BITS, 7):
        if at >= len(data):
            raise FormatError(f"{where}: ends in the middle of a number, at byte {at}; the file is cut off")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value % _MOST, at
    raise FormatError(f"{where}: holds a number of more than 10 bytes at byte {at}; it is no such file")


def read_fields(data: bytes, where: str) -> Iterator[WireField]:
    """Yield the fields of a message.

    Raises:
        FormatError: it is cut off, or no message.
    """
    at = 0
    while at < len(data):
        begin = at
        tag, at = read_varint(data, at, where)
        number, kind = tag >> 3, tag & 7
        if kind == VARINT:
            value, at = read_varint(data, at, where)
            yield WireField(number, value)
            continue
        size = {FIXED64: 8, FIXED32: 4}.get(kind)
        if kind == BYTES:
            size, at = read_varint(data, at, where)
        if size is None or number == 0:
            raise FormatError(f"{where}: holds no field of a message at byte {begin}; it is no such file")
        if size > len(data) - at:
            raise FormatError(
                f"{where}: the field at byte {begin} claims {size} bytes, but {len(data) - at} are left; "
                "the file is cut off or damaged"
            )
        yield WireField(number, data[at : at + size])
        at += size


def write_varint(value: int) -> bytes:
    """Return an integer from 0 to 2^64 - 1 as bytes."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def field_of(number: int, value: int | float | str | bytes) -> bytes:
    """Return a field: an integer (negative ones as in two's complement), a 32-bit float, or bytes."""
    if isinstance(value, float):
        return write_varint(number << 3 | FIXED32) + struct.pack("<f", value)
    if isinstance(value, int):
        return write_varint(number << 3 | VARINT) + write_varint(int(value) % _MOST)
    data = value.encode() if isinstance(value, str) else value
    return write_varint(number << 3 | BYTES) + write_varint(len(data)) + data
