"""A tokenizer artifact: the tokenizer in tokmill's own format, its attestation, and exports for others.

Opening one encodes the probes and compares their ids first. An export is only published after it was loaded
back and gave the probes the same ids. A format that cannot express the tokenizer is left out, and the reason
is recorded; but not for a format of one maker's tokenizers, or one that is only read (`_RARE`).
"""

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from tokmill.tasks.core.faults import broken
from tokmill.tasks.store.verify import check_files
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.pipeline.families import find_family

if TYPE_CHECKING:
    from tokmill.tokenizer import Tokenizer

TOKENIZER_FILE = "tokmill.json"
ATTESTATION_FILE = "attestation.json"
EXPORTS_FILE = "exports.json"
EXPORT_FORMATS = ("huggingface", "gpt2", "tiktoken")
"""Those that every tokenizer's exports list, if only with the reason why it has none."""
_RARE = ("tekken", "gguf")
_MOST_OPENED = 8
_opened: dict[tuple[int, ...], "Tokenizer"] = {}
"""Opened tokenizers, by the state of their files."""


def open_tokenizer(path: Path) -> "Tokenizer":
    """Open the tokenizer of the artifact in the directory `path`, and check its attestation.

    Opened once per process as long as its files do not change, which moving them does not; not at all if this
    process has published it. Safe to share between threads.

    Raises:
        StoreError: the attestation is missing or broken.
        TokenizerError: the tokenizer's file is broken, or a probe gave other ids; names the first that did.
    """
    state = _state(path)
    return _opened.get(state) or _keep(state, _checked(path))


def publish_tokenizer(tokenizer: "Tokenizer", out: Path, *, exports: bool = True) -> list[str]:
    """Write `tokenizer`, and perhaps its exports, into the directory `out`; check the files by loading them.

    Returns:
        The formats of the exports that were written.

    Raises:
        TokenizerError: a file cannot be written, or does not give the same ids when it is loaded back.
    """
    from tokmill.tokenizer import attestation

    attested = attestation.make(tokenizer)
    tokenizer.save(out)
    _write_json(out / ATTESTATION_FILE, attested)
    _keep(_state(out), _checked(out, tokenizer))
    if not exports:
        return []
    results = {name: _export(tokenizer, attested, name, out) for name in export_formats(tokenizer.family)}
    results = {name: result for name, result in results.items() if "files" in result or name not in _RARE}
    _write_json(out / EXPORTS_FILE, results)
    return [name for name, result in results.items() if "files" in result]


def export_formats(family: str) -> tuple[str, ...]:
    """Return the formats that a family's tokenizers are exported to: `EXPORT_FORMATS`, and its own."""
    return tuple(dict.fromkeys((*EXPORT_FORMATS, *sorted(find_family(family).formats))))


def read_exports(path: Path) -> dict[str, dict[str, Any]]:
    """Return what `exports.json` of a tokenizer artifact says of each format.

    Each has `files`, relative to the directory `path`, or the reason why there are none in `not_possible`;
    with files perhaps `differs`.
    """
    return _read_json(path / EXPORTS_FILE)


def _export(tokenizer: "Tokenizer", attested: dict[str, Any], name: str, out: Path) -> dict[str, Any]:
    """Write one export and load it back; return its files, or the reason why the format cannot express it."""
    from tokmill.tokenizer import Tokenizer, attestation, load

    folder = out / "exports" / name
    try:
        files = tokenizer.save(folder, format=name)
    except FormatError as error:
        if isinstance(error.__cause__, OSError):  # the disk, not the format
            raise
        return {"not_possible": str(error)}
    loaded = _sharing(load(folder), tokenizer)
    template = tokenizer.definition.post_processor
    attestation.check(Tokenizer(replace(loaded.definition, post_processor=template)), attested)
    result: dict[str, Any] = {"files": sorted(file.relative_to(out).as_posix() for file in files)}
    differs = _difference(tokenizer, loaded, name)
    return result | ({"differs": differs} if differs else {})


def _difference(tokenizer: "Tokenizer", loaded: "Tokenizer", name: str) -> str | None:
    """Return how an export differs from the tokenizer in what the probes do not show; None if it does not."""
    from tokmill.tokenizer.formats.split_steps import difference

    template = loaded.definition.post_processor
    if template is not None and template != tokenizer.definition.post_processor:
        around = " ".join(part.name for part in template.single)
        return f"it is read with the template {around}, which this tokenizer does not have"
    return difference(tokenizer.splitter.chain) if name == "huggingface" else None


def _state(path: Path) -> tuple[int, ...]:
    """Return what tells that the files of the artifact in a directory are others."""
    state: tuple[int, ...] = ()
    for file in (path / TOKENIZER_FILE, path / ATTESTATION_FILE):
        try:
            found = file.stat()
        except OSError as error:
            raise broken(file, "not a file of a tokenizer artifact", error) from error
        state += found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
    return state


def _keep(state: tuple[int, ...], tokenizer: "Tokenizer") -> "Tokenizer":
    if len(_opened) >= _MOST_OPENED:
        _opened.clear()
    return _opened.setdefault(state, tokenizer)


def _checked(path: Path, equal: "Tokenizer | None" = None) -> "Tokenizer":
    from tokmill.tokenizer import attestation, load

    check_files(path, [path / TOKENIZER_FILE, path / ATTESTATION_FILE])
    loaded = load(path / TOKENIZER_FILE)
    tokenizer = _sharing(loaded, equal) if equal else loaded
    attestation.check(tokenizer, _read_json(path / ATTESTATION_FILE))
    return tokenizer


def _sharing(loaded: "Tokenizer", other: "Tokenizer") -> "Tokenizer":
    """Return a tokenizer with the model of another one if it is equal, so that tables are made once."""
    model = other.definition.model
    equal = _equal(loaded.definition.model, model)
    return type(loaded)(replace(loaded.definition, model=model)) if equal else loaded


def _equal(one: Any, other: Any) -> bool:
    """Whether parts of tokenizers are equal: dataclasses, arrays and values."""
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if is_dataclass(one):
        names = [field.name for field in fields(one)]
        return type(one) is type(other) and all(_equal(getattr(one, n), getattr(other, n)) for n in names)
    return bool(one == other)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise broken(file, "not readable", error) from error
    return value


def _write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
