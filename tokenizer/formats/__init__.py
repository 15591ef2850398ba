"""Tokenizer files: writing and reading them in every format that we know."""

from pathlib import Path

from tokenizer.errors import FormatError
from tokenizer.formats import native
from tokenizer.tokenizer import Tokenizer

__all__ = ["load", "save"]


def save(tok: Tokenizer, folder: Path, format_name: str = "tokmill") -> list[Path]:
    """Write a tokenizer into a folder and return the files."""
    if format_name != "tokmill":
        raise FormatError(f"format={format_name!r} is not known; use 'tokmill'")
    return native.write(tok.definition, folder)


def load(path: str | Path) -> Tokenizer:
    """Load a tokenizer from a file or a folder."""
    place = Path(path)
    return Tokenizer(native.read(place / native.FILE_NAME if place.is_dir() else place))
