"""Unicode's normalization forms over buffers, with `unicodedata2` as the truth.

A kernel passes over text that is in the form, and replaces characters that become others wherever they stand,
from tables that `unicodedata` fills a page at a time. What is left (marks out of order, letters that join)
`unicodedata` does, from the last character that begins anew to the next one. Law: the result is that of
`unicodedata.normalize` on each document. Source: Unicode Standard Annex 15, "Detecting Normalization Forms".
"""

import functools
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Literal

import numpy as np
import unicodedata2 as unicodedata
from numpy.typing import NDArray

from tokmill.tokenizer.jit.arrays import zero_pages
from tokmill.tokenizer.kernels import forms
from tokmill.tokenizer.kernels.forms import (
    APART,
    ASKS,
    DONE,
    FIRST,
    FULL,
    LENGTH_BITS,
    LENGTH_MASK,
    FormTables,
    apply_form,
    find_slot,
)

PAGE = 128
_POINTS = 0x110000
_SURROGATES = range(0xD800, 0xE000)
_TEXT_BYTES = 1 << 21
_ROOM = 4096
_LEAST_LEAP, _MOST_LEAP, _NEAR = 16, 1 << 16, 4
_LEAP_OVER_DOCUMENTS = 1 << 11  # bytes
_JOINING_JAMO = frozenset([*range(0x1161, 0x1176), *range(0x11A8, 0x11C3)])

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
Buffers = tuple[NDArray[np.uint8], NDArray[np.int64]]


@functools.cache
def _seconds() -> frozenset[str]:
    """Return the characters that may join the one before them: the second ones of pairs that are others."""
    found = set[str]()
    for point in range(0xC0, 0x20000):  # no character beyond is made of two
        parts = unicodedata.decomposition(chr(point)).split()
        if len(parts) == 2 and parts[0][0] != "<":
            found.add(chr(int(parts[1], 16)))
    return frozenset(found)


class FormMap:
    """One form as tables; safe to share between threads."""

    def __init__(self, form: Form) -> None:
        """Take the form: NFC, NFD, NFKC or NFKD."""
        self._change = functools.partial(unicodedata.normalize, form)
        self._seconds = _seconds() if form.endswith("C") else frozenset[str]()
        self._jamo = _JOINING_JAMO if form.endswith("C") else frozenset[int]()
        kinds, first, last = (zero_pages(_POINTS, np.uint8) for _ in range(3))
        texts, pairs = zero_pages(_TEXT_BYTES, np.uint8), np.zeros(forms.NUM_PAIRS, np.uint64)
        self._tables = FormTables(kinds, zero_pages(_POINTS, np.int32), first, last, texts, pairs)
        self._used = self._num_pairs = 0
        self._lock = threading.Lock()

    def buffers(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], keep: NDArray[np.bool_] | None
    ) -> Buffers:
        """Normalize each document of a buffer; the same buffer if nothing changes."""
        begin, end, number = int(offsets[0]), int(offsets[-1]), len(offsets) - 1
        kept = np.zeros(number, np.uint8) if keep is None else keep.astype(np.uint8)
        run = _Run(data, offsets, kept)
        while (why := run.go_on(self._tables)) != DONE:
            if why == FULL:
                run.grow(run.wanted + end - begin + (end - begin) // 8 + _ROOM)
            elif why == ASKS:
                self._fill(int(run.state[forms.POINT]))
            elif why != forms.ASKS_PAIR or not self._ask(*run.pair):
                self._span(run)
        if run.state[forms.COPIED] == begin and run.state[forms.SIZE] == 0:
            return data, offsets
        run.copy_to(end)
        return run.out[: int(run.state[forms.SIZE])], run.bounds

    def _fill(self, point: int) -> None:
        """Find out what becomes of the characters of a page."""
        with self._lock:
            start = point // PAGE * PAGE
            points = [one for one in range(start, start + PAGE) if one not in _SURROGATES]
            for one in points:
                self._tables.cells[one] = self._cell(chr(one))
            plain = (self._tables.cells[points] == forms.STAYS) & (self._tables.first[points] == 0)
            # last, as other threads read on once they are there
            self._tables.kinds[points] = np.where(plain, forms.PLAIN, forms.OTHER)

    def _cell(self, character: str) -> int:
        text, point = self._change(character), ord(character)
        self._tables.first[point] = unicodedata.combining(text[0])
        self._tables.last[point] = unicodedata.combining(text[-1])
        if point in self._jamo:
            return APART
        if text == character:
            return forms.MAYBE if character in self._seconds else forms.STAYS
        encoded, place = text.encode(), self._used
        if text[0] in self._seconds or ord(text[0]) in self._jamo or len(encoded) > LENGTH_MASK:
            return APART
        self._tables.texts[place : place + len(encoded)] = np.frombuffer(encoded, np.uint8)
        self._used += len(encoded)
        return FIRST + (place << LENGTH_BITS | len(encoded))

    def _ask(self, one: int, other: int) -> bool:
        """Find out whether two characters change where they meet; False if there is no room to remember."""
        text = chr(one) + chr(other)
        with self._lock:
            if self._num_pairs > forms.NUM_PAIRS // 2:
                return False
            self._num_pairs += 1
            entry = 2 * (one << 21 | other) + (self._change(text) != text)
            self._tables.pairs[find_slot(self._tables.pairs, one, other)] = entry
        return True

    def _span(self, run: "_Run") -> None:
        """Normalize by `unicodedata` from the last character that begins anew to the next one.

        Where such places follow each other closely, as in decomposed text, more and more is done at once, and
        in the end several documents.
        """
        start, end = int(run.state[forms.SAFE_AT]), int(run.offsets[run.state[forms.DOCUMENT] + 1])
        stop = run.leap(start, end)
        if run.leap_bytes >= _LEAP_OVER_DOCUMENTS and run.leap_bytes > end - start:
            run.put_documents(self._bytes)
            return
        while stop < end:
            character, size = run.character(stop, end)
            if stop > run.state[forms.AT] and self._begins_anew(character):
                break
            stop += size
        run.put(start, self._bytes(run.data[start:stop].tobytes()), stop)

    def _bytes(self, data: bytes) -> bytes:
        changed: str = self._change(data.decode("utf-8", "surrogateescape"))
        return changed.encode("utf-8", "surrogateescape")

    def _begins_anew(self, character: str) -> bool:
        if ord(character) in _SURROGATES:
            return True
        if self._tables.kinds[ord(character)] == forms.UNSEEN:
            self._fill(ord(character))
        cell, first = self._tables.cells[ord(character)], self._tables.first[ord(character)]
        return bool(cell not in (forms.MAYBE, APART) and first == 0)


class _Run:
    """The state of one call: what was read, and the new text so far."""

    def __init__(self, data: NDArray[np.uint8], offsets: NDArray[np.int64], kept: NDArray[np.uint8]) -> None:
        self.data, self.offsets, self.kept = data, offsets, kept
        self.out, self.bounds = np.empty(0, np.uint8), np.empty(len(offsets), np.int64)
        self.state = np.zeros(9, np.int64)
        self.state[[forms.AT, forms.COPIED, forms.SAFE_AT]] = offsets[0]
        self.leap_bytes, self.leaped = _LEAST_LEAP, int(offsets[0])

    def go_on(self, tables: FormTables) -> int:
        """Call the kernel."""
        return apply_form(self.data, self.offsets, self.kept, tables, self.out, self.bounds, self.state)

    @property
    def wanted(self) -> int:
        """Bytes of the new text up to here."""
        return int(self.state[forms.SIZE] + self.state[forms.AT] - self.state[forms.COPIED])

    @property
    def pair(self) -> tuple[int, int]:
        """The two characters that were asked for."""
        return int(self.state[forms.LAST]), int(self.state[forms.POINT])

    def leap(self, start: int, end: int) -> int:
        """Return where to go at least from a place that begins anew: twice as far as last if that is near."""
        near = start - self.leaped < _NEAR * self.leap_bytes
        self.leap_bytes = min(2 * self.leap_bytes, _MOST_LEAP) if near else _LEAST_LEAP
        self.leaped = max(int(self.state[forms.AT]), min(start + self.leap_bytes, end))
        while self.leaped < end and self.data[self.leaped] & 0xC0 == 0x80:
            self.leaped += 1
        return self.leaped

    def character(self, at: int, end: int) -> tuple[str, int]:
        """Return the character at a place, and its size in bytes."""
        byte = int(self.data[at])
        size = 1 if byte < 0xC0 else (2 if byte < 0xE0 else (3 if byte < 0xF0 else 4))
        text = self.data[at : min(at + size, end)].tobytes().decode("utf-8", "surrogateescape")
        return text[0], len(text[0].encode("utf-8", "surrogateescape"))

    def grow(self, size: int) -> None:
        """Make room for the new text."""
        made = np.empty(size, np.uint8)
        used = int(self.state[forms.SIZE])
        made[:used] = self.out[:used]
        self.out = made

    def copy_to(self, end: int) -> None:
        """Copy text that stays, up to a place."""
        size, copied = int(self.state[forms.SIZE]), int(self.state[forms.COPIED])
        if size + end - copied > len(self.out):
            self.grow(2 * (size + end - copied) + _ROOM)
        self.out[size : size + end - copied] = self.data[copied:end]
        self.state[[forms.SIZE, forms.COPIED]] = size + end - copied, end

    def put_documents(self, change: Callable[[bytes], bytes]) -> None:
        """Change this document, and the following ones up to the length of a leap, one by one."""
        first = int(self.state[forms.DOCUMENT])
        start = int(self.offsets[first])
        after = int(np.searchsorted(self.offsets, start + self.leap_bytes))
        after = max(min(after, len(self.offsets) - 1), first + 1)
        cuts = self.offsets[first : after + 1].tolist()
        given = [self.data[i:j].tobytes() for i, j in pairwise(cuts)]
        kept = self.kept[first:after].tolist()
        texts = [text if keeps else change(text) for text, keeps in zip(given, kept, strict=True)]
        self.bounds[first + 1 : after + 1] = self.bounds[first] + np.cumsum([len(text) for text in texts])
        self.state[forms.SAFE_SIZE] = self.bounds[first]
        self.put(start, b"".join(texts), cuts[-1])
        self.state[forms.DOCUMENT], self.leaped = after, cuts[-1]

    def put(self, start: int, text: bytes, stop: int) -> None:
        """Put a text in the place of what was read from `start` to `stop`."""
        if start >= self.state[forms.COPIED]:
            self.copy_to(start)
        else:
            self.state[forms.SIZE] = self.state[forms.SAFE_SIZE]
        size = int(self.state[forms.SIZE])
        if size + len(text) > len(self.out):
            self.grow(2 * (size + len(text)) + _ROOM)
        self.out[size : size + len(text)] = np.frombuffer(text, np.uint8)
        size += len(text)
        self.state[[forms.SIZE, forms.COPIED, forms.AT, forms.SAFE_AT]] = size, stop, stop, stop
        self.state[[forms.SAFE_SIZE, forms.CLASS, forms.LAST]] = size, 0, forms.UNKNOWN_LAST
