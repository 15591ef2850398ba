r"""Families that only look strings up, slow and obvious: words, characters, and the longest match.

A word is a pre-token, so with GPT-2's split pattern ` dog` and `dog` are two words. The most frequent words
are kept, of equally frequent ones that of the smaller bytes first; any other is `[UNK]`, and lost.

    >>> vocab = train({b"the": 3, b" cat": 2, b" dog": 2, b" ant": 1}, 3)
    >>> vocab
    [b'the', b' cat', b' dog']
    >>> encode([b"the", b" dog", b" ant"], vocab)
    [b'the', b' dog', b'[UNK]']

A character is a byte with the continuation bytes of UTF-8 (0x80 to 0xBF) that follow it, so that any bytes
have characters, well-formed or not.

    >>> characters("aß天".encode())
    [b'a', b'\xc3\x9f', b'\xe5\xa4\xa9']
    >>> train({b"banana": 2, b"bad": 1}, 3, cut=characters)
    [b'a', b'n', b'b']
    >>> encode([b"ban", b"dan"], [b"a", b"n", b"b"], cut=characters)
    [b'b', b'a', b'n', b'[UNK]', b'a', b'n']

Longest match tries every end, the farthest first. From the pieces `ab`, `bcd` and `abc` it takes `abc` first,
and so never gets to `bcd`. Its pieces are those that byte-level BPE makes.

    >>> pieces = {bytes([byte]) for byte in range(256)} | {b"ab", b"bcd", b"abc"}
    >>> longest_match(b"abcd", pieces), longest_match(b"xbcdab", pieces)
    ([b'abc', b'd'], [b'x', b'bcd', b'ab'])
"""

import re
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence

UNKNOWN = b"[UNK]"
Cut = Callable[[bytes], Sequence[bytes]]


def whole(word: bytes) -> list[bytes]:
    """Return a word as it is; nothing for an empty one."""
    return [word] if word else []


def characters(word: bytes) -> list[bytes]:
    """Cut a word into characters."""
    return re.findall(rb"(?s).[\x80-\xbf]*", word)


def train(
    counts: Mapping[bytes, int],
    number: int,
    *,
    cut: Cut = whole,
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    forbidden: Sequence[bytes] = (),
) -> list[bytes]:
    """Return the most frequent strings, the most frequent first; fewer where there are no more."""
    counted: Counter[bytes] = Counter()
    for word, count in counts.items():
        for string in cut(word):
            counted[string] += count
    possible = [
        string
        for string, count in counted.items()
        if count >= max(min_frequency, 1)
        and (max_token_bytes is None or len(string) <= max_token_bytes)
        and string not in forbidden
    ]
    return sorted(possible, key=lambda string: (-counted[string], string))[:number]


def encode(words: Sequence[bytes], vocab: Container[bytes], cut: Cut = whole) -> list[bytes]:
    """Return the token of each string of some words."""
    return [string if string in vocab else UNKNOWN for word in words for string in cut(word)]


def longest_match(text: bytes, pieces: Container[bytes]) -> list[bytes]:
    """Cut a pre-token into pieces, which include every byte."""
    found, at = list[bytes](), 0
    while at < len(text):
        end = next(end for end in range(len(text), at, -1) if text[at:end] in pieces)
        found.append(text[at:end])
        at = end
    return found
