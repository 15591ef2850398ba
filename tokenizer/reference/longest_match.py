r"""Longest match, slow and obvious: every end is tried, the farthest first.

Training makes the pieces of byte-level BPE (`byte_bpe`); only encoding differs. From the pieces `ab`, `bcd`
and `abc`, longest match takes `abc` first, and so never gets to `bcd`:

    >>> pieces = {bytes([byte]) for byte in range(256)} | {b"ab", b"bcd", b"abc"}
    >>> encode(b"abcd", pieces)
    [b'abc', b'd']
    >>> encode(b"xbcdab", pieces)
    [b'x', b'bcd', b'ab']
    >>> encode("é".encode(), pieces)
    [b'\xc3', b'\xa9']
"""

from collections.abc import Container


def encode(text: bytes, pieces: Container[bytes]) -> list[bytes]:
    """Cut a pre-token into pieces, which include every byte."""
    found, at = list[bytes](), 0
    while at < len(text):
        end = next(end for end in range(len(text), at, -1) if text[at:end] in pieces)
        found.append(text[at:end])
        at = end
    return found
