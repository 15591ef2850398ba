"""Mistral's `tekken.json`: the split pattern, the tokens in order of their ranks, and the special tokens.

Special tokens have the first ids, a fixed number of them; then come tokens by rank, the 256 bytes first, as
many as `default_vocab_size` has room for. Merges follow from ranks, and a pre-token that is a token is taken
whole. Settings of images and audio are not kept. Files up to version 7 have the special tokens of Mistral's
first tekken. Source: mistralai/mistral-common, `tokens/tokenizers/tekken.py`.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokmill.tokenizer.byte_bpe.tiktoken import check_ranks, definition_of
from tokmill.tokenizer.core.errors import FormatError, refuse_malformed
from tokmill.tokenizer.core.vocabulary import MAX_IDS
from tokmill.tokenizer.formats.files import TEKKEN, write_json
from tokmill.tokenizer.pipeline.definition import Definition

_FIRST_NAMES = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]"),
    *("[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)
"""The special tokens of files that do not list them, by id."""

_WITHOUT_LIST = ("v3", "v7")
_VERSION = "v3"


def read_content(content: Mapping[str, Any], where: str) -> Definition:
    """Read the content of a file."""
    with refuse_malformed(where):
        return _definition(content, where)


def _definition(content: Mapping[str, Any], where: str) -> Definition:
    config = content["config"]
    size, num_special = int(config["default_vocab_size"]), int(config["default_num_special_tokens"])
    if not 0 <= num_special < size <= MAX_IDS:
        raise FormatError(
            f"{where}: default_vocab_size={size} and default_num_special_tokens={num_special} must leave "
            f"room for tokens, and be at most {MAX_IDS}"
        )
    names = _names(content, num_special, where)
    tokens = _tokens(content["vocab"], size - num_special, where)
    return definition_of(
        {num_special + rank: token for rank, token in enumerate(tokens)},
        names,
        split_pattern=config["pattern"],
        ignore_merges=None,
    )


def _names(content: Mapping[str, Any], number: int, where: str) -> dict[str, int]:
    """Return the ids of the special tokens by name, by id."""
    listed = content.get("special_tokens")
    version = content["config"].get("version")
    if listed is None and version not in _WITHOUT_LIST:
        raise FormatError(
            f"{where}: special_tokens is missing, which only files of version "
            f"{' and '.join(_WITHOUT_LIST)} may leave out; this one has version={version!r:.80}"
        )
    if listed is None:
        found = {name: token for token, name in enumerate(_FIRST_NAMES[:number])}
    else:
        found = {entry["token_str"]: entry["rank"] for entry in listed}
    if sorted(found.values()) != list(range(len(found))) or len(found) != len(listed or found):
        raise FormatError(
            f"{where}: special_tokens must have the ranks from 0 on, each once, and no name twice"
        )
    if len(found) > number:
        raise FormatError(
            f"{where}: special_tokens has {len(found)} names, but default_num_special_tokens={number}"
        )
    names = sorted(found, key=found.__getitem__)
    names += [f"<SPECIAL_{token}>" for token in range(len(found), number)]
    return {name: token for token, name in enumerate(names)}


def _tokens(rows: Sequence[Mapping[str, Any]], number: int, where: str) -> list[bytes]:
    """Return the first tokens, by rank."""
    if len(rows) < number:
        raise FormatError(f"{where}: vocab has {len(rows)} tokens, but default_vocab_size needs {number}")
    tokens = []
    for rank, row in enumerate(rows[:number]):
        try:
            token = binascii.a2b_base64(row["token_bytes"], strict_mode=True)
        except binascii.Error as error:
            raise FormatError(
                f"{where}: vocab[{rank}]: token_bytes={row['token_bytes']!r:.80} must be base64"
            ) from error
        if row["rank"] != rank or (rank < 256 and token != bytes([rank])):
            raise FormatError(
                f"{where}: vocab[{rank}]: rank={row['rank']!r:.80} of {token!r:.80}, but tokens must be in "
                "order of rank, and the 256 bytes come first"
            )
        tokens.append(token)
    return tokens


def write(definition: Definition, folder: Path) -> list[Path]:
    """Write the file into a folder."""
    check_ranks(definition, "tekken")
    number = len(definition.special_tokens)
    _check(definition, number)
    content = {
        "config": {
            "pattern": definition.pre_tokenizer.chain[0],
            "num_vocab_tokens": definition.vocab_size - number,
            "default_vocab_size": definition.vocab_size,
            "default_num_special_tokens": number,
            "version": _VERSION,
        },
        "special_tokens": [
            {"rank": token, "token_str": name, "is_control": True}
            for name, token in definition.special_tokens.items()
        ],
        "vocab": [_row(rank, token) for rank, token in enumerate(definition.tokens[number:])],
    }
    return [write_json(folder / TEKKEN, content)]


def _check(definition: Definition, number: int) -> None:
    bytes_first = [bytes([byte]) for byte in range(256)]
    rules = {
        "the special tokens to have the first ids": list(definition.special_tokens.values())
        == list(range(number)),
        "the 256 bytes, in their order, after the special tokens": definition.tokens[number : number + 256]
        == bytes_first,
        "a token for every id": b"" not in definition.tokens,
        "one expression as split pattern": len(definition.pre_tokenizer.chain) == 1,
        "no normalizer": definition.normalizer.name is None,
        "no template": definition.post_processor is None,
    }
    for rule, holds in rules.items():
        if not holds:
            raise FormatError(
                f"format='tekken' cannot express this tokenizer: it needs {rule}; use format='tokmill'"
            )


def _row(rank: int, token: bytes) -> dict[str, Any]:
    try:
        text: str | None = token.decode()
    except UnicodeDecodeError:
        text = None
    return {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": text}
