"""`merges.txt`: one merge per line, two tokens with a space between them, in order of rank."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.core.lines import split_lines
from tokmill.tokenizer.formats.files import read_file, write_file

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
    """Read merges; a first line that begins with `#version` is left out.

    Args:
        path: of the file.
        check: called with the text of each merge and its place; raises if it cannot be.
        errors: what becomes of bytes that are not UTF-8, as in `bytes.decode`.

    Raises:
        FormatError: a line is not two tokens.
        UnicodeDecodeError: the file is not UTF-8, and `errors` is "strict".
    """
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
