"""Files that appear whole or not at all: written under another name beside their place, flushed, and renamed."""

import os
import uuid
from pathlib import Path

from tokenizer.errors import FormatError


def write_file(path: Path, content: bytes) -> Path:
    """Write a file whole; its folder is made if need be.

    Raises:
        FormatError: it cannot be written; nothing is left behind.
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


def read_file(path: Path) -> bytes:
    """Read a file.

    Raises:
        FormatError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from error
