"""tokmill's own format: one JSON file, `tokmill.json`, that holds everything and loses nothing.

It is the tokenizer's spec, as canonical JSON: equal tokenizers give equal files.
"""

import json
from pathlib import Path
from typing import Any

from tokenizer.definition import Definition
from tokenizer.errors import FormatError
from tokenizer.formats.atomic import read_file, write_file

FILE_NAME = "tokmill.json"


def write(definition: Definition, folder: Path) -> list[Path]:
    """Write the file into a folder."""
    return [write_file(folder / FILE_NAME, dump_json(definition.to_spec()))]


def read(path: Path) -> Definition:
    """Read the file.

    Raises:
        FormatError: it is not what `write` wrote.
    """
    return Definition.from_spec(load_json(path), str(path))


def dump_json(value: dict[str, Any]) -> bytes:
    """Write JSON in the one way that this package writes it: sorted keys, no spaces, UTF-8, a newline at the end."""
    return (json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")) + "\n").encode()


def load_json(path: Path) -> dict[str, Any]:
    """Read a JSON object.

    Raises:
        FormatError: it is none.
    """
    try:
        value = json.loads(read_file(path))
    except ValueError as error:
        raise FormatError(f"{path}: is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise FormatError(f"{path}: holds a JSON {type(value).__name__}, but a tokenizer file is an object")
    return value
