"""Tokenizers by the names that a store gives them, without knowing of stores.

Whoever keeps artifacts says so by an entry point, `folder` in the group `tokmill.artifacts`: a function of
kind, path and store that returns a folder. It is looked up, and the store's code loaded, only where a name is
given in place of a path.
"""

from importlib.metadata import entry_points
from pathlib import Path

from tokmill.tokenizer.errors import FormatError

_KIND = "tokenizer"


def artifact_folder(path: str | Path, store: str | Path | None) -> Path:
    """Return the folder of a tokenizer that is named; a path as it is.

    Args:
        path: what is there, or `tokenizer/name`, `tokenizer/name@v3`.
        store: where a name is looked up; a path that exists goes before a name if this is not given.

    Raises:
        FormatError: a name, and nothing that keeps artifacts is installed.
        ValueError: whatever the store says of a name that it does not have.
    """
    place = Path(path)
    if store is None and (place.exists() or not str(path).startswith(f"{_KIND}/")):
        return place
    for found in entry_points(group="tokmill.artifacts", name="folder"):
        return Path(found.load()(_KIND, path, store))
    raise FormatError(
        f"{path}: does not exist, and no package that finds artifacts by name is installed; pass a "
        "tokenizer's file or folder, or install tokmill"
    )
