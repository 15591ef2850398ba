"""One split expression as tables for the scanning kernel."""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.kernels.split import SplitTables
from tokmill.tokenizer.splitting import charsets, syntax, utf8
from tokmill.tokenizer.splitting.fallback import dialect_flags, empty_match
from tokmill.tokenizer.splitting.from_right import groups_of
from tokmill.tokenizer.splitting.matcher import MAX_ENTRIES, START, Matcher, build_matcher
from tokmill.tokenizer.splitting.parsing import parse
from tokmill.tokenizer.splitting.syntax import UnsupportedError
from tokmill.tokenizer.splitting.transducer import (
    CUT_BEFORE,
    CUT_HERE,
    SLOW,
    TAKE_BACK,
    Transducer,
    build_transducer,
)


def build_tables(pattern: str) -> SplitTables:
    """Compile one expression to tables.

    Args:
        pattern: an expression that the `regex` package accepts.

    Raises:
        UnsupportedError: the automaton cannot do it exactly.
        PatternError: the expression can match the empty string.
    """
    flags = dialect_flags(pattern)
    if flags and pattern.startswith("(?i"):
        raise UnsupportedError("full case-folding, which the dialect with class operations turns on")
    try:
        tree = parse(pattern)
        alphabet = charsets.partition(atoms_of(tree), flags)
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
        return charsets.partition(atoms, dialect_flags(expression)).class_of
    except (UnsupportedError, RecursionError):
        return charsets.partition(set(_USUAL_SETS), 0).class_of


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


def _lay_out(matcher: Matcher, machine: Transducer, alphabet: charsets.Alphabet) -> SplitTables:
    """Put matcher, transducer and decoder into flat tables with the same columns.

    Columns: `utf8.INSIDE`, the classes, the end of the text, ill-formed bytes. A state's row is as wide as
    the square of the number of ASCII's columns, so that the same number finds its row of pairs.

    Raises:
        UnsupportedError: the tables would be too large.
    """
    columns = alphabet.num_classes + 3
    column_of = alphabet.class_of + np.uint8(1)
    decoder = utf8.build_decoder(column_of, ill_formed=columns - 1)
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
        layout=np.array([columns, column_of[charsets.SURROGATES.start], width, has_pairs], dtype=np.int64),
        next_node=decoder.next_node,
        column=decoder.column,
        columns=_columns(column_of, ill_formed=columns - 1),
        next_state=_rows_of(width, next_state * width).astype(np.uint16),
        flags=_rows_of(width, flags).astype(np.uint8),
        pair_of=_pair_numbers(rank.ravel(), len(ascii_columns)),
        pair_next=_rows_of(width, pair_next * width).astype(np.uint16),
        pair_flags=_rows_of(width, pair_flags).astype(np.uint8),
        matcher_next=np.pad(rows, ((0, 0), (1, 1)), constant_values=-1).ravel().astype(np.int32),
        matcher_match=np.pad(matcher.match_before, ((0, 0), (1, 1))).ravel().astype(np.uint8),
    )


def _columns(column_of: NDArray[np.uint8], ill_formed: int) -> NDArray[np.uint8]:
    """Return the columns of the characters of up to three bytes, by code point."""
    columns = column_of[: 1 << 16].copy()
    columns[charsets.SURROGATES] = ill_formed
    return columns


def _pair_numbers(rank: NDArray[np.int64], num_ranks: int) -> NDArray[np.uint16]:
    """Number pairs of ASCII characters by their ranks; by both bytes, the first one the lower."""
    numbers = np.zeros((128, 256), np.uint16)
    numbers[:, :128] = rank[:, None] + rank[None, :] * num_ranks
    return numbers.ravel()


def _paired(
    next_state: NDArray[np.int64], flags: NDArray[np.int64], ascii_columns: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Take two ASCII characters in one step.

    Returns:
        `next_state`, and what the two do together, as `kernels.split.write_pair_cuts` reads it; both of shape
        (num_states, num_ascii_columns ** 2). Where either is slow, both are.
    """
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
