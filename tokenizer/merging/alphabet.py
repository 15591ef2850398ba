"""The text of a training: words as the symbols of their characters, or of their bytes."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.text import BYTE_ORDER
from tokmill.tokenizer.merging.kernels.state import MAX_NARROW, SEPARATOR, WideWords, Words
from tokmill.tokenizer.merging.layout import MAX_CELLS, AnyWords, laid_out
from tokmill.tokenizer.merging.rules import Marks

_MAX_COUNT = 1 << 62
_CONTINUING, _ENDING = np.uint64(1 << 40), np.uint64(1 << 41)
_LENGTH_SHIFT = np.uint64(32)


class Text(NamedTuple):
    """What a training begins with.

    Attributes:
        pieces: the bytes of the first symbols, marks included.
        words: the text as these symbols.
        frequencies: int64, how often each occurs; empty where nothing asks for it.
    """

    pieces: list[bytes]
    words: AnyWords
    frequencies: NDArray[np.int64]


def text_of_bytes(counts: PretokenCounts, *, by_count: bool = True) -> Text:
    """Take every byte for a symbol, in the order of byte-level BPE."""
    pieces = [bytes([byte]) for byte in BYTE_ORDER]
    return Text(pieces, laid_out(counts, by_count=by_count), np.empty(0, np.int64))


def text_of_characters(
    words: PretokenCounts,
    number: int,
    forbidden: Collection[bytes],
    marks: Marks,
    always: Sequence[bytes] = (),
    *,
    by_count: bool = True,
) -> Text:
    """Take the most frequent characters for symbols, `number` at most; ties go by bytes.

    Words that have others are left out. The pieces `always` come first, whether they occur or not.
    """
    if marks.apart:
        words = _with_room(words)
    starts, word = _characters(words, marks.by_bytes)
    if float((words.counts.astype(np.float64) * np.diff(words.offsets)).sum()) > _MAX_COUNT:
        raise TrainingError(
            "train: the counts of characters add up to more than 2^62; divide all counts by 1000"
        )
    distinct, which = np.unique(_keys(words, starts, word, marks), return_inverse=True)
    weights = words.counts[word].astype(np.int64)
    totals = _sums(which, weights, distinct.shape[0])
    spelled = [_piece(int(key), marks) for key in distinct]
    order = sorted(range(len(spelled)), key=lambda i: (-int(totals[i]), spelled[i]))
    known = {*forbidden, *always}
    pieces = [*always, *(spelled[i] for i in order if spelled[i] not in known)][:number]
    symbols = {piece: symbol for symbol, piece in enumerate(pieces)}
    symbol_of = np.array([symbols.get(piece, -1) for piece in spelled], np.int32)
    kept, word_symbols = ~np.isin(word, np.unique(word[symbol_of[which] < 0])), symbol_of[which]
    word_symbols, word, weights = word_symbols[kept], word[kept], weights[kept]
    frequencies = _sums(word_symbols, weights, len(pieces))
    if by_count:
        by_weight = np.argsort(-weights, kind="stable")
        word_symbols, word, weights = word_symbols[by_weight], word[by_weight], weights[by_weight]
    return Text(pieces, _in_cells(word_symbols, word, weights, len(pieces)), frequencies)


def _with_room(words: PretokenCounts) -> PretokenCounts:
    """Return words with one more byte at their ends, in the place of the mark."""
    data = np.insert(words.data, words.offsets[1:], np.uint8(0xFF))
    return PretokenCounts(data, words.offsets + np.arange(len(words) + 1), words.counts)


def _characters(words: PretokenCounts, by_bytes: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where each character begins, at most four bytes long, and the word that it belongs to."""
    data, firsts = words.data, words.offsets[:-1][np.diff(words.offsets) > 0]
    begins = ((data & 0xC0) != 0x80) | by_bytes
    begins[firsts] = True
    for _ in range(3):  # a byte that continues nothing, or more than three, is a character of its own
        since = np.arange(data.shape[0]) - np.maximum.accumulate(
            np.where(begins, np.arange(data.shape[0]), -1)
        )
        begins |= since >= 4
    starts = np.flatnonzero(begins)
    return starts, np.searchsorted(words.offsets, starts, side="right") - 1


def _keys(
    words: PretokenCounts, starts: NDArray[np.int64], word: NDArray[np.int64], marks: Marks
) -> NDArray[np.uint64]:
    """Return a number for each character: its bytes, its length, and whether it continues or ends a word."""
    padded = np.append(words.data, np.zeros(4, np.uint8)).astype(np.uint64)
    lengths = np.append(starts[1:], words.data.shape[0]) - starts
    keys = np.minimum(lengths, 4).astype(np.uint64) << _LENGTH_SHIFT
    for place in range(4):
        keys |= np.where(lengths > place, padded[starts + place], np.uint64(0)) << np.uint64(8 * place)
    if marks.continues:
        keys[starts != words.offsets[word]] |= _CONTINUING
    if marks.ends:
        last = np.append(word[1:] != word[:-1], np.ones(min(1, word.shape[0]), np.bool_))
        keys[last] = _ENDING if marks.apart else keys[last] | _ENDING
    return keys


def _piece(key: int, marks: Marks) -> bytes:
    """Return the piece of a character's number."""
    length = key >> int(_LENGTH_SHIFT) & 0xFF
    text = (key & 0xFFFFFFFF).to_bytes(4, "little")[:length]
    before = marks.continues if key & int(_CONTINUING) else b""
    return before + text + (marks.ends if key & int(_ENDING) else b"")


def _sums(which: NDArray[np.integer], weights: NDArray[np.int64], number: int) -> NDArray[np.int64]:
    """Add weights up, exactly."""
    sums = np.zeros(number, np.int64)
    np.add.at(sums, which, weights)
    return sums


def _in_cells(
    symbols: NDArray[np.int32], word: NDArray[np.int64], weights: NDArray[np.int64], num_symbols: int
) -> AnyWords:
    """Write the symbols of each word into cells."""
    begins = np.append(np.ones(min(1, word.shape[0]), np.bool_), word[1:] != word[:-1])
    at = np.arange(symbols.shape[0]) + np.cumsum(begins)
    num_cells = symbols.shape[0] + np.count_nonzero(begins) + 1
    if num_cells > MAX_CELLS:
        raise TrainingError(
            f"train: {symbols.shape[0]} characters in distinct words are too many; at most {MAX_CELLS} can "
            "be used"
        )
    cells = np.full(num_cells, SEPARATOR, np.int16 if num_symbols <= MAX_NARROW else np.int32)
    cells[at] = symbols
    steps = np.flatnonzero(np.append(np.ones(min(1, word.shape[0]), np.bool_), weights[1:] != weights[:-1]))
    made = cells, np.append(at[steps], num_cells), weights[steps]
    return Words(*made) if num_symbols <= MAX_NARROW else WideWords(*made)
