"""Load a tokenizer from a file, a folder, or by the name of an artifact.

This package does not know stores: a package that keeps artifacts declares an entry point, `folder` in
the group `tokmill.artifacts`, a function of kind, path and store that returns a folder. It is looked up, and
the store's code is loaded, only if a name is given instead of a path.
"""

import logging
from importlib.metadata import entry_points
from pathlib import Path

from tokmill.tokenizer import formats
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.formats.sidecar import SpecialTokens, Usage
from tokmill.tokenizer.splitting import Digits, PatternLike
from tokmill.tokenizer.tokenizer import Tokenizer

_KIND = "tokenizer"

logger = logging.getLogger(__name__)


def load(
    path: str | Path,
    *,
    store: str | Path | None = None,
    split_pattern: PatternLike | None = None,
    digits: Digits | None = None,
    normalizer: str | None = None,
    special_tokens: SpecialTokens | None = None,
) -> Tokenizer:
    """Load a tokenizer from a file, or from a folder that holds one in any format that we know.

    Args:
        path: `tokmill.json`, `tokenizer.json`, a file of tiktoken's ranks under any name, Mistral's
            `tekken.json`, `*vocab.json` beside `*merges.txt`, subword-nmt's codes, RWKV's vocabulary, a GGUF
            model, or a folder; if a folder holds several, the most complete one is taken. Or the name of an
            artifact, `tokenizer/name` or `tokenizer/name@v3`, where a store is given or found.
        store: where a name is looked up; else TOKMILL_STORE, else `tokmill-store` in the working directory.
        split_pattern: for `gpt2` and `tiktoken` files, which do not have it; overrides their sidecar.
        digits: the same.
        normalizer: the same.
        special_tokens: the same; ids by name, or, if the file has them, names.

    Raises:
        FormatError: there is no file, it cannot be read, or an argument contradicts a file that has
            everything.
        VocabularyError: the vocabulary breaks a law.
    """
    usage = Usage(split_pattern, digits, normalizer, special_tokens)
    place = _folder_of(path, store)
    if not place.exists():
        raise FormatError(f"{place}: does not exist; pass a tokenizer's file or folder")
    tok = Tokenizer(formats.read(place, usage))
    _warn_of_other_tables(tok, place)
    return tok


def _warn_of_other_tables(tok: Tokenizer, place: Path) -> None:
    """Log a warning if the training text was split with other Unicode tables than those used here."""
    trained, here = tok.definition.unicode, tok.splitter.unicode if tok.definition.unicode else None
    if trained is not None and here is not None and trained["tables"] != here["tables"]:
        logger.warning(
            "%s was trained with the tables of Unicode %s (%s), and text is split here with those of Unicode "
            "%s (%s): characters that they do not class alike may be cut otherwise than in training; install "
            "the version of the regex package that it was trained with to be sure",
            place,
            trained["version"],
            trained["tables"],
            here["version"],
            here["tables"],
        )


def _folder_of(path: str | Path, store: str | Path | None) -> Path:
    """Return the folder of a tokenizer that is given by name; a path is returned as it is."""
    place = path if isinstance(path, Path) else Path(path)  # which may fetch its file when it is opened
    if store is None and (place.exists() or not str(path).startswith(f"{_KIND}/")):
        return place
    for found in entry_points(group="tokmill.artifacts", name="folder"):
        return Path(found.load()(_KIND, path, store))
    raise FormatError(
        f"{path}: does not exist, and no package that finds artifacts by name is installed; pass a "
        "tokenizer's file or folder, or install tokmill"
    )
