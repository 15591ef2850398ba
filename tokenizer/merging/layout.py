"""The arrays of a training by merges: filled from counts, or empty and of the right size."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import TrainingError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.stopping import slices
from tokmill.tokenizer.core.text import BYTE_ORDER
from tokmill.tokenizer.jit.arrays import zero_pages
from tokmill.tokenizer.merging.kernels.likelihood import Scores, TrainingKernels
from tokmill.tokenizer.merging.kernels.pair_queue import enter_pairs
from tokmill.tokenizer.merging.kernels.state import (
    MAX_NARROW,
    NUM_PAIRS,
    SEPARATOR,
    Pairs,
    Side,
    Tokens,
    WideWords,
    Words,
    lay_out,
)
from tokmill.tokenizer.merging.rules import Marks

Number = TypeVar("Number", bound=np.generic)
AnyWords: TypeAlias = Words | WideWords

MAX_CELLS = (1 << 32) - 1
_WORDS_A_SLICE = 1 << 20


def laid_out(counts: PretokenCounts, *, by_count: bool = True) -> AnyWords:
    """Write pre-tokens into cells; those of one byte have no pairs and are left out."""
    lengths = np.diff(counts.offsets)
    useful = np.flatnonzero((lengths > 1) & (counts.counts > 0))
    order = useful[np.argsort(~counts.counts[useful], kind="stable")] if by_count else useful
    weights = counts.counts[order]
    num_cells = int(lengths[order].sum()) + order.shape[0] + 1
    if num_cells > MAX_CELLS or float((weights.astype(np.float64) * lengths[order]).sum()) >= 2.0**62:
        most = int(np.max(weights))
        raise TrainingError(
            f"train: {order.shape[0]} pre-tokens with {num_cells} bytes and counts up to {most} "
            f"are too many: at most {MAX_CELLS} bytes and 2**62 pairs can be counted; leave out the rarest "
            "pre-tokens, or divide the counts"
        )
    num_steps = np.count_nonzero(weights[1:] != weights[:-1]) + min(1, weights.shape[0])
    words = Words(
        zero_pages(num_cells, np.int16), np.empty(num_steps + 1, np.int64), np.empty(num_steps, np.int64)
    )
    symbol_of = np.argsort(np.array(BYTE_ORDER)).astype(np.int32)
    words.cells[0], progress = SEPARATOR, np.array([0, 1, 0, -1])
    words.step_at[0] = 1
    for _, until in slices(0, order.shape[0], _WORDS_A_SLICE):
        lay_out(counts.data, counts.offsets, counts.counts, order, symbol_of, words, progress, until)
    return words


def moved_together(words: AnyWords, kernels: TrainingKernels, widened: bool) -> AnyWords:
    """Move every symbol into one cell, in new memory of the smaller size; into wide cells if `widened`."""
    num_steps = kernels.compact(words)
    num_cells = int(words.step_at[num_steps])
    steps = words.step_at[: num_steps + 1], words.step_count[:num_steps]
    if widened or isinstance(words, WideWords):
        return WideWords(_in_pages(words.cells[:num_cells], np.int32), *steps)
    return Words(_in_pages(words.cells[:num_cells], np.int16), *steps)


def _in_pages(array: NDArray[Any], kind: type[Number]) -> NDArray[Number]:
    pages = zero_pages(array.shape[0], kind)
    pages[:] = array
    return pages


def first_tokens(pieces: Sequence[bytes], max_tokens: int) -> Tokens:
    """Return symbols of these bytes, with room for others."""
    data, offsets = pack_bytes(list(pieces))
    number = len(pieces)
    tokens = Tokens(
        np.concatenate([data, np.zeros(1 << 12, np.uint8)]),
        np.zeros(max_tokens, np.int64),
        np.ones(max_tokens, np.int32),
        np.ones(max_tokens, np.int32),
        np.zeros(max_tokens, np.uint64),
        np.full(max_tokens, -1, np.int32),
        np.full(max_tokens, -1, np.int32),
    )
    tokens.at[:number], tokens.length[:number] = offsets[:-1], np.diff(offsets)
    tokens.prefix[:number] = [int.from_bytes(piece[:8].ljust(8, b"\0"), "big") for piece in pieces]
    return tokens


def with_more_bytes(tokens: Tokens) -> Tokens:
    """Return the same symbols with twice the room for their bytes."""
    return tokens._replace(data=np.concatenate([tokens.data, np.empty_like(tokens.data)]))


def empty_pairs(max_pairs: int, positions: NDArray[np.uint32]) -> Pairs:
    """Return room for pairs."""
    return Pairs(
        left=np.empty(max_pairs, np.int32),
        right=np.empty(max_pairs, np.int32),
        frequency=np.empty(max_pairs, np.int64),
        first=np.empty(max_pairs, np.int64),
        number=np.empty(max_pairs, np.int64),
        slots=np.full(1 << (2 * max_pairs - 1).bit_length(), -1, np.int32),
        queue=np.empty(max_pairs, np.int32),
        queue_count=np.empty(max_pairs, np.int64),
        positions=positions,
    )


def with_more_pairs(pairs: Pairs, counters: NDArray[np.int64]) -> Pairs:
    """Return the same pairs, which are not queued yet, with twice the room."""
    larger, number = empty_pairs(2 * pairs.left.shape[0], pairs.positions), int(counters[NUM_PAIRS])
    for name in ("left", "right", "frequency", "first", "number"):
        getattr(larger, name)[:number] = getattr(pairs, name)[:number]
    enter_pairs(larger, counters)
    return larger


def empty_side(max_places: int, max_tokens: int) -> Side:
    """Return room for the symbols on one side of a merge's places."""
    return Side(
        np.empty(max_places, np.int32),
        np.zeros((max_tokens + 1, 2), np.int64),
        np.empty(
            max_tokens + 2, np.int32
        ),  # for the separator, and for one that is written before it is counted
    )


def empty_scores(frequencies: NDArray[np.int64], max_pairs: int) -> Scores:
    """Return the scores of no pair yet, of symbols that occur so often."""
    of_left, of_right = np.full((2, frequencies.shape[0]), -1, np.int32)
    next_of_left, next_of_right = np.empty((2, max_pairs), np.int32)
    tree = np.full(2 << max(max_pairs - 1, 1).bit_length(), -1, np.int32)
    return Scores(frequencies, of_left, of_right, next_of_left, next_of_right, np.zeros(max_pairs), tree)


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


def check_total(words: PretokenCounts) -> None:
    """Refuse counts that cannot be added up."""
    if float((words.counts.astype(np.float64) * np.diff(words.offsets)).sum()) > _MAX_COUNT:
        raise TrainingError(
            "train: the counts of characters add up to more than 2^62; divide all counts by 1000"
        )


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
    check_total(words)
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
    return Text(pieces, in_cells(word_symbols, word, weights, len(pieces)), frequencies)


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


def in_cells(
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
