"""Read and write files: whole or not at all, JSON in one canonical form, errors that name the file.

`merges.txt` has one merge per line, two tokens with a space between them, in order of rank.
"""

import json
import os
import stat
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.core.text import split_lines


def write_file(path: Path, content: bytes) -> Path:
    """Write a file under another name beside its place, flush it, and rename it.

    Its folder is made if need be.
    """
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise FormatError(
            f"{path}: cannot be written: {error.strerror}; check space and permissions"
        ) from error
    return path


MAX_FILE_BYTES = 1 << 30
"""The most bytes of a tokenizer's file, far more than any has; bounds the memory of reading one."""


def read_file(path: Path) -> bytes:
    """Read a file."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{path}: is not a regular file; pass a tokenizer's file or folder")
        if status.st_size > MAX_FILE_BYTES:
            raise FormatError(
                f"{path}: has {status.st_size} bytes, but a tokenizer's file has at most {MAX_FILE_BYTES}; "
                "is it the right file?"
            )
        return path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from error


def write_json(path: Path, value: dict[str, Any]) -> Path:
    """Write JSON in one canonical way: sorted keys, UTF-8, a newline at the end; see `write_file`."""
    return write_file(path, dump_json(value))


def dump_json(value: dict[str, Any]) -> bytes:
    """Return JSON as `write_json` writes it."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return (text + "\n").encode("utf-8", "surrogatepass")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        value = json.loads(read_file(path).decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise FormatError(f"{path}: is not a tokenizer's JSON: it is nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"{path}: is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise FormatError(f"{path}: holds a JSON {type(value).__name__}, but should hold an object")
    return value


HEADER = "#version: 0.2"


def write_merges(path: Path, pairs: Sequence[tuple[str, str]]) -> Path:
    """Write merges with the header of subword-nmt, which says that `</w>` is attached to the last letter."""
    lines = [HEADER, *(f"{left} {right}" for left, right in pairs), ""]
    return write_file(path, "\n".join(lines).encode())


def read_merges(
    path: Path,
    check: Callable[[str, str], object] | None = None,
    errors: Literal["strict", "replace"] = "replace",
) -> list[tuple[str, str]]:
    """Read merges; a first line that begins with `#version` is left out."""
    pairs = []
    for number, line in enumerate(split_lines(read_file(path), errors), 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        left, space, right = line.partition(" ")
        if not (left and space and right) or " " in right:
            raise FormatError(
                f"{path}: line {number}: {line!r:.200} must be two tokens with one space between them"
            )
        if check is not None:
            check(left + right, f"{path}: line {number}")
        pairs.append((left, right))
    return pairs
