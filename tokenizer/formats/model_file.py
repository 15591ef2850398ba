"""SentencePiece's file format: a `.model`, which is one Protocol Buffers message.

What decides ids is read, other settings are skipped, and what cannot be done is refused by name. Every length
is checked, so a hostile file costs no more than its size. Sources: `sentencepiece_model.proto`; Protocol
Buffers' documentation, "Encoding".
"""

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from tokmill.tokenizer.core.errors import FormatError

PIECES, TRAINER, NORMALIZER, SELF_TEST, DENORMALIZER = 1, 2, 3, 4, 5


class PieceKind(IntEnum):
    """What a piece is."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


MODEL_TYPES = MappingProxyType({1: "unigram", 2: "bpe", 3: "word", 4: "char"})


@dataclass(frozen=True)
class Piece:
    """An entry of the vocabulary; its id is its place.

    Attributes:
        text: the piece.
        score: a 32-bit float.
        kind: what it is.
    """

    text: str
    score: float
    kind: PieceKind = PieceKind.NORMAL


@dataclass(frozen=True)
class ModelFile:
    """The content of a `.model`.

    Attributes:
        pieces: the vocabulary, by id.
        trainer: settings of its training, by name (`TRAINER_FIELDS`).
        normalizer: settings of its normalizer, by name (`NORMALIZER_FIELDS`).
    """

    pieces: list[Piece]
    trainer: Mapping[str, Any] = field(default_factory=dict)
    normalizer: Mapping[str, Any] = field(default_factory=dict)


def _integer(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise TypeError("bytes, but must be a number")
    return value - (1 << 64) if value >> 63 else value


def _flag(value: int | bytes) -> bool:
    return bool(_integer(value))


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise TypeError(f"the number {value}, but must be bytes")
    return value


def _text(value: int | bytes) -> str:
    return _bytes(value).decode()


def _float(value: int | bytes) -> float:
    found: float = struct.unpack("<f", _bytes(value))[0]
    return found


_Read = Callable[[int | bytes], Any]
TRAINER_FIELDS: Mapping[int, tuple[str, _Read, Any]] = MappingProxyType(
    {
        3: ("model_type", _integer, 1),
        24: ("treat_whitespace_as_suffix", _flag, False),
        35: ("byte_fallback", _flag, False),
        40: ("unk_id", _integer, 0),
        41: ("bos_id", _integer, 1),
        42: ("eos_id", _integer, 2),
        43: ("pad_id", _integer, -1),
        45: ("unk_piece", _text, "<unk>"),
        46: ("bos_piece", _text, "<s>"),
        47: ("eos_piece", _text, "</s>"),
        48: ("pad_piece", _text, "<pad>"),
    }
)
NORMALIZER_FIELDS: Mapping[int, tuple[str, _Read, Any]] = MappingProxyType(
    {
        1: ("name", _text, ""),
        2: ("precompiled_charsmap", _bytes, b""),
        3: ("add_dummy_prefix", _flag, True),
        4: ("remove_extra_whitespaces", _flag, True),
        5: ("escape_whitespaces", _flag, True),
    }
)
"""By number: the name, what reads the value, and the value of a field that is not there."""

_PIECE_FIELDS: Mapping[int, tuple[str, _Read, Any]] = MappingProxyType(
    {1: ("text", _text, ""), 2: ("score", _float, 0.0), 3: ("kind", _integer, 1)}
)


def read_model(data: bytes, where: str) -> ModelFile:
    """Read the content of a file."""
    pieces, parts = list[Piece](), {TRAINER: b"", NORMALIZER: b"", DENORMALIZER: b""}
    for number, value in read_fields(data, where):
        if number == PIECES:
            pieces.append(_read_piece(value, f"{where}: piece {len(pieces)}"))
        elif number in parts:  # of several, later fields count, so they may be read as one
            parts[number] += _read_message(value, where)
    if not pieces:
        raise FormatError(f"{where}: holds no pieces; is it a SentencePiece model?")
    undone = _settings(parts[DENORMALIZER], NORMALIZER_FIELDS, f"{where}: denormalizer_spec")
    if undone["precompiled_charsmap"]:
        raise FormatError(f"{where}: denormalizer_spec changes decoded text, which cannot be done here")
    return ModelFile(
        pieces,
        _settings(parts[TRAINER], TRAINER_FIELDS, f"{where}: trainer_spec"),
        _settings(parts[NORMALIZER], NORMALIZER_FIELDS, f"{where}: normalizer_spec"),
    )


def _read_message(value: int | bytes, where: str) -> bytes:
    try:
        return _bytes(value)
    except TypeError as error:
        raise FormatError(f"{where}: a message is {error}; it is not a SentencePiece model") from None


def _read_piece(value: int | bytes, where: str) -> Piece:
    found = _settings(_read_message(value, where), _PIECE_FIELDS, where)
    try:
        return Piece(found["text"], found["score"], PieceKind(found["kind"]))
    except ValueError:
        raise FormatError(f"{where}: type={found['kind']} is not one of {[*map(int, PieceKind)]}") from None


def _settings(data: bytes, known: Mapping[int, tuple[str, _Read, Any]], where: str) -> dict[str, Any]:
    """Return the known fields of a message by name, defaults included."""
    found = {name: default for name, _, default in known.values()}
    for number, value in read_fields(data, where):
        if number in known:
            name, read, _ = known[number]
            try:
                found[name] = read(value)
            except (TypeError, ValueError, struct.error) as error:
                raise FormatError(f"{where}: {name} is {error}; the file is damaged") from None
    return found


def write_model(model: ModelFile) -> bytes:
    """Return the content of a file; equal models give equal bytes."""
    pieces = (
        field_of(PIECES, field_of(1, piece.text) + field_of(2, piece.score) + _kind_field(piece.kind))
        for piece in model.pieces
    )
    trainer = _written(model.trainer, TRAINER_FIELDS) + field_of(4, len(model.pieces))
    return b"".join(
        [
            *pieces,
            field_of(TRAINER, trainer),
            field_of(NORMALIZER, _written(model.normalizer, NORMALIZER_FIELDS)),
        ]
    )


def _kind_field(kind: PieceKind) -> bytes:
    return b"" if kind == PieceKind.NORMAL else field_of(3, int(kind))


def _written(values: Mapping[str, Any], known: Mapping[int, tuple[str, _Read, Any]]) -> bytes:
    named = {name: number for number, (name, _, _) in known.items()}
    return b"".join(field_of(named[name], values[name]) for name in sorted(values, key=named.__getitem__))


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
    """Return an integer, and where the next byte is."""
    value = 0
    for shift in range(0, _VARINT_BITS, 7):
        if at >= len(data):
            raise FormatError(f"{where}: ends in the middle of a number, at byte {at}; the file is cut off")
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value % _MOST, at
    raise FormatError(f"{where}: holds a number of more than 10 bytes at byte {at}; it is not such a file")


def read_fields(data: bytes, where: str) -> Iterator[WireField]:
    """Yield the fields of a message."""
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
            raise FormatError(f"{where}: holds no field of a message at byte {begin}; it is not such a file")
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
