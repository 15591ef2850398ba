"""Encode a text that comes in parts, such as the lines of a file, in bounded memory.

    parts → bytes → special tokens cut out → normalizer → pre-tokens → ids

Law: the ids are those of the joined text, wherever it was cut. Each step passes on what no continuation can
    change and holds the rest back: what may become a special token, a character that may still combine with
    the next one, a pre-token that may still grow. Memory holds a few times the longest of these, and
    `_ROOM` bytes. A split pattern that runs through the `regex` package holds back everything up to the next
    special token.
"""

import codecs
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.components.specials import find, refuse
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import Text
from tokmill.tokenizer.pipeline.model import TextNormalizer
from tokmill.tokenizer.splitting import Splitter
from tokmill.tokenizer.splitting.growing import certain_pretokens

_ROOM = 1 << 16  # bytes that are collected before they are processed

Encode = Callable[[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]], list[int]]


class TextStream:
    """The open end of a text between two special tokens: normalized as far as that is certain, and split."""

    def __init__(self, splitter: Splitter, normalizer: TextNormalizer, encode: Encode) -> None:
        self._splitter, self._normalizer, self._encode = splitter, normalizer, encode
        self._raw = self._text = b""
        self._first = True  # whether what comes next begins the text

    def __len__(self) -> int:
        return len(self._raw) + len(self._text)

    def add(self, data: bytes) -> list[int]:
        """Take more text; return the ids that are certain."""
        self._raw += data
        self._normalize(self._normalizer.final_boundary(self._raw))
        text = np.frombuffer(self._text, np.uint8)
        starts, ends = certain_pretokens(self._splitter, text)
        ids = self._encode(text, starts, ends)
        self._text = self._text[int(ends[-1]) if len(ends) else 0 :]
        return ids

    def end(self) -> list[int]:
        """Return the ids of the rest; the text ends here."""
        self._normalize(len(self._raw))
        text, self._text = np.frombuffer(self._text, np.uint8), b""
        self._first = False
        found = self._splitter.split(text, np.array([0, len(text)]))
        return self._encode(text, found.starts, found.ends)

    def _normalize(self, size: int) -> None:
        data, self._raw = np.frombuffer(self._raw[:size], np.uint8), self._raw[size:]
        first = np.array([self._first])
        self._text += self._normalizer.buffers(data, np.array([0, size]), first=first)[0].tobytes()


def encode_parts(
    parts: Iterable[Text], stream: TextStream, specials: Mapping[str, int], disallowed: Collection[str]
) -> Iterator[int]:
    """Encode the text that the parts make up together.

    Args:
        parts: str, or bytes of UTF-8; a character may be spread over several.
        stream: a new one.
        specials: special tokens to look for, with their ids.
        disallowed: special tokens that the text must not contain.

    Raises:
        SpecialTokenError: it contains one; the message has its name and byte in the joined text.
        TokenizerError: a part is not a text.
    """
    held, waiting, consumed, wanted = b"", list[bytes](), 0, _ROOM
    for data in as_bytes(parts):
        waiting.append(data)
        wanted -= len(data)
        if wanted > 0:
            continue
        held, waiting = b"".join([held, *waiting]), []
        size = _certain_size(held, specials)
        yield from _encode_some(held[:size], consumed, stream, specials, disallowed)
        held, consumed = held[size:], consumed + size
        wanted = max(_ROOM, len(held) + len(stream))  # as much again as is held, so that time stays linear
    yield from _encode_some(b"".join([held, *waiting]), consumed, stream, specials, disallowed)
    yield from stream.end()


def _encode_some(
    data: bytes, consumed: int, stream: TextStream, specials: Mapping[str, int], disallowed: Collection[str]
) -> Iterator[int]:
    """Pass text to the stream, and end the stream at each special token."""
    text, offsets = buffers.pack_bytes([data])
    starts, ends, ids = find(text, offsets, specials)
    refuse(text, offsets, starts, ends, disallowed, before=consumed)
    position = 0
    for start, end, token in zip(starts.tolist(), ends.tolist(), ids.tolist(), strict=True):
        yield from stream.add(data[position:start])
        yield from stream.end()
        yield token
        position = end
    yield from stream.add(data[position:])


def as_bytes(parts: Iterable[Text]) -> Iterator[bytes]:
    """Encode parts as UTF-8; the halves of a surrogate pair may be in two of them."""
    high = ""
    for number, part in enumerate(parts):
        if not isinstance(part, str):
            yield buffers.utf8(high) + buffers.utf8(part, f"part {number}")
            high = ""
            continue
        text = high + part
        high = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        yield buffers.utf8(text[: len(text) - len(high)])
    yield buffers.utf8(high)


def _certain_size(data: bytes, specials: Mapping[str, int]) -> int:
    """Return the size of the beginning of a text that ends in no unfinished special token or character."""
    size = len(data) - _unfinished(data)
    prefixes = _prefixes(tuple(specials))
    if not prefixes:
        return size
    text, offsets = buffers.pack_bytes([data])
    starts, ends, _ = find(text, offsets, specials)
    for place in range(max(0, len(data) - max(map(len, prefixes))), size):
        before = int(np.searchsorted(starts, place)) - 1  # the last special token that begins earlier
        if data[place:] in prefixes and (before < 0 or ends[before] <= place):
            return place
    return size


def _unfinished(data: bytes) -> int:
    """Return the number of bytes at the end that begin an incomplete character."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(data[-4:])
    return len(decoder.getstate()[0])


@lru_cache(maxsize=32)
def _prefixes(names: tuple[str, ...]) -> frozenset[bytes]:
    """Return all proper prefixes of special tokens."""
    every = [name.encode() for name in names]
    return frozenset(name[:size] for name in every for size in range(1, len(name)))
