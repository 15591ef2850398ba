"""GPT-2's byte alphabet: one printable character per byte, so that any byte string can be written as text.

Bytes that print (`!` to `~`, `¡` to `¬`, `®` to `ÿ`) stand for themselves; the other 68, in order, for the
characters from U+0100 on, so a space is `Ġ`. Sorting the characters gives the order of the bytes' token ids
in every vocabulary that is trained here, as in Hugging Face's trainers: id 0 is `!`, id 255 is 0xAD.
Source: openai/gpt-2, `encoder.py`, `bytes_to_unicode`.
"""

from types import MappingProxyType

from tokmill.tokenizer.core.errors import FormatError

_PRINTING = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTING]

BYTE_ORDER: tuple[int, ...] = (*_PRINTING, *_OTHERS)
"""The byte that token id i stands for, for i below 256."""

CHARACTERS = {byte: chr(byte) for byte in _PRINTING} | {
    byte: chr(0x100 + i) for i, byte in enumerate(_OTHERS)
}
"""The character of each byte."""

_WRITE = MappingProxyType({byte: CHARACTERS[byte] for byte in range(256)})
_READ = MappingProxyType({ord(character): byte for byte, character in CHARACTERS.items()})


def to_text(token: bytes) -> str:
    """Write a byte string in the alphabet, one character per byte."""
    return token.decode("latin-1").translate(_WRITE)


def to_bytes(text: str, where: str = "token") -> bytes:
    """Read a byte string that is written in the alphabet."""
    try:
        return text.translate(_READ).encode("latin-1")
    except UnicodeEncodeError as error:
        raise FormatError(
            f"{where}: {text!r:.200} holds {text[error.start]!r}, which is not in GPT-2's byte alphabet; "
            "only byte-level vocabularies can be read"
        ) from None
