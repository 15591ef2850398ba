"""One split expression as tables for the scanning kernel.

Text is decoded by a table with one step per byte: a node is the state after some bytes of a character, and a
byte leads to a node and yields a column: `INSIDE` within the character, its class's column on its last byte,
or that of ill-formed bytes. Source: the Unicode Standard, table 3-7 (well-formed UTF-8).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.kernels.split import SplitTables
from tokmill.tokenizer.splitting import syntax
from tokmill.tokenizer.splitting.fallback import dialect_flags, empty_match
from tokmill.tokenizer.splitting.matcher import MAX_ENTRIES, START, Matcher, build_matcher
from tokmill.tokenizer.splitting.parsing import parse
from tokmill.tokenizer.splitting.patterns import groups_of
from tokmill.tokenizer.splitting.syntax import SURROGATES, UnsupportedError
from tokmill.tokenizer.splitting.transducer import (
    CUT_BEFORE,
    CUT_HERE,
    SLOW,
    TAKE_BACK,
    Transducer,
    build_transducer,
)

INSIDE = 0
_ROW = 64  # characters that share all but their last byte; the same again for the byte before


@dataclass(frozen=True, slots=True)
class Decoder:
    """The table, by 256 * node + byte.

    Attributes:
        next_node: uint32, shape (num_nodes * 256,), the next node times 256.
        column: uint8, same shape.
    """

    next_node: NDArray[np.uint32]
    column: NDArray[np.uint8]


def build_decoder(column_of: NDArray[np.uint8], ill_formed: int) -> Decoder:
    """Build the decoder."""
    columns = _columns(column_of, ill_formed)
    # the first row stands for whatever is no character
    tails, tail_of = _distinct(np.vstack([np.full(_ROW, ill_formed, np.uint8), columns.reshape(-1, _ROW)]))
    blocks = tail_of[1:].reshape(-1, _ROW)
    short = blocks[0].copy()  # after E0: what fits into two bytes must not take three
    short[: 0x800 // _ROW] = tail_of[0]
    middles, middle_of = _distinct(np.vstack([np.full(_ROW, tail_of[0]), short, blocks]))
    tops = np.full(5 * _ROW, middle_of[0])  # what fits into three bytes must not take four
    tops[16 : 16 + len(blocks) - 16] = middle_of[2 + 16 :]

    first_middle = 1 + len(tails)
    first_top = first_middle + len(middles)
    column = np.full((first_top + 5, 256), ill_formed, dtype=np.uint8)
    node = np.zeros(column.shape, dtype=np.uint32)
    column[0, :128], column[0, 128:] = columns[:128], column_of[SURROGATES.start]
    column[1:first_middle, 0x80:0xC0] = tails
    column[first_middle:, 0x80:0xC0] = INSIDE
    node[first_middle:first_top, 0x80:0xC0] = 1 + middles
    node[first_top:, 0x80:0xC0] = first_middle + tops.reshape(5, _ROW)
    column[0, 0xC2:0xF5] = INSIDE
    node[0, 0xC2:0xE0] = 1 + tail_of[1 + 2 : 1 + 32]
    node[0, 0xE0:0xF0] = first_middle + np.append(middle_of[1], middle_of[2 + 1 : 2 + 16])
    node[0, 0xF0:0xF5] = first_top + np.arange(5)
    return Decoder((node * 256).ravel(), column.ravel())


def _distinct(table: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find a table's distinct rows, in the order in which they come first, and which of them each row is."""
    firsts = np.flatnonzero(np.append(True, (table[1:] != table[:-1]).any(axis=1)))  # of rows that are alike
    numbers: dict[bytes, int] = {}
    which = [numbers.setdefault(row.tobytes(), len(numbers)) for row in table[firsts]]
    rows = np.frombuffer(b"".join(numbers), dtype=table.dtype).reshape(len(numbers), -1)
    return rows, np.repeat(which, np.diff(firsts, append=len(table)))


def build_tables(pattern: str) -> SplitTables:
    """Compile one expression to tables."""
    flags = dialect_flags(pattern)
    if flags and pattern.startswith("(?i"):
        raise UnsupportedError("full case-folding, which the dialect with class operations turns on")
    try:
        tree = parse(pattern)
        alphabet = syntax.partition(atoms_of(tree), flags)
        matcher = build_matcher(tree, alphabet)
    except RecursionError:
        raise UnsupportedError("repetitions so deep in each other") from None
    if matcher.match_before[START].any():
        raise empty_match(pattern)
    tables = _lay_out(matcher, build_transducer(matcher), alphabet)
    for table in tables:
        table.setflags(write=False)
    return tables


def tables_digest(chain: Sequence[str]) -> str:
    """Return a digest of 16 hexadecimal digits of the classes of characters that expressions distinguish.

    It is equal for equal classes, under any version of Unicode or of `regex`.
    """
    digest = hashlib.blake2b(digest_size=8)
    for expression in chain:
        digest.update(_classes(expression).tobytes())
    return digest.hexdigest()


def _classes(expression: str) -> NDArray[np.uint8]:
    """Return the class of each code point; by the usual sets if there is no automaton."""
    groups = groups_of(expression)
    expression = expression if groups is None else groups.runs
    try:
        atoms = atoms_of(parse(expression))
        return syntax.partition(atoms, dialect_flags(expression)).class_of
    except (UnsupportedError, RecursionError):
        return syntax.partition(set(_USUAL_SETS), 0).class_of


_USUAL_SETS = (r"\p{L}", r"\p{Lu}", r"\p{Ll}", r"\p{M}", r"\p{N}", r"\p{P}", r"\p{S}", r"\s")


def atoms_of(tree: syntax.Node) -> set[str]:
    """Collect the atoms of a tree."""
    match tree:
        case syntax.OneOf(atoms):
            return set(atoms)
        case syntax.Sequence(inner) | syntax.Choice(inner):
            return set[str]().union(*map(atoms_of, inner))
        case syntax.Star(item):
            return atoms_of(item)
        case syntax.Look(at):
            return atoms_of(at)
    return {"\n"} if tree == syntax.End(or_newline=True) else set()


def _lay_out(matcher: Matcher, machine: Transducer, alphabet: syntax.Alphabet) -> SplitTables:
    """Put matcher, transducer and decoder into flat tables with the same columns.

    Columns: `INSIDE`, the classes, the end of the text, ill-formed bytes. A state's row is as wide as
    the square of the number of ASCII's columns, so that the same number finds its row of pairs.
    """
    columns = alphabet.num_classes + 3
    column_of = alphabet.class_of + np.uint8(1)
    decoder = build_decoder(column_of, ill_formed=columns - 1)
    ascii_columns, rank = np.unique(column_of[:128], return_inverse=True)
    num_states = len(machine.next_state)
    width, has_pairs = max(columns, len(ascii_columns) ** 2), True
    if num_states * width > MAX_ENTRIES:
        width, has_pairs = columns, False
    if max(num_states * width, len(matcher.next_state) * columns) > MAX_ENTRIES:
        raise UnsupportedError(f"tables of more than {MAX_ENTRIES} entries")
    stay = np.arange(num_states)[:, None]
    next_state = np.hstack([stay, machine.next_state, stay])
    flags = np.hstack([np.zeros_like(stay), machine.flags, np.full_like(stay, SLOW)])
    pair_next, pair_flags = _paired(next_state, flags, ascii_columns if has_pairs else ascii_columns[:0])
    rows = np.where(matcher.next_state >= 0, matcher.next_state * columns, matcher.next_state)
    return SplitTables(
        layout=np.array([columns, column_of[syntax.SURROGATES.start], width, has_pairs], dtype=np.int64),
        next_node=decoder.next_node,
        column=decoder.column,
        columns=_columns(column_of[: 1 << 16], ill_formed=columns - 1),
        next_state=_rows_of(width, next_state * width).astype(np.uint16),
        flags=_rows_of(width, flags).astype(np.uint8),
        pair_of=_pair_numbers(rank.ravel(), len(ascii_columns)),
        pair_next=_rows_of(width, pair_next * width).astype(np.uint16),
        pair_flags=_rows_of(width, pair_flags).astype(np.uint8),
        matcher_next=np.pad(rows, ((0, 0), (1, 1)), constant_values=-1).ravel().astype(np.int32),
        matcher_match=np.pad(matcher.match_before, ((0, 0), (1, 1))).ravel().astype(np.uint8),
    )


def _columns(column_of: NDArray[np.uint8], ill_formed: int) -> NDArray[np.uint8]:
    """Return the columns of characters, by code point; surrogates are none."""
    columns = column_of.copy()
    columns[SURROGATES] = ill_formed
    return columns


def _pair_numbers(rank: NDArray[np.int64], num_ranks: int) -> NDArray[np.uint16]:
    """Number pairs of ASCII characters by their ranks; by both bytes, the first one the lower."""
    numbers = np.zeros((128, 256), np.uint16)
    numbers[:, :128] = rank[:, None] + rank[None, :] * num_ranks
    return numbers.ravel()


def _paired(
    next_state: NDArray[np.int64], flags: NDArray[np.int64], ascii_columns: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Take two ASCII characters in one step: the state, and what both do together; slow if either is."""
    middle = next_state[:, ascii_columns]
    first = flags[:, ascii_columns][:, :, None]
    after = next_state[middle][:, :, ascii_columns]
    second = flags[middle][:, :, ascii_columns]
    shape = len(flags), len(ascii_columns) ** 2
    return after.reshape(shape), _together(first, second).reshape(shape)


def _together(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Combine the flags of two characters in one; a cut that is taken back at once is never made."""
    before, here = (first & CUT_BEFORE) // CUT_BEFORE, first & CUT_HERE
    back = second // TAKE_BACK
    kept_here = here * (back == 0)
    kept_before = before * (back <= here)
    taken = first // TAKE_BACK + np.maximum(back - before - here, 0)
    within = kept_here | (second & CUT_BEFORE) // CUT_BEFORE
    together = kept_before | within << 1 | (second & CUT_HERE) << 3 | taken << 4
    return np.where((first | second) & SLOW, SLOW, together)


def _rows_of(width: int, table: NDArray[np.int64]) -> NDArray[np.int64]:
    """Flatten a table with rows padded to a width."""
    return np.pad(table, ((0, 0), (0, width - table.shape[1]))).ravel()
