r"""Measure how a tokenizer encodes documents: the numbers that add up over documents, and their ids.

A word lies between two boundaries of Unicode (UAX #29) in the normalized text, and begins with a letter,
digit or connector; in scripts without spaces every character is one. It is whole if one token, not the
unknown one, holds all of it. A token is a fallback if it holds less than a character. A document is changed
if its ids do not decode to it, and unstable if what they decode to has other ids. One expression over
Word_Break, run by our splitter, finds the words; the one difference: katakana that a connector joins to
letters is a word of its own.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.text.documents import DocumentBatch
from tokmill.tasks.kernels.text_size import text_size
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.buffers import LocatedBatch
from tokmill.tokenizer.core.text import is_utf8
from tokmill.tokenizer.splitting.splitter import Splitter
from tokmill.tokenizer.splitting.syntax import NUM_CODE_POINTS, code_points

_EXAMPLE_CHARS = 60
_EXTEND = "[\\p{WB=Extend}\\p{WB=Format}\u200d]*"
_HEBREW = rf"\p{{WB=Hebrew_Letter}}{_EXTEND}"
_QUOTED = rf"(?:\"{_EXTEND}{_HEBREW})*(?:'{_EXTEND})?"
_LETTERS = rf"(?:\p{{WB=ALetter}}{_EXTEND}|{_HEBREW}{_QUOTED})+"
_DIGITS = rf"(?:\p{{WB=Numeric}}{_EXTEND})+"
_CONNECTORS = rf"(?:\p{{WB=ExtendNumLet}}{_EXTEND})+"
_KATAKANA = rf"(?:\p{{WB=Katakana}}{_EXTEND})+"
_IN_WORDS = rf"[\p{{WB=MidLetter}}\p{{WB=MidNumLet}}']{_EXTEND}"
_IN_NUMBERS = rf"[\p{{WB=MidNum}}\p{{WB=MidNumLet}}']{_EXTEND}"
WORDS = (
    rf"(?:{_LETTERS}(?:{_IN_WORDS}{_LETTERS})*|{_DIGITS}(?:{_IN_NUMBERS}{_DIGITS})*|{_CONNECTORS})+"
    rf"|{_KATAKANA}|(?s:.){_EXTEND}"
)
"""Cuts text at all word boundaries; what is between two of them need not be a word.

Quotes and U+200D stand for classes (Single_Quote, Double_Quote, ZWJ) that have one character each.
"""
_BEGINNINGS = (r"\p{L}", r"\p{N}", r"\p{WB=ExtendNumLet}")
_UNTIL = np.array([0x80, 0xE0, 0xF0], np.uint8)  # lead bytes of characters of two, three and four bytes
_KEPT = np.array([0x7F, 0x1F, 0x0F, 0x07], np.uint32)


class Amounts(NamedTuple):
    """Numbers that add up.

    Attributes:
        num_bytes, num_chars: of the text as it was read.
        num_words, num_whole_words: words, and those within one token; the unknown one keeps none.
        num_changed, num_unstable: documents; see the module.
        bytes_bytes, bytes_tokens, tokens_tokens: products of the bytes and tokens of each document.
    """

    num_documents: int = 0
    num_bytes: int = 0
    num_chars: int = 0
    num_words: int = 0
    num_whole_words: int = 0
    num_tokens: int = 0
    num_changed: int = 0
    num_unstable: int = 0
    bytes_bytes: int = 0
    bytes_tokens: int = 0
    tokens_tokens: int = 0

    def plus(self, other: "Amounts") -> "Amounts":
        """Return the sum of both."""
        return Amounts(*(mine + its for mine, its in zip(self, other, strict=True)))

    @property
    def bytes_per_token_error(self) -> float | None:
        """Half the interval of 95 % of the bytes per token, by how documents differ; None of one document."""
        if self.num_documents < 2 or not self.num_tokens:
            return None
        value = self.num_bytes / self.num_tokens
        squares = self.bytes_bytes - 2 * value * self.bytes_tokens + value**2 * self.tokens_tokens
        share = self.num_documents / (self.num_documents - 1)
        return round(1.96 * math.sqrt(max(squares, 0.0) * share) / self.num_tokens, 6)


@dataclass
class Measured:
    """What was measured of some documents.

    Attributes:
        amounts: the sums.
        halves: uint64 [2, vocab_size], how often each id occurs in every second document, and in the others.
        ids: uint32, of all documents; those of document k are ids[offsets[k] : offsets[k + 1]].
        offsets: int64 [num_documents + 1].
        example: of a document that is changed, what it is and becomes at the first difference; or empty.
        modelled_bytes: of the text that trigram models predict; 0 if there are none.
        modelled_bits: what they need for it.
    """

    amounts: Amounts
    halves: NDArray[np.uint64]
    ids: NDArray[np.uint32] = field(default_factory=lambda: np.zeros(0, np.uint32))
    offsets: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, np.int64))
    example: str = ""
    modelled_bytes: int = 0
    modelled_bits: float = 0.0

    @classmethod
    def none(cls, vocab_size: int) -> Self:
        """Return what is measured of no documents."""
        return cls(Amounts(), np.zeros((2, vocab_size), np.uint64))

    @property
    def token_counts(self) -> NDArray[np.uint64]:
        """How often each id occurs: uint64 [vocab_size]."""
        counts: NDArray[np.uint64] = self.halves.sum(axis=0)
        return counts

    def add(self, other: "Measured") -> None:
        """Add what was measured of other documents."""
        self.halves += np.roll(other.halves, self.amounts.num_documents, axis=0)
        self.amounts = self.amounts.plus(other.amounts)
        self.ids = np.concatenate([self.ids, other.ids])
        self.offsets = np.append(self.offsets, self.offsets[-1] + other.offsets[1:])
        self.example = self.example or other.example
        self.modelled_bytes += other.modelled_bytes
        self.modelled_bits += other.modelled_bits

    def documents(self, step: int) -> list[NDArray[np.uint32]]:
        """Return the ids of every document whose number is a multiple of a step."""
        bounds = zip(self.offsets[:-1:step].tolist(), self.offsets[1::step].tolist(), strict=True)
        return [self.ids[start:end] for start, end in bounds]


def measure(tok: Tokenizer, batches: Iterable[DocumentBatch], max_bytes: int) -> Measured:
    """Measure the first documents of some batches, until `max_bytes` of text are reached.

    The result does not depend on how documents are divided into batches.
    """
    measured = Measured.none(tok.vocab_size)
    for data, offsets in _limited(batches, max_bytes):
        measured.add(measure_texts(tok, data, offsets))
    return measured


def measure_texts(tok: Tokenizer, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Measured:
    """Measure documents that lie in one buffer, as in `Tokenizer.encode_buffers`."""
    found = tok.locate_buffers(data, offsets, as_text=True)
    size = text_size(data, offsets)
    changed, unstable, example = _round_trips(tok, data, offsets, found)
    words = words_of(found.data, found.bounds)
    num_bytes, num_tokens = np.diff(offsets), np.diff(found.offsets)
    half = np.repeat(np.arange(size.num_documents) % 2 * tok.vocab_size, num_tokens)
    return Measured(
        Amounts(
            *(size.num_documents, size.num_bytes, size.num_chars, len(words[0])),
            *(_num_whole(found, *words, unknown_ids(tok)), len(found.ids), changed, unstable),
            *(int(num_bytes @ num_bytes), int(num_bytes @ num_tokens), int(num_tokens @ num_tokens)),
        ),
        np.bincount(found.ids + half, minlength=2 * tok.vocab_size).astype(np.uint64).reshape(2, -1),
        *(found.ids.astype(np.uint32), found.offsets),
        example,
    )


def unknown_ids(tok: Tokenizer) -> list[int]:
    """Return the ids that stand for text that is lost."""
    name = tok.definition.model.unknown_token
    return [] if name is None else [tok.definition.vocabulary.special_tokens[name]]


def fallback_ids(tok: Tokenizer) -> NDArray[np.bool_]:
    """Return which ids hold less than a character: bool [vocab_size]."""
    vocabulary = tok.definition.vocabulary
    found = np.zeros(tok.vocab_size, np.bool_)
    found[list(vocabulary.byte_ids)] = True
    found[[token for token, text in vocabulary.ordinary() if not (text.isascii() or is_utf8(text))]] = True
    return found


def _limited(
    batches: Iterable[DocumentBatch], max_bytes: int
) -> Iterator[tuple[NDArray[np.uint8], NDArray[np.int64]]]:
    """Yield documents until their bytes reach the limit; the one that reaches it is the last."""
    left = max_bytes
    for batch in batches:
        number = min(len(batch), int(np.searchsorted(batch.offsets, left)))
        end = int(batch.offsets[number])
        yield batch.data[:end], batch.offsets[: number + 1]
        left -= end
        if left <= 0:
            return


def _num_whole(
    found: LocatedBatch, starts: NDArray[np.int64], ends: NDArray[np.int64], unknown: list[int]
) -> int:
    """Return how many words lie in one token that is not unknown."""
    if not len(found.ids) or not len(starts):
        return 0
    ended = np.cumsum(np.bincount(found.ends, minlength=len(found.data)))
    first = np.minimum(ended[starts], len(found.ids) - 1)  # the first token that ends after the beginning
    whole = (found.starts[first] <= starts) & (found.ends[first] >= ends)
    return int((whole & ~np.isin(found.ids[first], unknown)).sum())


def _round_trips(
    tok: Tokenizer, data: NDArray[np.uint8], offsets: NDArray[np.int64], found: LocatedBatch
) -> tuple[int, int, str]:
    """Return how many documents change, how many of these are unstable, and an example of a change."""
    plain = tok.definition.decoder.name == "fuse"
    if plain and tok.decode_bytes(found.ids) == data.tobytes():
        return 0, 0, ""
    changed, unstable, example = 0, 0, ""
    for document in range(len(offsets) - 1):
        ids = found.ids[found.offsets[document] : found.offsets[document + 1]]
        was = data[offsets[document] : offsets[document + 1]].tobytes()
        becomes = tok.decode_bytes(ids)
        if becomes == was:
            continue
        changed += 1
        again = tok.encode(becomes.decode("utf-8", "replace"), as_text=True)
        unstable += again != ids.tolist()
        example = example or _difference(was.decode(), becomes.decode("utf-8", "replace"))
    return changed, unstable, example


def _difference(was: str, becomes: str) -> str:
    """Return both texts around the first difference."""
    pairs = zip(was, becomes, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(was), len(becomes)))
    start = max(0, at - _EXAMPLE_CHARS // 3)
    before, after = (text[start : start + _EXAMPLE_CHARS] for text in (was, becomes))
    return f"{before!r} becomes {after!r}"


@cache
def _splitter() -> Splitter:
    return Splitter(WORDS)


@cache
def _begins_word() -> NDArray[np.bool_]:
    """Whether a word can begin with a character: bool [0x110000]."""
    begins = np.zeros(NUM_CODE_POINTS, np.bool_)
    for first, end in np.concatenate([code_points(atom, 0) for atom in _BEGINNINGS]).tolist():
        begins[first:end] = True
    return begins


def words_of(
    data: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each word begins and ends.

    Args:
        data: uint8 [num_bytes], UTF-8.
        offsets: int64 [num_documents + 1]; words do not cross documents.

    Returns:
        int64 [num_words] each, in bytes.
    """
    parts = _splitter().split(data, offsets)
    begins = _begins_word()
    leads = data[parts.starts]
    is_word = begins[:256][leads]
    wide = np.flatnonzero(leads >= 0x80)
    is_word[wide] = begins[first_characters(data, parts.starts[wide])]
    return parts.starts[is_word], parts.ends[is_word]


def first_characters(data: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the code points that begin at some places of valid UTF-8: int64 [n]."""
    padded = np.append(data, np.zeros(3, np.uint8))
    lead = padded[starts]
    following = np.searchsorted(_UNTIL, lead, side="right")
    following -= (lead >= 0x80) & (lead < 0xC0) & (following > 0)
    points = lead & _KEPT[following]
    for place in range(1, 4):
        rest = padded[np.minimum(starts + place, len(padded) - 1)] & np.uint32(0x3F)
        points = np.where(following >= place, points << np.uint32(6) | rest, points)
    return np.minimum(points.astype(np.int64), 0x10FFFF)
