"""Encode a text that comes in parts, such as the lines of a file, in bounded memory.

Law: the ids are those of the joined text, wherever it was cut. Each step passes on what no continuation can
change and holds the rest back: what may become a token, a character that may combine with the next one, a
pre-token that may grow. Memory holds a few times the longest of these; a pattern that runs through the
`regex` package holds back everything up to the next special or added token.
"""

import codecs
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.components.specials import Wanted, find, refuse
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import Text
from tokmill.tokenizer.kernels.split import find_uncertain
from tokmill.tokenizer.pipeline.model import TextNormalizer
from tokmill.tokenizer.splitting.splitter import Pretokens, Splitter, scan

Spans = tuple[NDArray[np.int64], NDArray[np.int64]]


def certain_pretokens(splitter: Splitter, data: NDArray[np.uint8]) -> Spans:
    """Return the bounds of the leading pre-tokens that no further text can change.

    A match is final if the matcher looked no further than the known text. In a chain, the first expression
    decides how far its parts reach; a stretch that it leaves unmatched is cut by the next one as far as it is
    known to extend. The `regex` package does not report how far it looked, so nothing is certain there.
    """
    starts, ends = zip(*_certain(splitter, data, 0, 0, len(data)), strict=True)
    return np.concatenate(starts), np.concatenate(ends)


def _certain(splitter: Splitter, data: NDArray[np.uint8], level: int, start: int, end: int) -> list[Spans]:
    """Cut `data[start:end]`, the beginning of a part, by the expressions from `level` on."""
    tables = splitter.tables[level] if level < len(splitter.tables) else None
    if tables is None or start == end:
        return [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    parts = scan(tables, data, np.array([start]), np.array([end]))
    reach = np.zeros(1, np.int64)
    number = find_uncertain(data, parts.starts, parts.ends, tables, reach)
    certain = Pretokens(parts.starts[:number].copy(), parts.ends[:number].copy(), np.array([0, number]))
    certain = splitter.grouped(level, data, certain)
    whole = splitter.cut_from(level + 1, data, certain.starts, certain.ends)
    found = [(whole.starts, whole.ends)]
    if number < len(parts.starts):
        found += _certain(splitter, data, level + 1, int(parts.starts[number]), int(reach[0]))
    return found


_ROOM = 1 << 16  # bytes that are collected before they are processed

Encode = Callable[[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]], list[int]]


class TextStream:
    """The open end of a text between two tokens: normalized as far as that is certain, and split."""

    def __init__(
        self, splitter: Splitter, normalizer: TextNormalizer, encode: Encode, wanted: Wanted
    ) -> None:
        self._splitter, self._normalizer, self._encode, self._wanted = splitter, normalizer, encode, wanted
        self._raw = self._text = b""
        self._first = True  # whether what comes next begins the text
        self._searched = 0  # bytes of the normalized text in which no more tokens are looked for
        self.passed = 0  # bytes before them

    def __len__(self) -> int:
        return len(self._raw) + len(self._text)

    def add(self, data: bytes) -> list[int]:
        """Take more text; return the ids that are certain."""
        self._raw += data
        self._normalize(self._normalizer.final_boundary(self._raw))
        late, size = self._wanted.normalized, len(self._text)
        ids = self._search(
            self._searched + _certain_size(self._text[self._searched :], late) if late else size
        )
        text = np.frombuffer(self._text[: self._searched], np.uint8)
        starts, ends = certain_pretokens(self._splitter, text)
        ids += self._encode(text, starts, ends)
        self._leave_behind(int(ends[-1]) if len(ends) else 0)
        return ids

    def end(self) -> list[int]:
        """Return the ids of the rest; the text ends here."""
        self._normalize(len(self._raw))
        ids = self._search(len(self._text)) + self._encode_whole(self._text)
        self._leave_behind(len(self._text))
        self._first = False
        return ids

    def _search(self, size: int) -> list[int]:
        """Look for tokens in the normalized text up to a place; return the ids up to the last of them."""
        ids, position, wanted = list[int](), 0, self._wanted
        if wanted.normalized:
            text, offsets = buffers.pack_bytes([self._text[self._searched : size]])
            starts, ends, tokens = find(text, offsets, wanted.normalized, wanted.hiding)
            refuse(offsets, (starts, tokens), wanted.refused, before=self.passed + self._searched)
            places = (starts + self._searched).tolist(), (ends + self._searched).tolist()
            for start, end, token in zip(*places, tokens.tolist(), strict=True):
                ids += [*self._encode_whole(self._text[position:start]), token]
                position = end
        self._searched = size
        self._leave_behind(position)
        return ids

    def _leave_behind(self, size: int) -> None:
        self._text, self._searched, self.passed = self._text[size:], self._searched - size, self.passed + size

    def _encode_whole(self, data: bytes) -> list[int]:
        text = np.frombuffer(data, np.uint8)
        found = self._splitter.split(text, np.array([0, len(text)]))
        return self._encode(text, found.starts, found.ends)

    def _normalize(self, size: int) -> None:
        data, self._raw = np.frombuffer(self._raw[:size], np.uint8), self._raw[size:]
        first = np.array([self._first])
        self._text += self._normalizer.buffers(data, np.array([0, size]), first=first)[0].tobytes()


def encode_parts(parts: Iterable[Text], stream: TextStream, wanted: Wanted) -> Iterator[int]:
    """Encode the text that the parts make up together."""
    held, waiting, consumed, room = b"", list[bytes](), 0, _ROOM
    for data in as_bytes(parts):
        waiting.append(data)
        room -= len(data)
        if room > 0:
            continue
        held, waiting = b"".join([held, *waiting]), []
        size = _certain_size(held, wanted.tokens)
        yield from _encode_some(held[:size], consumed, stream, wanted)
        held, consumed = held[size:], consumed + size
        room = max(_ROOM, len(held) + len(stream))  # as much again as is held, so that time stays linear
    yield from _encode_some(b"".join([held, *waiting]), consumed, stream, wanted)
    yield from stream.end()


def _encode_some(data: bytes, consumed: int, stream: TextStream, wanted: Wanted) -> Iterator[int]:
    """Pass text to the stream, and end the stream at each token."""
    text, offsets = buffers.pack_bytes([data])
    starts, ends, ids = find(text, offsets, wanted.tokens, wanted.hiding)
    refuse(offsets, (starts, ids), wanted.refused, before=consumed)
    position = 0
    for start, end, token in zip(starts.tolist(), ends.tolist(), ids.tolist(), strict=True):
        yield from stream.add(data[position:start])
        yield from stream.end()
        yield token
        stream.passed += end - start
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


def _certain_size(data: bytes, tokens: Mapping[str, int]) -> int:
    """Return the size of the beginning of a text that ends in no unfinished token or character."""
    size = len(data) - _unfinished(data)
    prefixes = _prefixes(tuple(tokens))
    if not prefixes:
        return size
    text, offsets = buffers.pack_bytes([data])
    starts, ends, _ = find(text, offsets, tokens)
    for place in range(max(0, len(data) - max(map(len, prefixes))), size):
        before = int(np.searchsorted(starts, place)) - 1  # the last token that begins earlier
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
    """Return all proper prefixes of tokens."""
    every = [name.encode() for name in names]
    return frozenset(name[:size] for name in every for size in range(1, len(name)))
