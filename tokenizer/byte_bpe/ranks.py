"""Formats that have tokens in order of their ranks, from which merges follow: tiktoken's and Mistral's.

tiktoken's has one token per line, its bytes in base64 and its rank, which is its id; any file name. A sidecar
has split pattern and special tokens, as `tiktoken.Encoding` takes them, too. A vocabulary with tokens that
merging does not lead to is read as `ignore_merges`, since tiktoken takes such pre-tokens whole.

In `tekken.json` special tokens have the first ids, a fixed number of them; then come tokens by rank, the 256
bytes first, as many as `default_vocab_size` has room for. A pre-token that is a token is taken whole.
Settings of images and audio are not kept. Files up to version 7 have the special tokens of the first tekken.
Sources: openai/tiktoken `load.py`; mistralai/mistral-common, `tokens/tokenizers/tekken.py`.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tokmill.tokenizer.byte_bpe.model import define, merges_from_ranks, model_of
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import FormatError, cannot_express, refuse_malformed
from tokmill.tokenizer.core.text import split_lines
from tokmill.tokenizer.core.vocabulary import MAX_IDS
from tokmill.tokenizer.formats import sidecar
from tokmill.tokenizer.formats.files import TEKKEN, TIKTOKEN, read_file, write_file, write_json
from tokmill.tokenizer.formats.sidecar import Usage
from tokmill.tokenizer.pipeline.definition import Definition

SIDECAR_SUFFIX = ".sidecar.json"


def _write_tiktoken(definition: Definition, folder: Path) -> list[Path]:
    """Write the file and its sidecar into a folder."""
    check_ranks(definition, "tiktoken")
    ordinary = definition.vocabulary.ordinary()
    lines = [b"%b %d\n" % (binascii.b2a_base64(token, newline=False), i) for i, token in ordinary]
    file = write_file(folder / TIKTOKEN, b"".join(lines))
    beside = folder / (TIKTOKEN + SIDECAR_SUFFIX)
    return [file, sidecar.write(definition, beside, ignore_merges=model_of(definition).ignore_merges)]


def check_ranks(definition: Definition, format_name: str) -> None:
    """Check that ranks alone give a tokenizer's merges."""
    model, vocabulary = model_of(definition), definition.vocabulary
    special = np.array(list(definition.special_tokens.values()), np.int64)
    merges, unreached = merges_from_ranks(vocabulary.data, vocabulary.offsets, special)
    if not np.array_equal(merges, model.merges):
        what = "this tokenizer: it keeps the order of tokens only, from which other merges follow"
        raise cannot_express(format_name, what, "huggingface")
    if unreached.shape[0] and not model.ignore_merges:
        token = definition.tokens[int(unreached[0])]
        raise cannot_express(format_name, f"this tokenizer: tiktoken takes {token!r} whole, merging does not")


def _read_tiktoken(path: Path, usage: Usage) -> Definition:
    """Read the file."""
    usage = usage.over(Usage.read(path.with_name(path.name + SIDECAR_SUFFIX)))
    if usage.split_pattern is None:
        raise FormatError(
            f"{path}: a .tiktoken file does not say how text is split, and there is no sidecar; pass "
            "split_pattern='cl100k' or 'o200k', or whatever it was made with"
        )
    ranks, specials = _read_ranks(path), usage.special_ids(path)
    with refuse_malformed(str(path)):
        return definition_of(
            ranks,
            specials,
            ignore_merges=usage.ignore_merges,
            num_reserved=usage.num_reserved or 0,
            **usage.parts(usage.split_pattern),
        )


def definition_of(
    ranks: Mapping[int, bytes],
    special_tokens: Mapping[str, int],
    *,
    ignore_merges: bool | None,
    **how: Any,
) -> Definition:
    """Build a definition from byte strings by rank."""
    data, offsets = pack_bytes([ranks.get(i, b"") for i in range(max(ranks) + 1)])
    rows, unreached = merges_from_ranks(data, offsets, np.zeros(0, np.int64))
    return define(
        ranks,
        rows.astype(np.int32),
        special_tokens,
        ignore_merges=bool(unreached.shape[0]) if ignore_merges is None else ignore_merges,
        **how,
    )


def _read_ranks(path: Path) -> dict[int, bytes]:
    ranks: dict[int, bytes] = {}
    for number, line in enumerate(split_lines(read_file(path), "replace"), 1):
        if not line:
            continue
        try:
            encoded, rank = line.split()
            # Whisper's multilingual file ends in "= 50256": an id whose token is empty, which no text has
            text, i = b"" if encoded == "=" else binascii.a2b_base64(encoded, strict_mode=True), int(rank)
        except (ValueError, binascii.Error) as error:
            raise FormatError(
                f"{path}: line {number}: {line[:60]!r} must be base64, a space and a rank"
            ) from error
        if not 0 <= i < MAX_IDS or i in ranks:
            raise FormatError(
                f"{path}: line {number}: rank {i} must be from 0 to {MAX_IDS - 1}, and stand there once"
            )
        ranks[i] = text
    ranks = {i: text for i, text in ranks.items() if text}
    if not ranks:
        raise FormatError(f"{path}: holds no tokens; is it the right file?")
    return ranks


_FIRST_NAMES = (
    *("<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]"),
    *("[PREFIX]", "[MIDDLE]", "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]"),
)
"""The special tokens of files that do not list them, by id."""

_WITHOUT_LIST = ("v3", "v7")
_VERSION = "v3"


def _read_tekken(content: Mapping[str, Any], where: str) -> Definition:
    """Read the content of a file."""
    with refuse_malformed(where):
        return _tekken_definition(content, where)


def _tekken_definition(content: Mapping[str, Any], where: str) -> Definition:
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


def _write_tekken(definition: Definition, folder: Path) -> list[Path]:
    """Write the file into a folder."""
    number = len(definition.special_tokens)
    _check_tekken(definition, number)
    check_ranks(definition, "tekken")
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


def _check_tekken(definition: Definition, number: int) -> None:
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
            raise cannot_express("tekken", f"this tokenizer: it needs {rule}")


def _row(rank: int, token: bytes) -> dict[str, Any]:
    try:
        text: str | None = token.decode()
    except UnicodeDecodeError:
        text = None
    return {"rank": rank, "token_bytes": base64.b64encode(token).decode(), "token_str": text}


TIKTOKEN_FORMAT = SimpleNamespace(read=_read_tiktoken, write=_write_tiktoken)
TEKKEN_FORMAT = SimpleNamespace(read_content=_read_tekken, write=_write_tekken)
