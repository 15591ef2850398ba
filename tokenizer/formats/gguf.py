"""GGUF, read: the vocabulary that llama.cpp keeps in a model's file.

The family named by `tokenizer.ggml.model` makes the tokenizer; settings such as `add_bos_token` become a
template. Versions 2 and 3 are read, of either byte order, and never the tensors. Every count and length is
checked, so a hostile file costs no more than its size. Law: ids are those of the vocabulary's own library,
and llama.cpp's but for its shortcuts (docs/formats.md). Source: ggml-org/ggml, `docs/gguf.md`.
"""

import logging
import stat
import struct
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np

from tokmill.tokenizer.components.post_processors import Template
from tokmill.tokenizer.core.errors import FormatError, refuse_malformed
from tokmill.tokenizer.formats.gguf_section import Reading, Section
from tokmill.tokenizer.formats.model_file import PieceKind
from tokmill.tokenizer.formats.sidecar import Usage
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.families import format_modules

logger = logging.getLogger(__name__)


def read(path: Path, usage: Usage) -> Definition:
    """Read the tokenizer of a model; its tensors are not touched."""
    if not usage.is_empty:
        raise FormatError(
            f"{path}: says itself how text is split, normalized and what is special; pass the path alone"
        )
    section = Section(str(path), read_metadata(path))
    with refuse_malformed(str(path)):
        reading = _with_added(_part_for(section).read_section(section), section)
        return _with_roles(_with_template(reading, section), reading, section)


def _part_for(section: Section) -> Any:
    """Return the module of the family whose models have this name."""
    parts, name = [*format_modules("gguf")], section.get("model", str)
    for part in parts:
        if name == part.GGUF_MODEL:
            return part
    if name is None:
        raise section.trouble("has no tokenizer; of a model in several files, pass the first one")
    known = ", ".join(part.GGUF_MODEL for part in parts)
    raise section.trouble(f"tokenizer.ggml.model={name!r:.80}, but only {known} can be read")


def _with_added(reading: Reading, section: Section) -> Reading:
    """Return what a family read, with tokens that users defined as added ones, unless they are pieces."""
    named = reading.definition.named_tokens.items()
    added = tuple(name for name, token in named if section.kinds[token] == PieceKind.USER_DEFINED)
    return replace(reading, definition=replace(reading.definition, added_tokens=added))


def _with_template(reading: Reading, section: Section) -> Definition:
    """Return the tokenizer with the template of its tokens around texts, if there are any."""
    if not reading.before and not reading.after:
        return reading.definition
    ids, names = section.roles(reading.roles), {}
    known = {token: name for name, token in reading.definition.named_tokens.items()}
    for role in (*reading.before, *reading.after):
        token = ids.get(role)
        if token is None or token not in known:
            raise section.trouble(
                f"add_{role}_token is true, but {role} is {token}, which is not a special token; convert the "
                "model again"
            )
        names[role] = known[token]
    before, after = ([names[role] for role in roles] for roles in (reading.before, reading.after))
    return replace(
        reading.definition, post_processor=Template.around_each(before, after, type_ids=reading.type_ids)
    )


def _with_roles(definition: Definition, reading: Reading, section: Section) -> Definition:
    """Return the tokenizer with its roles and chat templates; an ordinary token has no role."""
    names, found = {token: name for name, token in definition.named_tokens.items()}, {}
    for role, token in section.roles(reading.roles).items():
        if token in names:
            found[role] = names[token]
        else:
            logger.warning(
                "%s: %s is id %d, which is not a special token; left out", section.where, role, token
            )
    if definition.model.unknown_token is not None:
        found.pop("unk", None)  # the model decides it
    definition = definition.with_roles(found)
    templates = section.templates()
    return definition.with_chat_templates(templates) if templates else definition


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
    """Read a file's metadata on its tokenizer: numbers, bytes, lists of bytes and arrays by key."""
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
                "the model again"
            )

    def _key(self) -> str:
        size = self._count("u8", _MAX_KEY_BYTES, "bytes of a key")
        try:
            return self._take(size, "a key").decode()
        except UnicodeDecodeError:
            raise self._trouble("has a key that is not a text; it is damaged") from None

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
