"""tokmill's own format: one JSON file, `tokmill.json`, with the whole tokenizer.

It is the tokenizer's spec as canonical JSON, so equal tokenizers give equal files.
"""

from pathlib import Path
from typing import Any

from tokmill.tokenizer.formats.files import write_json
from tokmill.tokenizer.formats.names import TOKMILL
from tokmill.tokenizer.pipeline.definition import Definition


def write(definition: Definition, folder: Path) -> list[Path]:
    """Write the file into a folder."""
    return [write_json(folder / TOKMILL, definition.to_spec())]


def read_content(content: dict[str, Any], where: str) -> Definition:
    """Read the content of a file.

    Args:
        content: its JSON.
        where: its path, for messages.

    Raises:
        FormatError: it does not have the form that `write` writes.
        VocabularyError: the vocabulary breaks a law.
    """
    return Definition.from_spec(content, where)
