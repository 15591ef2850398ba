"""Measures of documents: their noise, on the bytes that their tokens decode to, and their surprisal.

    symbols           fraction of characters other than letters, marks and white space
    repetition        fraction of token trigrams that occurred before in the document
    compression       estimated compressed size over original size; low for repetitive text, high for
                      random text
    decoding_errors   fraction of characters that do not belong in text: control characters, private and
                      unassigned ones, U+FFFD, and invalid bytes

The estimate is that of a simple Lempel-Ziv coder: matches of at least four bytes, found greedily where their
first four bytes last occurred, cost 24 bits each; the other bytes cost their order-0 entropy. No compression
library is used, because results differ between versions. The probability of a token w after u v is
interpolated:

    P(w | u v) = p3(u v w) + r3(u v) × P(w | v),     P(w | v) = p2(v w) + r2(v) × P(w)

where an unseen n-gram has p = 0, and an unseen context has r = 1.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.kernels.drawing import logarithm
from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int64, Int64In, UInt32, UInt64

PLAIN, SYMBOL, BROKEN = 0, 1, 2
PLACES = 1 << 15
_MATCH_BITS = 24.0
_LN2 = 0.6931471805599453
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


class Documents(NamedTuple):
    """Documents as bytes and as tokens, without their end tokens."""

    data: Bytes
    bounds: Int64  # [d + 1], in bytes
    tokens: Int64
    token_bounds: Int64  # [d + 1], in tokens


class Room(NamedTuple):
    """Buffers of the kernel; stamps mark which entries belong to the current document."""

    places: Int64  # [PLACES], where four bytes last occurred, by their hash
    place_stamps: Int64  # [PLACES]
    trigrams: UInt64  # [a power of two], trigrams that occurred, by their hash
    trigram_stamps: Int64  # as long
    histogram: Int64  # [256]


class Noise(NamedTuple):
    """The measures, float32 [d] each, written."""

    symbols: NDArray[np.float32]
    repetition: NDArray[np.float32]
    compression: NDArray[np.float32]
    decoding_errors: NDArray[np.float32]


@kernel
def measure_noise(documents: Documents, classes: BytesIn, stamp: int, room: Room, noise: Noise) -> None:
    """Measure documents; one without text has compression 1, and 0 for the others.

    `classes` has PLAIN, SYMBOL or BROKEN for each code point. Document k uses the stamp `stamp + k`; all must
    be larger than those used with this room before.
    """
    for k in range(len(documents.bounds) - 1):
        start, end = documents.bounds[k], documents.bounds[k + 1]
        characters = symbols = broken = 0
        at = start
        while at < end:
            code, size = _character(documents.data, at, end)
            at += size
            characters += 1
            if code < 0 or classes[code] == BROKEN:
                broken += 1
            elif classes[code] == SYMBOL:
                symbols += 1
        noise.symbols[k] = symbols / max(1, characters)
        noise.decoding_errors[k] = broken / max(1, characters)
        noise.repetition[k] = _repetition(documents, k, stamp + k, room)
        noise.compression[k] = _compression(documents.data, start, end, stamp + k, room)


@kernel(inline=True)
def _character(data: BytesIn, at: int, end: int) -> tuple[int, int]:
    """The code point at a place and its size in bytes; -1 and 1 if the bytes are not UTF-8."""
    first = np.int64(data[at])
    if first < 0x80:
        return first, 1
    if first < 0xC2 or first > 0xF4:
        return -1, 1
    size = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    if at + size > end:
        return -1, 1
    code = first & (0x7F >> size)
    for k in range(1, size):
        byte = np.int64(data[at + k])
        if byte & 0xC0 != 0x80:
            return -1, 1
        code = code << 6 | (byte & 0x3F)
    least = 0x80 if size == 2 else 0x800 if size == 3 else 0x10000
    if code < least or code > 0x10FFFF or 0xD800 <= code < 0xE000:
        return -1, 1
    return code, size


@kernel(inline=True)
def _repetition(documents: Documents, k: int, stamp: int, room: Room) -> float:
    """The fraction of a document's trigrams that occurred before, in its first 2 million tokens."""
    start = documents.token_bounds[k]
    mask = len(room.trigrams) - 1
    number = min(documents.token_bounds[k + 1] - start - 2, (mask + 1) // 2)
    again = 0
    for at in range(start, start + number):
        trigram = np.uint64(documents.tokens[at]) * _MULTIPLIER + np.uint64(documents.tokens[at + 1])
        trigram = trigram * _MULTIPLIER + np.uint64(documents.tokens[at + 2])
        trigram = (trigram ^ (trigram >> np.uint64(29))) * _MULTIPLIER
        place = np.int64(trigram >> np.uint64(32)) & mask
        while room.trigram_stamps[place] == stamp and room.trigrams[place] != trigram:
            place = (place + 1) & mask
        if room.trigram_stamps[place] == stamp:
            again += 1
        else:
            room.trigram_stamps[place] = stamp
            room.trigrams[place] = trigram
    return again / max(1, number)


@kernel(inline=True)
def _compression(data: BytesIn, start: int, end: int, stamp: int, room: Room) -> float:
    """The estimated compressed size of a document, as a fraction of its size."""
    if start == end:
        return 1.0
    for byte in range(256):
        room.histogram[byte] = 0
    literals = matches = 0
    at = start
    while at < end:
        length = 0
        if at + 4 <= end:
            word = np.uint64(data[at]) | np.uint64(data[at + 1]) << np.uint64(8)
            word |= np.uint64(data[at + 2]) << np.uint64(16) | np.uint64(data[at + 3]) << np.uint64(24)
            slot = np.int64((word * _MULTIPLIER) >> np.uint64(49))
            if room.place_stamps[slot] == stamp:
                length = _common(data, room.places[slot], at, end)
            room.places[slot] = at
            room.place_stamps[slot] = stamp
        if length >= 4:
            matches += 1
            at += length
        else:
            room.histogram[data[at]] += 1
            literals += 1
            at += 1
    nats = literals * logarithm(np.float64(max(1, literals)))
    for byte in range(256):
        count = room.histogram[byte]
        if count > 1:
            nats -= count * logarithm(np.float64(count))
    return (matches * _MATCH_BITS + nats / _LN2) / (8.0 * (end - start))


@kernel(inline=True)
def _common(data: BytesIn, before: int, at: int, end: int) -> int:
    """The length of the longest common prefix of the bytes from `before` and from `at`."""
    length = 0
    while at + length < end and data[before + length] == data[at + length]:
        length += 1
    return length


def new_room(longest: int) -> Room:
    """Buffers for documents of up to `longest` tokens; tokens beyond 2 million are ignored."""
    size = 1 << min(22, max(10, (2 * longest).bit_length()))
    return Room(
        places=np.zeros(PLACES, dtype=np.int64),
        place_stamps=np.full(PLACES, -1, dtype=np.int64),
        trigrams=np.zeros(size, dtype=np.uint64),
        trigram_stamps=np.full(size, -1, dtype=np.int64),
        histogram=np.zeros(256, dtype=np.int64),
    )


def new_noise(number: int) -> Noise:
    """Buffers for the measures of `number` documents."""
    return Noise(*(np.empty(number, dtype=np.float32) for _ in Noise._fields))


Float32: TypeAlias = NDArray[np.float32]
_SMALL = 1e-200


class TrigramModel(NamedTuple):
    """A model over ids below n; n itself is the start mark before a document."""

    unigrams: Float32  # [n + 1], P(w)
    rests: Float32  # [n + 1], r2 of each context v
    starts: Int64  # [n + 2], where the bigrams that begin with each v begin
    second: UInt32  # [b], the second id of each bigram, ascending for each first one
    bigrams: Float32  # [b], p2
    bigram_rests: Float32  # [b], r3 of the bigram as a context; 1 if no trigram begins with it
    bigram_starts: Int64  # [b + 1], where the trigrams that begin with each bigram begin
    third: UInt32  # [t], the third id of each trigram, ascending for each first two
    trigrams: Float32  # [t], p3


@kernel
def surprisals(
    tokens: Int64In, starts: Int64In, lengths: Int64In, chosen: Int64In, model: TrigramModel, out: Float32
) -> None:
    """Write the mean surprisal, in nats per token, of the `chosen` documents to `out`; NaN without tokens."""
    before = len(model.unigrams) - 1
    for document in chosen:
        start, length = starts[document], lengths[document]
        last = before
        context = _search(model.second, model.starts[before], model.starts[before + 1], before)
        total = 0.0
        product = 1.0
        for at in range(start, start + length):
            token = tokens[at]
            chance = np.float64(model.unigrams[token]) * model.rests[last]
            bigram = _search(model.second, model.starts[last], model.starts[last + 1], token)
            if bigram >= 0:
                chance += model.bigrams[bigram]
            if context >= 0:
                first, end = model.bigram_starts[context], model.bigram_starts[context + 1]
                chance *= model.bigram_rests[context]
                trigram = _search(model.third, first, end, token)
                if trigram >= 0:
                    chance += model.trigrams[trigram]
            product *= chance
            if product < _SMALL:
                total -= logarithm(product)
                product = 1.0
            last = token
            context = bigram
        out[document] = (total - logarithm(product)) / length if length else np.nan


@kernel(inline=True)
def _search(values: UInt32, low: int, high: int, value: int) -> int:
    """The index of a value in the ascending values[low:high]; -1 if it is not there."""
    end = high
    while low < high:
        middle = (low + high) // 2
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return -1 if low == end or values[low] != value else low
