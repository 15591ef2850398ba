"""A tokenizer artifact: the tokenizer in tokmill's own format, its attestation, and exports for others.

Opening one encodes the probes and compares their ids first. An export is only published after it was loaded
back and gave the probes the same ids. A format that cannot express the tokenizer is left out, and the reason
is recorded; but not for a format of one maker's tokenizers, or one that is only read (`_RARE`).
"""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def open_tokenizer(path: Path) -> "Tokenizer":
    """Open the tokenizer of the artifact in the directory `path`, and check its attestation.

    Opened once per process as long as its files do not change; safe to share between threads.

    Raises:
        StoreError: the attestation is missing or broken.
        TokenizerError: the tokenizer's file is broken, or a probe gave other ids; names the first that did.
    """
    return _opened(path, tuple(_state(path / name) for name in (TOKENIZER_FILE, ATTESTATION_FILE)))


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
    _checked(out)
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
    loaded = load(folder)
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


def _state(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError as error:
        raise broken(file, "not a file of a tokenizer artifact", error) from error
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=8)
def _opened(path: Path, state: tuple[tuple[int, int], ...]) -> "Tokenizer":
    """Load and check; `state` makes the cache notice replaced files."""
    return _checked(path)


def _checked(path: Path) -> "Tokenizer":
    from tokmill.tokenizer import attestation, load

    check_files(path, [path / TOKENIZER_FILE, path / ATTESTATION_FILE])
    tokenizer = load(path / TOKENIZER_FILE)
    attestation.check(tokenizer, _read_json(path / ATTESTATION_FILE))
    return tokenizer


def _read_json(file: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = orjson.loads(file.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise broken(file, "not readable", error) from error
    return value


def _write_json(file: Path, value: dict[str, Any]) -> None:
    file.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
