"""Read and write files: whole or not at all, JSON in one canonical form, errors that name the file."""

import json
import os
import stat
import uuid
from pathlib import Path
from typing import Any

from tokmill.tokenizer.core.errors import FormatError


def write_file(path: Path, content: bytes) -> Path:
    """Write a file under another name beside its place, flush it, and rename it.

    Its folder is made if need be.

    Raises:
        FormatError: it cannot be written; no part of it is left.
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
    """Read a file.

    Raises:
        FormatError: it cannot be read, is not a regular file, or is too large for a tokenizer's.
    """
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
    """Read a JSON object.

    Raises:
        FormatError: it is not a JSON object.
    """
    try:
        value = json.loads(read_file(path).decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise FormatError(f"{path}: is not a tokenizer's JSON: it is nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"{path}: is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise FormatError(f"{path}: holds a JSON {type(value).__name__}, but should hold an object")
    return value
