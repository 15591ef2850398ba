"""Pre-tokens of a text that is not complete yet: those that no continuation can change.

Model: an expression matches from left to right, and the matcher reports how far it looked for each match.
If it looked no further than the known text, the match is final. In a chain, the first
expression decides how far its parts reach; a stretch that it leaves unmatched is cut by the next expression
as far as it is known to extend.
Law: for every text that begins with `data`, the pre-tokens returned are its first ones. An expression that
    runs through the `regex` package does not report how far it looked, so nothing is certain there.
"""

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.kernels.split import find_uncertain
from tokmill.tokenizer.splitting.splitter import Pretokens, Splitter, scan

Spans = tuple[NDArray[np.int64], NDArray[np.int64]]


def certain_pretokens(splitter: Splitter, data: NDArray[np.uint8]) -> Spans:
    """Return the bounds of the leading pre-tokens that no further text can change."""
    starts, ends = zip(*_certain(splitter, data, 0, 0, len(data)), strict=True)
    return np.concatenate(starts), np.concatenate(ends)


def _certain(splitter: Splitter, data: NDArray[np.uint8], level: int, start: int, end: int) -> list[Spans]:
    """Cut `data[start:end]`, the beginning of a part, by the expressions from `level` on."""
    tables = splitter.tables[level] if level < len(splitter.tables) else None
    if tables is None or start == end:
        return [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    parts = scan(tables, data, np.array([start]), np.array([end]))
    reach = np.zeros(1, np.int64)
    number = find_uncertain(data, parts.starts, parts.ends, tables, reach)
    certain = Pretokens(parts.starts[:number].copy(), parts.ends[:number].copy(), np.array([0, number]))
    certain = splitter.grouped(level, data, certain)
    whole = splitter.cut_from(level + 1, data, certain.starts, certain.ends)
    found = [(whole.starts, whole.ends)]
    if number < len(parts.starts):
        found += _certain(splitter, data, level + 1, int(parts.starts[number]), int(reach[0]))
    return found
