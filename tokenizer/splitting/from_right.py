r"""Runs of characters that are cut into groups from the right, as numbers are written: 1|234|567.

Model: `\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))` matches one to three digits that have a multiple of three behind
them. Every engine with look-ahead reads it so, in time that is quadratic in the length of a run. Expressions
of this form are recognized here: the automaton finds the runs, and a kernel cuts them, in linear time.
Law: the cuts are those of the `regex` package.
"""

import re
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.kernels.split import SplitTables, count_groups, write_groups

_FORM = re.compile(
    r"(?P<one>\\[pP]\{\w+\}|\\d|\[[^\[\]\\^&~|-]-[^\[\]\\^&~|-]\])"
    r"\{1,(?P<size>[1-9]\d?)\}\(\?=\(\?:(?P=one)\{(?P=size)\}\)\*\(\?!(?P=one)\)\)"
)


class Groups(NamedTuple):
    """What an expression of this form cuts.

    Attributes:
        runs: the expression of the runs.
        size: characters per group; the first group of a run may have fewer.
    """

    runs: str
    size: int


def from_right(one: str, size: int) -> str:
    """Return the expression that cuts runs of characters into groups from the right."""
    return f"{one}{{1,{size}}}(?=(?:{one}{{{size}}})*(?!{one}))"


def groups_of(expression: str) -> Groups | None:
    """Return what an expression of this form cuts; None for any other one."""
    found = _FORM.fullmatch(expression)
    return None if found is None else Groups(f"{found['one']}+", int(found["size"]))


def cut_groups(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    tables: SplitTables,
    size: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Cut the runs among parts of a text into groups; return starts, ends, and each part's offsets."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    count_groups(data, starts, ends, tables, size, offsets[1:])
    np.cumsum(offsets, out=offsets)
    cuts = np.empty((2, int(offsets[-1])), np.int64)
    write_groups(data, starts, ends, offsets, size, cuts[0], cuts[1])
    return cuts[0], cuts[1], offsets
