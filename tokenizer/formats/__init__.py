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

from collections.abc import Callable
from functools import partial
from pathlib import Path

from tokmill.tokenizer.components.definition import FAMILY, Definition
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.formats import foreign, gpt2, huggingface, native, tiktoken
from tokmill.tokenizer.formats.files import read_json
from tokmill.tokenizer.formats.sidecar import Usage

__all__ = ["WRITERS", "read", "save"]

WRITERS: dict[str, Callable[[Definition, Path], list[Path]]] = {
    "tokmill": native.write,
    "huggingface": huggingface.write,
    "huggingface_exact": partial(huggingface.write, exact=True),
    "gpt2": gpt2.write,
    "tiktoken": tiktoken.write,
}
"""Formats by name."""

_FOREIGN_NAMES = ("tekken.json", "encoder.json", "vocab.txt", "tokenizer.model", "spiece.model")
_OF_OTHER_FAMILIES = {"sentencepiece", "bert"}


def save(definition: Definition, folder: Path, format_name: str = "tokmill") -> list[Path]:
    """Write a tokenizer into a folder, which is made if need be.

    Returns:
        The files that were written.

    Raises:
        FormatError: an unknown format, one that cannot express the tokenizer, or a file that cannot be
            written.
    """
    if format_name in _OF_OTHER_FAMILIES:
        raise FormatError(
            f"format={format_name!r} cannot express a {FAMILY} tokenizer: it holds other families' "
            "models; use 'huggingface', 'gpt2' or 'tiktoken'"
        )
    if format_name not in WRITERS:
        raise FormatError(f"format={format_name!r} is not known; use one of {', '.join(WRITERS)}")
    if folder.is_file():
        raise FormatError(f"{folder}: is a file, but a tokenizer is saved into a folder; name its folder")
    return WRITERS[format_name](definition, folder)


def read(path: Path, usage: Usage) -> Definition:
    """Read a tokenizer's file, or the one in a folder that says the most.

    Raises:
        FormatError: nothing is there, it cannot be read, or `usage` contradicts a file that says it all.
        VocabularyError: the vocabulary breaks a law.
    """
    return _read(_file_in(path) if path.is_dir() else path, usage)


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
