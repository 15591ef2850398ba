"""Read and write files: whole or not at all, JSON in one canonical form, errors that name the file.

`merges.txt` has one merge per line, two tokens with a space between them, in order of rank.
"""

import json
import os
import re
import stat
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import orjson

from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.core.text import BOM, split_lines


def write_file(path: Path, content: bytes) -> Path:
    """Write a file under another name beside its place, flush it, and rename it.

    Its folder is made if need be.
    """
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise FormatError(
            f"{path}: cannot be written: {error.strerror}; check space and permissions"
        ) from error
    return path


MAX_FILE_BYTES = 1 << 30
"""The most bytes of a tokenizer's file, far more than any has; bounds the memory of reading one."""


def read_file(path: Path) -> bytes:
    """Read a file."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise FormatError(f"{path}: is not a regular file; pass a tokenizer's file or folder")
        if status.st_size > MAX_FILE_BYTES:
            raise FormatError(
                f"{path}: has {status.st_size} bytes, but a tokenizer's file has at most {MAX_FILE_BYTES}; "
                "is it the right file?"
            )
        return path.read_bytes()
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from error


def write_json(path: Path, value: dict[str, Any]) -> Path:
    """Write JSON in one canonical way: sorted keys, UTF-8, a newline at the end; see `write_file`."""
    return write_file(path, dump_json(value))


_FLOAT = re.compile(rb"[.e][-+]?[0-9]+[],}]")


def dump_json(value: dict[str, Any]) -> bytes:
    """Return JSON as `write_json` writes it: as Python does, whose floats no other library writes alike."""
    with suppress(TypeError):  # orjson has neither lone surrogates nor integers of more than 64 bits
        data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)
        if not _FLOAT.search(data):
            return data
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return (text + "\n").encode("utf-8", "surrogatepass")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        value = json.loads(read_file(path).decode("utf-8", "surrogatepass"))
    except RecursionError:
        raise FormatError(f"{path}: is not a tokenizer's JSON: it is nested too deeply") from None
    except ValueError as error:
        raise FormatError(f"{path}: is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise FormatError(f"{path}: holds a JSON {type(value).__name__}, but should hold an object")
    return value


HEADER = "#version: 0.2"


def write_merges(path: Path, pairs: Sequence[tuple[str, str]]) -> Path:
    """Write merges with the header of subword-nmt, which says that `</w>` is attached to the last letter."""
    lines = [HEADER, *(f"{left} {right}" for left, right in pairs), ""]
    return write_file(path, "\n".join(lines).encode())


def read_merges(
    path: Path,
    check: Callable[[Sequence[str], Callable[[int], str]], object] | None = None,
    errors: Literal["strict", "replace"] = "replace",
) -> list[tuple[str, str]]:
    """Read merges; a first line that begins with `#version` is left out.

    `check` gets what each line joins, and what the place of the line with an index is.
    """
    pairs, lines = [], []
    for number, line in enumerate(split_lines(read_file(path), errors), 1):
        if not line or (number == 1 and line.startswith("#version")):
            continue
        left, space, right = line.partition(" ")
        if not (left and space and right) or " " in right:
            raise FormatError(
                f"{path}: line {number}: {line!r:.200} must be two tokens with one space between them"
            )
        pairs.append((left, right))
        lines.append(number)
    if check is not None:
        check([left + right for left, right in pairs], lambda index: f"{path}: line {lines[index]}")
    return pairs


TOKMILL = "tokmill.json"
HUGGINGFACE = "tokenizer.json"
TIKTOKEN_SUFFIX, TIKTOKEN = ".tiktoken", "tokenizer.tiktoken"
TEKKEN = "tekken.json"
BERT = "vocab.txt"
SENTENCEPIECE, SENTENCEPIECE_VOCAB = "tokenizer.model", "tokenizer.vocab"
RWKV = "rwkv_vocab.txt"
GGUF_SUFFIX = ".gguf"
GPT2_VOCAB, GPT2_MERGES = "vocab.json", "merges.txt"

_PIECE_TAG, _ONE_BYTE, _LEAST_PIECE = 0x0A, 0x80, 6
_AFTER_TEXT = (b"\x15", b"\x18")  # the tags of a score and a type
LITERAL = re.compile(rb"[0-9]{1,7} b?(['\"])[^\n]*\1 [0-9]{1,7}\r?\n")
RANK = re.compile(rb"[A-Za-z0-9+/]+={0,2} [0-9]+\r?\n")
"""The first line of RWKV's files: an id, a literal in quotes, its length; of tiktoken's: base64, a rank."""


def begins_with_piece(head: bytes) -> bool:
    """Whether a file begins as SentencePiece's models do: with a piece, which is a text, a score and a type.

    Text that begins with two line breaks (the tags of piece and text) has no control character after them.
    """
    if len(head) < _LEAST_PIECE or not head[0] == head[2] == _PIECE_TAG or not head[3] < head[1] < _ONE_BYTE:
        return False
    return head[4 + head[3] : 5 + head[3]] in _AFTER_TEXT


def is_codes(name: str, head: bytes) -> bool:
    """Whether a file is subword-nmt's codes: by its first line, and by `</w>`, which GPT-2's merges lack.

    A `merges.txt` is a part of another format.
    """
    return head.startswith(b"#version: ") and b"</w>" in head and not name.endswith(GPT2_MERGES)


def is_tekken(content: Mapping[str, Any]) -> bool:
    """Whether the JSON of a file is Mistral's tekken, and no vocabulary with tokens of these names."""
    return isinstance(content.get("config"), dict) and isinstance(content.get("vocab"), list)


_HEAD_BYTES = 512

_BY_NAME: MappingProxyType[str, str] = MappingProxyType(
    {
        "tokenizer_config.json": "settings of transformers; pass tokenizer.json, which lies beside it",
        "special_tokens_map.json": "names of special tokens alone; pass tokenizer.json, which lies beside it",
        "added_tokens.json": "added tokens alone; pass tokenizer.json, which lies beside it",
        "config.json": "a model's configuration; pass its tokenizer.json",
        "generation_config.json": "a model's configuration; pass its tokenizer.json",
        "encoder.json": "GPT-2's vocabulary; copy it to vocab.json, and vocab.bpe beside it to merges.txt",
        "vocab.bpe": "GPT-2's merges; copy it to merges.txt, and encoder.json beside it to vocab.json",
        "record.json": "an artifact's record; pass tokmill.json, which lies beside it",
        "attestation.json": "a tokenizer's attestation; pass tokmill.json, which lies beside it",
    }
)

_BY_KEYS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"tokenizer_class"}), _BY_NAME["tokenizer_config.json"]),
    (frozenset({"model_type"}), _BY_NAME["config.json"]),
    (frozenset({"bos_token", "eos_token"}), _BY_NAME["special_tokens_map.json"]),
    (frozenset({"kind", "fingerprint"}), _BY_NAME["record.json"]),
    (frozenset({"probes", "vocab_size"}), _BY_NAME["attestation.json"]),
    (frozenset({"weight_map"}), "an index of a model's weights; pass its tokenizer.json"),
)

_BY_HEAD: tuple[tuple[bytes, str], ...] = (
    (b"PK\x03\x04", "a zip archive or a PyTorch checkpoint; pass a tokenizer.json"),
    (b"\x80\x02", "a Python pickle, which could run anything and is not opened; pass a tokenizer.json"),
    (b"\x80\x04", "a Python pickle, which could run anything and is not opened; pass a tokenizer.json"),
    (b"version https://git-lfs", "a Git LFS pointer; fetch the file itself with git lfs pull"),
    (b"\x1f\x8b", "compressed; unpack it first"),
    (b"\x28\xb5\x2f\xfd", "compressed; unpack it first"),
)


def refuse_file(path: Path) -> None:
    """Reject a file whose name or first bytes show that it has another format."""
    what = _BY_NAME.get(path.name)
    if what is None:
        head = head_of(path)
        what = next((name for start, name in _BY_HEAD if head.startswith(start)), None)
    if what is not None:
        raise FormatError(f"{path}: is {what}")


def head_of(path: Path) -> bytes:
    """Return the first bytes of a file, without a byte order mark; empty unless it is a regular file."""
    if not path.is_file():
        return b""
    try:
        with path.open("rb") as file:
            return file.read(_HEAD_BYTES).removeprefix(BOM)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror}") from error


def refuse_json(path: Path, content: Mapping[str, Any], *, whole: bool = True) -> None:
    """Reject a JSON object that is not a tokenizer, or not one that we read."""
    is_vocabulary = bool(content) and {*map(type, content.values())} <= {int, bool}
    for keys, what in _BY_KEYS:
        if keys <= content.keys() and not is_vocabulary:  # whose tokens may be any words
            raise FormatError(f"{path}: is {what}")
    if whole and is_vocabulary:
        raise FormatError(
            f"{path}: is a vocabulary without its merges; name it vocab.json, with its merges.txt beside it"
        )
