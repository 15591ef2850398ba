"""Byte strings as one line of text each, for tables and pages that people read."""

_INVISIBLE = frozenset(
    {0xAD, 0x3000, 0xFEFF, *range(0x2000, 0x2010), *range(0x2028, 0x2030), *range(0x205F, 0x2070)}
)


def readable(token: bytes) -> str:
    r"""Return a token as one line: bytes that are not UTF-8 as `\x..`, the invisible escaped, `\` doubled."""
    text = token.decode("utf-8", "surrogateescape")
    return "".join(_shown(char) for char in text)


def _shown(char: str) -> str:
    code = ord(char)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8, as surrogateescape keeps it
        return f"\\x{code - 0xDC00:02x}"
    if char == "\\":
        return "\\\\"
    # A fixed list rather than str.isprintable, whose answer depends on the Python version's Unicode tables.
    invisible = code < 0x20 or 0x7F <= code <= 0xA0 or code in _INVISIBLE
    return char.encode("unicode_escape").decode("ascii") if invisible else char
