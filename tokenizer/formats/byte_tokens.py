"""Tokens that stand for single bytes, `<0x00>` to `<0xFF>`, in the vocabularies of SentencePiece's models."""

from collections.abc import Mapping
from typing import Any

from tokmill.tokenizer.formats.split_steps import refusal

_BYTES, _ASCII = 256, 128


def byte_name(byte: int) -> str:
    """Return the text of the token of a byte."""
    return f"<0x{byte:02X}>"


def read_byte_ids(ids: Mapping[str, int], model: Mapping[str, Any], where: str) -> dict[int, bytes]:
    """Return the bytes that stand in for unknown characters, by id; none without `byte_fallback`.

    One whose character is a piece may be missing, as that of the tab is in Gemma's files: it is never needed.

    Args:
        ids: ids by text.
        model: the value of `model` in a `tokenizer.json`.
        where: the file, for messages.

    Raises:
        FormatError: the vocabulary has some of them and not the others.
    """
    if not model.get("byte_fallback"):
        return {}
    found = {ids[byte_name(byte)]: bytes([byte]) for byte in range(_BYTES) if byte_name(byte) in ids}
    lacking = [byte for byte in range(_BYTES) if byte_name(byte) not in ids]
    if found and not all(byte < _ASCII and chr(byte) in ids for byte in lacking):
        rule = f"{len(found)} of the tokens <0x00> to <0xFF> are there; there must be all, or none"
        raise refusal(where, "model.byte_fallback", True, rule)
    return found
