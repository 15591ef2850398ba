"""tiktoken's format: one token per line, its bytes in base64 and its rank, which is its id; any file name.

The merges follow from the ranks (`encoder.merges_from_ranks`). A sidecar has split pattern and special
tokens, as `tiktoken.Encoding` takes them, too. A vocabulary with tokens that merging does not lead to is read
as `ignore_merges`, since tiktoken takes such pre-tokens whole. Source: openai/tiktoken `load.py`.
"""

import base64
import binascii
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tokmill.tokenizer.byte_bpe.encoder import merges_from_ranks
from tokmill.tokenizer.byte_bpe.model import define, model_of
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import FormatError, refuse_malformed
from tokmill.tokenizer.core.text import split_lines
from tokmill.tokenizer.core.vocabulary import MAX_IDS
from tokmill.tokenizer.formats import sidecar
from tokmill.tokenizer.formats.files import TIKTOKEN, read_file, write_file
from tokmill.tokenizer.formats.sidecar import Usage
from tokmill.tokenizer.pipeline.definition import Definition

SIDECAR_SUFFIX = ".sidecar.json"


def write(definition: Definition, folder: Path) -> list[Path]:
    """Write the file and its sidecar into a folder."""
    check_ranks(definition, "tiktoken")
    lines = [base64.b64encode(token) + f" {i}\n".encode() for i, token in definition.vocabulary.ordinary()]
    file = write_file(folder / TIKTOKEN, b"".join(lines))
    beside = folder / (TIKTOKEN + SIDECAR_SUFFIX)
    return [file, sidecar.write(definition, beside, ignore_merges=model_of(definition).ignore_merges)]


def check_ranks(definition: Definition, format_name: str) -> None:
    """Check that ranks alone give a tokenizer's merges."""
    model, vocabulary = model_of(definition), definition.vocabulary
    special = np.array(list(definition.special_tokens.values()), np.int64)
    merges, unreached = merges_from_ranks(vocabulary.data, vocabulary.offsets, special)
    if not np.array_equal(merges, model.merges):
        raise FormatError(
            f"format='{format_name}' cannot express this tokenizer: it keeps the order of tokens only, and "
            "the merges that follow from it are others than this tokenizer's; use format='huggingface'"
        )
    if unreached.shape[0] and not model.ignore_merges:
        raise FormatError(
            f"format='{format_name}' cannot express this tokenizer: tiktoken would take the pre-token "
            f"{definition.tokens[int(unreached[0])]!r} whole, which merging does not; use format='tokmill'"
        )


def read(path: Path, usage: Usage) -> Definition:
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
