"""Tokenizer files, in every format that we know.

| format | files | what it cannot express |
| --- | --- | --- |
| `tokmill` | `tokmill.json` | nothing |
| `huggingface` | `tokenizer.json`, `tokenizer_config.json` | patterns that Oniguruma reads otherwise |
| `huggingface_exact` | the same | the same |
| `gpt2` | `vocab.json`, `merges.txt`, sidecar | — (other readers do not see the sidecar) |
| `tiktoken` | `tokenizer.tiktoken`, sidecar | merges that do not follow from the order of the tokens |
| `bert` | `vocab.txt` | anything but tokens: settings are those of BERT |
| `sentencepiece` | `tokenizer.model`, `.vocab` | anything but models that were read from such a file |
| `rwkv` | `rwkv_vocab.txt`, sidecar | — (RWKV's own programs do not see the sidecar) |
| `tekken` | `tekken.json` | the same; special tokens and bytes that do not have the first ids |

Read alone: subword-nmt's codes, merges without a vocabulary (`codes`), and the tokenizer's section of GGUF
files (`gguf`).

A family lists the formats that can express it; another one is refused by name, and so is an export that would
lose something. One loses a little: `huggingface` spells splits as published models do, which for `cl100k` is
another one at the end of some texts (see `split_steps`); `huggingface_exact` does not, and is read by
tokenizers 0.2x alone. Roles of special tokens and chat templates lie in `tokenizer_config.json` beside the
others' files, if a tokenizer has any. Files are written whole or not at all.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from tokmill.tokenizer.core.errors import FormatError, cannot_express
from tokmill.tokenizer.formats import files, gguf, huggingface, sentencepiece, transformers
from tokmill.tokenizer.formats.files import read_json, write_json
from tokmill.tokenizer.formats.gguf import MAGIC
from tokmill.tokenizer.formats.sidecar import Usage
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.families import find_family, format_modules

__all__ = ["WRITERS", "read", "save"]

Writer = Callable[[Definition, Path], list[Path]]


def _by_family(format_name: str) -> Writer:
    """Return a writer that has the definition's family write its own format."""

    def write(definition: Definition, folder: Path) -> list[Path]:
        module = find_family(definition.family).format_module(format_name)
        written: list[Path] = module.write(definition, folder)
        return written

    return write


WRITERS: dict[str, Writer] = {
    "tokmill": lambda definition, folder: [write_json(folder / files.TOKMILL, definition.to_spec())],
    "huggingface": huggingface.write,
    "huggingface_exact": partial(huggingface.write, exact=True),
    **{name: _by_family(name) for name in ("gpt2", "tiktoken", "tekken", "bert", "rwkv")},
    "sentencepiece": sentencepiece.write,
}
"""Formats by name."""

_WITHOUT_ROLES = frozenset(WRITERS) - {
    *("tokmill", "huggingface", "huggingface_exact", "bert", "sentencepiece")
}
"""Formats whose files hold neither all roles nor chat templates, nor write them beside."""

_WITH_SIDES = frozenset({"tokmill", "huggingface", "huggingface_exact"})
"""Formats that can say that tokens take white space, or that they are always found."""

_OTHER_NAMES = (
    files.TEKKEN,
    files.BERT,
    files.SENTENCEPIECE,
    files.RWKV,
    "encoder.json",
    "spiece.model",
)


def save(definition: Definition, folder: Path, format_name: str = "tokmill") -> list[Path]:
    """Write a tokenizer into a folder, which is made if need be; return the files that were written."""
    if format_name not in WRITERS:
        raise FormatError(f"format={format_name!r} is not known; use one of {', '.join(WRITERS)}")
    family = find_family(definition.family)
    if format_name != "tokmill" and format_name.removesuffix("_exact") not in family.formats:
        what = f"a {family.name} tokenizer: it holds other families' models"
        raise cannot_express(format_name, what, *(name for name in family.formats if name in WRITERS))
    if folder.is_file():
        raise FormatError(f"{folder}: is a file, but a tokenizer is saved into a folder; name its folder")
    if definition.absorbing and format_name not in _WITH_SIDES:
        what = f"that {next(iter(definition.absorbing))!r:.80} takes the white space beside it"
        raise cannot_express(format_name, what, "huggingface", "tokmill")
    if definition.added_tokens and format_name not in _WITH_SIDES:
        what = f"that {definition.added_tokens[0]!r:.80} is always found in a text"
        raise cannot_express(format_name, what, "huggingface", "tokmill")
    written = WRITERS[format_name](definition, folder)
    if format_name in _WITHOUT_ROLES and (definition.roles or definition.chat_templates):
        written += transformers.write(definition, folder)
    return written


def read(path: Path, usage: Usage) -> Definition:
    """Read a tokenizer's file, or the most complete one in a folder."""
    file = file_in(path) if path.is_dir() else path
    if files.head_of(file).startswith(MAGIC):
        return gguf.read(file, usage)
    for format_name, is_of_it in _RECOGNIZED.items():
        if is_of_it(file):
            return transformers.with_settings(_read_as(format_name, file, usage), file.parent)
    content = _json_of(file, usage)
    if "format" in content and not files.is_tekken(content):
        return Definition.from_spec(content, str(file))
    return transformers.with_settings(_read_json(file, content), file.parent)


def file_in(folder: Path) -> Path:
    """Return the most complete file of a tokenizer in a folder."""
    for name in (files.TOKMILL, files.HUGGINGFACE):
        if (folder / name).exists():
            return folder / name
    ranks = sorted(folder.glob(f"*{files.TIKTOKEN_SUFFIX}"))
    if len(ranks) == 1:
        return ranks[0]
    if (folder / files.GPT2_VOCAB).exists():
        return folder / files.GPT2_VOCAB
    for name in _OTHER_NAMES:
        if (folder / name).exists():
            return folder / name
    models = sorted(folder.glob(f"*{files.GGUF_SUFFIX}"))
    if len(models) == 1:
        return models[0]
    raise FormatError(
        f"{folder}: holds {len(ranks)} *{files.TIKTOKEN_SUFFIX} files and none of "
        f"{files.TOKMILL}, {files.HUGGINGFACE}, {files.GPT2_VOCAB}; "
        "pass the tokenizer's file"
    )


_RECOGNIZED: dict[str, Callable[[Path], bool]] = {
    "tiktoken": lambda file: (
        file.name.endswith(files.TIKTOKEN_SUFFIX) or bool(files.RANK.match(files.head_of(file)))
    ),
    "sentencepiece": lambda file: file.suffix == ".model" or files.begins_with_piece(files.head_of(file)),
    "gpt2": lambda file: file.name.endswith((files.GPT2_VOCAB, files.GPT2_MERGES)),
    "codes": lambda file: files.is_codes(file.name, files.head_of(file)),
    "rwkv": lambda file: bool(files.LITERAL.match(files.head_of(file))),
    "bert": lambda file: file.name.endswith(files.BERT),
}
"""What tells that a file is of a format, tried in this order; the others are JSON."""


def _json_of(file: Path, usage: Usage) -> dict[str, Any]:
    """Return the content of a JSON file that is complete."""
    files.refuse_file(file)
    if file.suffix != ".json":
        raise FormatError(
            f"{file} is of no format that we know; use *{files.TIKTOKEN_SUFFIX}, "
            f"*{files.GPT2_VOCAB}, {files.HUGGINGFACE} or {files.TOKMILL}"
        )
    if not usage.is_empty:
        raise FormatError(
            f"{file}: says itself how text is split, normalized and what is special; pass the path alone"
        )
    return read_json(file)


def _read_json(file: Path, content: dict[str, Any]) -> Definition:
    if files.is_tekken(content):
        tekken: Definition = _module("tekken").read_content(content, str(file))
        return tekken
    if "model" not in content:
        files.refuse_json(file, content)
    return huggingface.read_content(content, str(file))


def _read_as(format_name: str, file: Path, usage: Usage) -> Definition:
    """Read a file of a format, or have the family that the format belongs to read it."""
    if format_name == "sentencepiece":
        return sentencepiece.read(file, usage)
    definition: Definition = _module(format_name, file).read(file, usage)
    return definition


def _module(format_name: str, file: Path | None = None) -> Any:
    """Return the module that reads a format, of the family that it belongs to or that knows the file."""
    usual, *others = format_modules(format_name)
    return next((module for module in others if module.recognizes(file)), usual)
