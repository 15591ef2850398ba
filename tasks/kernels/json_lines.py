"""Read the text and the id of JSON lines from a file's bytes, valid UTF-8, into flat buffers.

The kernel accepts a line that is one JSON object with the text under its key: strictly RFC 8259, with any
white space, any escape, and any other members, nested up to 64 deep. At any other line it stops, and its
caller uses a full parser, so that the two need to agree only on accepted lines. Most bytes are processed in
words of eight.
"""

from typing import NamedTuple

import numpy as np

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import Bytes, BytesIn, Int64
from tokmill.tokenizer.jit.intrinsics import load_u64

# Indices into `progress`.
POSITION, NUM_LINES, NUM_DOCUMENTS, NUM_BYTES, NUM_ODD_IDS = range(5)
# Words of eight bytes may be written up to this far beyond the end of the text.
SLACK = 8

_EACH_BYTE = np.uint64(0x0101010101010101)
_HIGH_BITS = np.uint64(0x8080808080808080)
_QUOTES = np.uint64(0x2222222222222222)
_BACKSLASHES = np.uint64(0x5C5C5C5C5C5C5C5C)
_SPACES = np.uint64(0x2020202020202020)
_QUOTE, _COMMA, _COLON, _BACKSLASH, _NEWLINE, _LETTER_U = b'",:\\\nu'
_BRACE, _CLOSING_BRACE, _BRACKET, _CLOSING_BRACKET = b"{}[]"
_ZERO, _NINE, _PLUS, _MINUS, _POINT, _SMALL_E, _LARGE_E = b"09+-.eE"
_TRUE, _FALSE, _NULL = (np.frombuffer(name, np.uint8) for name in (b"true", b"false", b"null"))
_DEEPEST = 64
# Numbers with more digits are left to the caller: a parser may not be able to hold them.
_MOST_DIGITS, _MOST_EXPONENT_DIGITS = 15, 2


def _escapes() -> Bytes:
    """Return, for each byte after a backslash, the byte that the escape stands for; 0 if there is none."""
    table = np.zeros(256, np.uint8)
    table[np.frombuffer(b'"\\/bfnrt', np.uint8)] = np.frombuffer(b'"\\/\b\f\n\r\t', np.uint8)
    return table


_ESCAPES = _escapes()


class Documents(NamedTuple):
    """The output, for up to n documents."""

    # [5]: next byte of the block, and numbers of lines, documents, bytes of text, and ids that are no strings
    progress: Int64
    text: Bytes  # [bytes of the block + SLACK], the joined texts
    ends: Int64  # [n + 1], where each document begins and ends in `text`; the first is 0
    lines: Int64  # [n], the number of each document's line in the block, from 0
    bounds: Int64  # [2 * n], where each document's line begins and ends in the block, its newline included
    ids: Int64  # [2 * n], where the value of each id begins and ends in the block; both 0 if missing or null
    id_text: Bytes  # [bytes of the block + SLACK], the joined ids that are strings
    id_ends: Int64  # [n + 1], where each document's id begins and ends in `id_text`; the first is 0


@kernel
def read_lines(block: BytesIn, column: BytesIn, id_column: BytesIn, documents: Documents) -> bool:
    """Continue from `progress` to the end of the block, or to a line that is left to the caller.

    Args:
        block: whole lines; the last one may lack its newline.
        column: the text's key.
        id_column: the id's key; empty for none.
        documents: written; has room for as many documents as the block can hold.

    Returns:
        Whether the block was read to its end; if not, the line for the caller begins at `progress[POSITION]`.
    """
    progress = documents.progress
    while progress[POSITION] < block.shape[0]:
        start = progress[POSITION]
        position = _after_space(block, start)
        if position < block.shape[0] and block[position] != _NEWLINE:
            position = _read_object(block, position, column, id_column, documents)
            if position < 0:
                return False
            document = progress[NUM_DOCUMENTS]
            documents.lines[document] = progress[NUM_LINES]
            documents.bounds[2 * document] = start
            documents.bounds[2 * document + 1] = min(position + 1, block.shape[0])
            progress[NUM_BYTES] = documents.ends[document + 1]
            progress[NUM_DOCUMENTS] = document + 1
        progress[POSITION] = min(position + 1, block.shape[0])
        progress[NUM_LINES] += 1
    return True


@kernel(inline=True)
def _read_object(
    block: BytesIn, position: int, column: BytesIn, id_column: BytesIn, documents: Documents
) -> int:
    """Read the object that begins a line; return where the line ends, or -1 to leave it to the caller."""
    text, document, out = documents.text, documents.progress[NUM_DOCUMENTS], documents.progress[NUM_BYTES]
    _set_id(documents, document, 0, 0, documents.id_ends[document])
    found, before, is_odd = False, _BRACE, False
    while _at(block, position) == before:
        position, stop = _unescape(block, _after_space(block, position + 1), text, out)
        is_text, is_id = _equal(text, out, stop, column), _equal(text, out, stop, id_column)
        position = start = _after_colon(block, position)
        id_end = documents.id_ends[document]
        if is_text and found:  # of equal keys the last one counts
            return -1
        if is_text or (is_id and _at(block, start) == _QUOTE):
            into, first = (text, out) if is_text else (documents.id_text, id_end)
            position, stop = _unescape(block, start, into, first)
        else:
            position = _value_end(block, start, text, out)
        if position < 0:
            return -1
        if is_text:
            documents.ends[document + 1], out, found = stop, stop, True
        if is_id:
            is_null = _equal(block, start, position, _NULL)
            is_odd = not is_null and (is_text or block[start] != _QUOTE)
            id_end = id_end if is_odd or is_null else stop
            _set_id(documents, document, 0 if is_null else start, 0 if is_null else position, id_end)
        position, before = _after_space(block, position), _COMMA
    if not found or _at(block, position) != _CLOSING_BRACE:
        return -1
    documents.progress[NUM_ODD_IDS] += int(is_odd)
    position = _after_space(block, position + 1)
    return position if position == block.shape[0] or block[position] == _NEWLINE else -1


@kernel(inline=True)
def _set_id(documents: Documents, document: int, start: int, end: int, id_end: int) -> None:
    """Record the place of a document's id in the block, and its end in `id_text`."""
    documents.ids[2 * document] = start
    documents.ids[2 * document + 1] = end
    documents.id_ends[document + 1] = id_end


@kernel(inline=True)
def _value_end(block: BytesIn, position: int, text: Bytes, out: int) -> int:
    """Return the end of a skipped value, or -1 to leave the line to the caller.

    Strings are written to `text[out:]` and ignored. `objects` has a bit for each bracket that is open, the
    innermost lowest: whether it is a brace.
    """
    depth, objects, is_key = 0, np.uint64(0), False
    while True:
        position = _after_space(block, position)
        if _at(block, position) == _QUOTE:
            position, _ = _unescape(block, position, text, out)
            if is_key:
                position, is_key = _after_colon(block, position), False
                continue
        elif is_key:
            return -1
        elif _at(block, position) == _BRACE or _at(block, position) == _BRACKET:
            if depth == _DEEPEST:
                return -1
            is_key = block[position] == _BRACE
            depth, objects = depth + 1, (objects << np.uint64(1)) | np.uint64(is_key)
            position = _after_space(block, position + 1)
            if _at(block, position) != (_CLOSING_BRACE if is_key else _CLOSING_BRACKET):
                continue
        else:
            position = _scalar_end(block, position)
        position, depth, objects = _after_closing(block, position, depth, objects)
        if depth <= 0:
            return position
        is_key = (objects & np.uint64(1)) != np.uint64(0)


@kernel(inline=True)
def _after_closing(
    block: BytesIn, position: int, depth: int, objects: np.uint64
) -> tuple[int, int, np.uint64]:
    """Close brackets after a value until a comma follows or none is open; position -1, depth 0 on failure."""
    while depth > 0:
        position = _after_space(block, position)
        if _at(block, position) == _COMMA:
            return position + 1, depth, objects
        in_object = (objects & np.uint64(1)) != np.uint64(0)
        if _at(block, position) != (_CLOSING_BRACE if in_object else _CLOSING_BRACKET):
            return -1, 0, objects
        position, depth, objects = position + 1, depth - 1, objects >> np.uint64(1)
    return position, depth, objects


@kernel(inline=True)
def _at(block: BytesIn, position: int) -> int:
    """Return the byte at a position; -1 if the position is -1 or the block's end."""
    return np.int64(block[position]) if 0 <= position < block.shape[0] else np.int64(-1)


@kernel(inline=True)
def _equal(text: BytesIn, start: int, stop: int, name: BytesIn) -> bool:
    """Whether `text[start:stop]` equals `name`."""
    if stop - start != name.shape[0]:
        return False
    index = 0
    while index < name.shape[0] and text[start + index] == name[index]:
        index += 1
    return index == name.shape[0]


@kernel(inline=True)
def _after_space(block: BytesIn, position: int) -> int:
    """Skip white space within the line; -1 stays -1."""
    while 0 <= position < block.shape[0] and (
        block[position] == 0x20 or block[position] == 0x09 or block[position] == 0x0D
    ):
        position += 1
    return position


@kernel(inline=True)
def _after_colon(block: BytesIn, position: int) -> int:
    """Return the start of the value after a key, or -1."""
    position = _after_space(block, position)
    return _after_space(block, position + 1) if _at(block, position) == _COLON else -1


@kernel(inline=True)
def _scalar_end(block: BytesIn, position: int) -> int:
    """Return where true, false, null or a number ends; -1 for other values, and numbers of many digits."""
    for name in (_TRUE, _FALSE, _NULL):
        end = position + name.shape[0]
        if position >= 0 and end <= block.shape[0] and _equal(block, position, end, name):
            return end
    position += 1 if _at(block, position) == _MINUS else 0
    position = position + 1 if _at(block, position) == _ZERO else _digits_end(block, position)
    if _at(block, position) == _POINT:
        position = _digits_end(block, position + 1)
    if _at(block, position) == _SMALL_E or _at(block, position) == _LARGE_E:
        signed = _at(block, position + 1) == _PLUS or _at(block, position + 1) == _MINUS
        start = position + (2 if signed else 1)
        position = _digits_end(block, start)
        if position > start + _MOST_EXPONENT_DIGITS:
            return -1
    return position


@kernel(inline=True)
def _digits_end(block: BytesIn, position: int) -> int:
    """Return where digits end; -1 if there are none, or many."""
    end = position
    while _ZERO <= _at(block, end) <= _NINE:
        end += 1
    return end if position < end <= position + _MOST_DIGITS else -1


@kernel(inline=True)
def _unescape(block: BytesIn, position: int, text: Bytes, out: int) -> tuple[int, int]:
    """Write a string's text; return where the string ends (-1 leaves it to the caller) and the text does."""
    if _at(block, position) != _QUOTE:
        return -1, out
    position += 1
    while True:
        position, out = _copy_words(block, position, text, out)
        if position == block.shape[0] or block[position] < 0x20:
            return -1, out
        if block[position] == _QUOTE:
            return position + 1, out
        if block[position] != _BACKSLASH:  # the last few bytes of the block
            text[out] = block[position]
            position, out = position + 1, out + 1
            continue
        position, character = _escaped_character(block, position)
        if position < 0:
            return -1, out
        out = _write_character(text, out, character)


@kernel(inline=True)
def _copy_words(block: BytesIn, position: int, text: Bytes, out: int) -> tuple[int, int]:
    """Copy words and replace one-letter escapes until anything else comes; return both ends.

    A set high bit in `marks` stands for a quote, a backslash or a control character. Only the lowest one is
    certain: the subtractions may borrow, and so change the bytes above it.
    """
    while position + 9 <= block.shape[0]:
        word = load_u64(block, position)
        for index in range(np.uint64(8)):
            text[np.uint64(out) + index] = block[np.uint64(position) + index]
        quote, backslash = word ^ _QUOTES, word ^ _BACKSLASHES
        marks = ((quote - _EACH_BYTE) & ~quote) | ((backslash - _EACH_BYTE) & ~backslash)
        marks = (marks | ((word - _SPACES) & ~word)) & _HIGH_BITS
        if not marks:
            position, out = position + 8, out + 8
            continue
        upto = (marks - np.uint64(1)) & ~marks & _EACH_BYTE  # a bit for each byte up to the first mark
        num_plain = np.int64((upto * _EACH_BYTE) >> np.uint64(56)) - 1
        position, out = position + num_plain, out + num_plain
        meant = _ESCAPES[block[np.uint64(position + 1)]]
        if block[np.uint64(position)] != _BACKSLASH or not meant:
            break
        text[np.uint64(out)] = meant
        position, out = position + 2, out + 1
    return position, out


@kernel(inline=True)
def _escaped_character(block: BytesIn, position: int) -> tuple[int, int]:
    """Read an escape, a surrogate pair as one; return its end, or -1, and its code point."""
    if position + 1 < block.shape[0] and _ESCAPES[block[position + 1]]:
        return position + 2, int(_ESCAPES[block[position + 1]])
    first = _hex_value(block, position)
    position += 6
    if first < 0xD800 or first > 0xDFFF:
        return position if first >= 0 else -1, first
    second = _hex_value(block, position)
    if first > 0xDBFF or second < 0xDC00 or second > 0xDFFF:
        return -1, first
    return position + 6, 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)


@kernel(inline=True)
def _hex_value(block: BytesIn, position: int) -> int:
    r"""Return the number of the four hexadecimal digits after a `\u`, or -1 if there are none."""
    if position + 6 > block.shape[0] or block[position] != _BACKSLASH or block[position + 1] != _LETTER_U:
        return -1
    value = 0
    for index in range(position + 2, position + 6):
        byte = int(block[index])
        digit = byte - 0x30 if byte <= _NINE else (byte | 0x20) - 0x57
        if digit < 0 or digit > 15 or (byte > _NINE and digit < 10):
            return -1
        value = (value << 4) + digit
    return value


@kernel(inline=True)
def _write_character(text: Bytes, out: int, character: int) -> int:
    """Write a character as UTF-8; return where it ends."""
    if character < 0x80:
        text[out] = character
        return out + 1
    num_more = 1 if character < 0x800 else 2 if character < 0x10000 else 3
    text[out] = ((0xF80 >> num_more) & 0xFF) | (character >> (6 * num_more))
    for index in range(1, num_more + 1):
        text[out + index] = 0x80 | ((character >> (6 * (num_more - index))) & 0x3F)
    return out + num_more + 1
