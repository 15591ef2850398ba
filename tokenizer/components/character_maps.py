"""Steps of normalizers that change each character by itself, run by a kernel over whole buffers.

A table has for each character the text that takes its place, filled by the slow steps a page of 128
characters at a time when the first one occurs. Law: the result is that of the steps on each document; one
with characters whose texts cannot simply be joined (marks that change their order) goes through the slow
steps.
"""

import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.jit.arrays import zero_pages
from tokmill.tokenizer.kernels.forms import (
    APART,
    ASKS,
    DONE,
    FIRST,
    FULL,
    LENGTH_BITS,
    LENGTH_MASK,
    SAME,
    UNKNOWN,
    CharacterTables,
    map_characters,
)

PAGE = 128
_SURROGATES = range(0xD800, 0xE000)
_TEXT_BYTES = 1 << 23  # five times what BERT's steps need; memory that is not written to costs nothing
_ROOM = 4096
_BETWEEN = "|"  # combines with no character

Buffers = tuple[NDArray[np.uint8], NDArray[np.int64]]


class CharacterMap:
    """Some steps as a table of characters; safe to share between threads."""

    def __init__(self, change: Callable[[str], str], apart: Callable[[str], bool]) -> None:
        """Take the steps, and which characters they cannot change alone."""
        self._change, self._apart = change, apart
        self._cells = zero_pages(0x110000, np.int32)
        self._texts, self._used = zero_pages(_TEXT_BYTES, np.uint8), 0
        self._lock = threading.Lock()

    def buffers(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], keep: NDArray[np.bool_] | None
    ) -> Buffers:
        """Change each document of a buffer; see `pipeline.model.TextNormalizer.buffers`."""
        number = len(offsets) - 1
        kept = np.zeros(number, np.uint8) if keep is None else keep.astype(np.uint8)
        size = int(offsets[-1] - offsets[0])
        out, bounds = np.empty(size + size // 8 + _ROOM, np.uint8), np.empty(number + 1, np.int64)
        state = np.array([0, offsets[0], 0, 0], np.int64)
        while (why := map_characters(data, offsets, kept, self.tables, out, bounds, state)) != DONE:
            if why == FULL:
                out = _larger(out, int(state[2]), 2 * len(out))
            elif why == ASKS:
                self._fill(int(state[3]))
            else:
                out = self._whole(data, offsets, out, bounds, state)
        return out[: int(state[2])], bounds

    @property
    def tables(self) -> CharacterTables:
        """The tables of the kernel, for characters of pages that `page` was called for."""
        return CharacterTables(self._cells, self._texts)

    def page(self, first: int) -> list[bytes | None]:
        """Return what becomes of each character of a page, given by its first; None if others matter.

        A surrogate, which no text has, becomes nothing.
        """
        if self._cells[first] == UNKNOWN:
            self._fill(first)
        return [self._text(point) for point in range(first, first + PAGE)]

    def _text(self, point: int) -> bytes | None:
        cell = int(self._cells[point])
        if cell == APART:
            return None
        if cell < FIRST:
            return b"" if cell == UNKNOWN else chr(point).encode()
        place, length = (cell - FIRST) >> LENGTH_BITS, (cell - FIRST) & LENGTH_MASK
        return self._texts[place : place + length].tobytes()

    def _fill(self, point: int) -> None:
        """Find out what becomes of the characters of a page."""
        with self._lock:
            first = point // PAGE * PAGE
            points = [point for point in range(first, first + PAGE) if point not in _SURROGATES]
            page = [chr(point) for point in points]
            some_apart = self._change(_BETWEEN) != _BETWEEN or self._apart(_BETWEEN.join(page))
            alone = [character for character in page if not (some_apart and self._apart(character))]
            texts = dict(zip(alone, self._changed(alone), strict=True))
            cells = [self._cell(chr(point), texts.get(chr(point))) for point in points]
            self._cells[points] = cells  # after the texts, as other threads read both

    def _changed(self, characters: list[str]) -> list[str]:
        """Change characters, all in one call if it can be told apart afterwards what became of each."""
        texts = self._change(_BETWEEN.join(characters)).split(_BETWEEN)
        if len(texts) == len(characters) and self._change(_BETWEEN) == _BETWEEN:
            return texts
        return [self._change(character) for character in characters]

    def _cell(self, character: str, changed: str | None) -> int:
        if changed is None:
            return APART
        text = changed.encode()
        if text == character.encode():
            return SAME
        if len(text) > LENGTH_MASK or self._used + len(text) > _TEXT_BYTES:
            return APART
        place = self._used
        self._texts[place : place + len(text)] = np.frombuffer(text, np.uint8)
        self._used += len(text)
        return FIRST + (place << LENGTH_BITS | len(text))

    def _whole(
        self,
        data: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        out: NDArray[np.uint8],
        bounds: NDArray[np.int64],
        state: NDArray[np.int64],
    ) -> NDArray[np.uint8]:
        """Change one document by the slow steps."""
        document = int(state[0])
        given = data[offsets[document] : offsets[document + 1]].tobytes()
        text = self._change(given.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
        begin, end = int(bounds[document]), int(bounds[document]) + len(text)
        out = out if end <= len(out) else _larger(out, begin, 2 * end)
        out[begin:end] = np.frombuffer(text, np.uint8)
        state[:3] = document + 1, offsets[document + 1], end
        bounds[document + 1] = end
        return out


def _larger(array: NDArray[np.uint8], used: int, size: int) -> NDArray[np.uint8]:
    """Return an array of another size with the same beginning."""
    made = np.empty(size, np.uint8)
    made[:used] = array[:used]
    return made
