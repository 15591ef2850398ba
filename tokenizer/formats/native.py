"""tokmill's own format: one JSON file, `tokmill.json`, that holds everything and loses nothing.

It is the tokenizer's spec as canonical JSON, so equal tokenizers give equal files.
"""

from pathlib import Path

from tokenizer.definition import Definition
from tokenizer.formats.files import read_json, write_json

FILE_NAME = "tokmill.json"


def write(definition: Definition, folder: Path) -> list[Path]:
    """Write the file into a folder."""
    return [write_json(folder / FILE_NAME, definition.to_spec())]


def read(path: Path) -> Definition:
    """Read the file.

    Raises:
        FormatError: it is not what `write` wrote.
    """
    return Definition.from_spec(read_json(path), str(path))
