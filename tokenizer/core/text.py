r"""Byte strings as text: in GPT-2's byte alphabet, as lines, as characters, and as people read them.

In the alphabet, bytes that print stand for themselves, the other 68, in order, for the characters from U+0100
on, so a space is `Ġ`. Its order is that of the bytes' ids in every vocabulary trained here, as in Hugging
Face's trainers. Only `\n` and `\r\n` end a line, unlike for `str.splitlines`; a byte order mark is not text.
Source: openai/gpt-2 `encoder.py`, `bytes_to_unicode`.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise
from types import MappingProxyType
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts

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


_CODES = np.array([ord(CHARACTERS[byte]) for byte in range(256)], "<u2")
_BYTES = np.full(_CODES.max() + 2, -1, np.int16)
_BYTES[_CODES] = np.arange(256)


def to_texts(tokens: Sequence[bytes]) -> list[str]:
    """Write byte strings in the alphabet, all at once."""
    return _cut(_CODES[np.frombuffer(b"".join(tokens), np.uint8)].tobytes().decode("utf-16-le"), tokens)


def to_byte_strings(texts: Sequence[str], where: str | Callable[[int], str] = "token") -> list[bytes]:
    """Read byte strings that are written so, all at once; `where` is the place of all, or of each."""
    codes = np.frombuffer("".join(texts).encode("utf-16-le", "surrogatepass"), "<u2")
    found = _BYTES[np.minimum(codes, len(_BYTES) - 1)]
    if (found < 0).any():
        return [to_bytes(text, where if isinstance(where, str) else where(i)) for i, text in enumerate(texts)]
    return _cut(found.astype(np.uint8).tobytes(), texts)


def to_byte_pairs(pairs: Iterable[Sequence[str]], where: str = "token") -> list[tuple[bytes, bytes]]:
    """Read merges likewise."""
    parts = to_byte_strings([part for pair in pairs for part in pair], where)
    return list(zip(parts[::2], parts[1::2], strict=True))


_Whole = TypeVar("_Whole", str, bytes)


def _cut(whole: _Whole, parts: Sequence[str] | Sequence[bytes]) -> list[_Whole]:
    """Cut what was joined into parts of these lengths."""
    return [whole[start:end] for start, end in pairwise(accumulate(map(len, parts), initial=0))]


BOM = b"\xef\xbb\xbf"


def split_lines(data: bytes, errors: Literal["strict", "replace"] = "strict") -> list[str]:
    """Return the lines of UTF-8, without their ends; none of an empty file."""
    text = data.removeprefix(BOM).decode("utf-8", errors).replace("\r\n", "\n")
    return text.removesuffix("\n").split("\n") if text else []


# A fixed list rather than str.isprintable, whose answer depends on the Python version's Unicode tables.
_INVISIBLE = (
    *(*range(0x20), *range(0x7F, 0xA1), 0xAD, 0x3000, 0xFEFF),
    *(*range(0x2000, 0x2010), *range(0x2028, 0x2030), *range(0x205F, 0x2070)),
)
_SHOWN = {
    **{chr(code): chr(code).encode("unicode_escape").decode() for code in _INVISIBLE},
    **{chr(0xDC00 + byte): f"\\x{byte:02x}" for byte in range(0x80, 0x100)},  # as surrogateescape keeps them
    "\\": r"\\",
}
_TO_SHOW = re.compile(f"[{''.join(map(re.escape, _SHOWN))}]")
_BETWEEN = "\ud800"  # in no text of bytes


def has_surrogates(text: str) -> bool:
    """Whether a text has lone surrogates, which UTF-8 cannot hold."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def readable(token: bytes) -> str:
    r"""Return a token as one line: bytes that are not UTF-8 as `\x..`, the invisible escaped, `\` doubled."""
    return all_readable([token])[0]


def all_readable(tokens: Sequence[bytes]) -> list[str]:
    """Return each of some tokens as one line; see `readable`."""
    text = _BETWEEN.join([token.decode("utf-8", "surrogateescape") for token in tokens])
    return _TO_SHOW.sub(lambda found: _SHOWN[found[0]], text).split(_BETWEEN) if tokens else []


def code_points(data: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the code point of the character at each start, in well-formed UTF-8."""
    padded = np.concatenate([data, np.zeros(3, np.uint8)])
    first, codes = padded[starts].astype(np.int64), padded[starts].astype(np.int64)
    for length, mask in ((2, 0x1F), (3, 0x0F), (4, 0x07)):
        some = np.flatnonzero(first >= (0xC0, 0xE0, 0xF0)[length - 2])
        code = first[some] & mask
        for i in range(1, length):
            code = code << 6 | padded[starts[some] + i] & 0x3F
        codes[some] = code
    return codes


def utf8_alone(counts: PretokenCounts) -> PretokenCounts:
    """Return the counts of the pre-tokens that are UTF-8, in their order."""
    if not (counts.data >= 0x80).any():
        return counts
    kept = {pretoken: count for pretoken, count in counts.to_dict().items() if is_utf8(pretoken)}
    return counts if len(kept) == len(counts) else PretokenCounts.from_dict(kept, in_order=False)


def is_utf8(data: bytes) -> bool:
    """Whether bytes are a text."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
