"""Tokenizer files, in every format that we know.

| format | files | what it cannot express |
| --- | --- | --- |
| `tokmill` | `tokmill.json` | nothing |
| `huggingface` | `tokenizer.json`, `tokenizer_config.json` | patterns that Oniguruma reads otherwise |
| `huggingface_exact` | the same | the same |
| `gpt2` | `vocab.json`, `merges.txt`, sidecar | — (other readers do not see the sidecar) |
| `tiktoken` | `tokenizer.tiktoken`, sidecar | merges that do not follow from the order of the tokens |

An export that would lose something is refused, with the reason. One loses a little: `huggingface` spells
splits as published models do, which for `cl100k` is another one at the end of some texts (see `spellings`);
`huggingface_exact` does not, and is read by tokenizers 0.2x alone. Files are written whole or not at all.
"""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tokmill.tokenizer.artifacts import artifact_folder
from tokmill.tokenizer.definition import Definition
from tokmill.tokenizer.errors import FormatError
from tokmill.tokenizer.formats import foreign, gpt2, huggingface, native, tiktoken
from tokmill.tokenizer.formats.files import read_json
from tokmill.tokenizer.formats.sidecar import SpecialTokens, Usage
from tokmill.tokenizer.splitting import Digits, PatternLike
from tokmill.tokenizer.tokenizer import Tokenizer

__all__ = ["WRITERS", "load", "save"]

WRITERS: dict[str, Callable[[Definition, Path], list[Path]]] = {
    "tokmill": native.write,
    "huggingface": huggingface.write,
    "huggingface_exact": partial(huggingface.write, exact=True),
    "gpt2": gpt2.write,
    "tiktoken": tiktoken.write,
}
"""Formats by name."""

logger = logging.getLogger(__name__)

_FOREIGN_NAMES = ("tekken.json", "encoder.json", "vocab.txt", "tokenizer.model", "spiece.model")
_OF_OTHER_FAMILIES = {"sentencepiece", "bert"}


def save(tok: Tokenizer, folder: Path, format_name: str = "tokmill") -> list[Path]:
    """Write a tokenizer into a folder, which is made if need be.

    Returns:
        The files that were written.

    Raises:
        FormatError: an unknown format, one that cannot express the tokenizer, or a file that cannot be
            written.
    """
    if format_name in _OF_OTHER_FAMILIES:
        raise FormatError(
            f"format={format_name!r} cannot express a {tok.family} tokenizer: it holds other families' "
            "models; use 'huggingface', 'gpt2' or 'tiktoken'"
        )
    if format_name not in WRITERS:
        raise FormatError(f"format={format_name!r} is not known; use one of {', '.join(WRITERS)}")
    if folder.is_file():
        raise FormatError(f"{folder}: is a file, but a tokenizer is saved into a folder; name its folder")
    return WRITERS[format_name](tok.definition, folder)


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
        path: `tokmill.json`, `tokenizer.json`, `*.tiktoken`, `*vocab.json` beside `*merges.txt`, or a
            folder; where a folder holds several, the one that says the most is taken. Or the name of an
            artifact, `tokenizer/name`, `tokenizer/name@v3`, where a store is given or found.
        store: where a name is looked up; else TOKMILL_STORE, else `tokmill-store` in the working directory.
        split_pattern: for `gpt2` and `tiktoken` files, which do not say it; goes before their sidecar.
        digits: the same.
        normalizer: the same.
        special_tokens: the same; ids by name, or, if the file has them, names.

    Raises:
        FormatError: nothing is there, it cannot be read, or an argument contradicts a file that says it all.
        VocabularyError: the vocabulary breaks a law.
    """
    usage = Usage(split_pattern, digits, normalizer, special_tokens)
    place = artifact_folder(path, store)
    if not place.exists():
        raise FormatError(f"{place}: does not exist; pass a tokenizer's file or folder")
    tok = Tokenizer(_read(_file_in(place) if place.is_dir() else place, usage))
    _tell_of_other_tables(tok, place)
    return tok


def _tell_of_other_tables(tok: Tokenizer, place: Path) -> None:
    """Say so where a tokenizer's training text was split with other Unicode tables than text is here."""
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


def _file_in(folder: Path) -> Path:
    for name in (native.FILE_NAME, huggingface.FILE_NAME):
        if (folder / name).exists():
            return folder / name
    ranks = sorted(folder.glob(f"*{tiktoken.SUFFIX}"))
    if len(ranks) == 1:
        return ranks[0]
    if (folder / gpt2.VOCAB_NAME).exists():
        return folder / gpt2.VOCAB_NAME
    for name in _FOREIGN_NAMES:
        if (folder / name).exists():
            foreign.refuse_file(folder / name)
    raise FormatError(
        f"{folder}: holds {len(ranks)} *{tiktoken.SUFFIX} files and none of {native.FILE_NAME}, "
        f"{huggingface.FILE_NAME}, {gpt2.VOCAB_NAME}; pass the tokenizer's file"
    )


def _read(file: Path, usage: Usage) -> Definition:
    if file.name.endswith(tiktoken.SUFFIX):
        return tiktoken.read(file, usage)
    for ending in (gpt2.VOCAB_NAME, gpt2.MERGES_NAME):
        if file.name.endswith(ending):
            stem = file.name.removesuffix(ending)
            return gpt2.read(
                file.with_name(stem + gpt2.VOCAB_NAME), file.with_name(stem + gpt2.MERGES_NAME), usage
            )
    foreign.refuse_file(file)
    if file.suffix != ".json":
        raise FormatError(
            f"{file} is of no format that we know; use *{tiktoken.SUFFIX}, *{gpt2.VOCAB_NAME}, "
            f"{huggingface.FILE_NAME} or {native.FILE_NAME}"
        )
    if not usage.is_empty:
        raise FormatError(
            f"{file}: says itself how text is split, normalized and what is special; pass the path alone"
        )
    content = read_json(file)
    if "format" in content:
        return native.read_content(content, str(file))
    if "model" not in content:
        foreign.refuse_json(file, content)
    return huggingface.read_content(content, str(file))
