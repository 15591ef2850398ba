r"""Character-level tokenization, slow and obvious: words of one character each.

A character is a byte with the continuation bytes of UTF-8 (0x80 to 0xBF) that follow it, so that any bytes
have characters, well-formed or not.

    >>> characters("aß天".encode())
    [b'a', b'\xc3\x9f', b'\xe5\xa4\xa9']
    >>> train({b"banana": 2, b"bad": 1}, num_characters=3)
    [b'a', b'n', b'b']
    >>> encode([b"ban", b"dan"], [b"a", b"n", b"b"])
    [b'b', b'a', b'n', b'[UNK]', b'a', b'n']
"""

import re
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any

from tokmill.tokenizer.reference import word_level


def characters(word: bytes) -> list[bytes]:
    """Cut a word into characters."""
    return re.findall(rb"(?s).[\x80-\xbf]*", word)


def train(counts: Mapping[bytes, int], num_characters: int, **options: Any) -> list[bytes]:
    """Return the most frequent characters; options as in `word_level.train`."""
    counted: Counter[bytes] = Counter()
    for word, count in counts.items():
        for character in characters(word):
            counted[character] += count
    return word_level.train(counted, num_characters, **options)


def encode(words: Sequence[bytes], vocab: Container[bytes]) -> list[bytes]:
    """Return the token of each character of some words."""
    return word_level.encode([character for word in words for character in characters(word)], vocab)
