"""Check numbers from disk that are used as indices, once, when a file is opened.

Such numbers may be passed to kernels, which trust their arguments: a wrong number would read or write foreign
memory. So every number is checked here, in parts of bounded size. Errors name the file, the number, its place
and the rule.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError

_PART = 1 << 20
_FORMS = 3  # values of `fim`: not rearranged, prefix first, suffix first


def check_ascending(
    file: Path, what: str, values: NDArray[Any], *, first: int, last: int, step: int = 0
) -> None:
    """Reject offsets, named `what`, that do not go from `first` to `last` in steps of at least `step`."""
    ends = (int(values[0]), int(values[-1])) if len(values) else None
    if ends != (first, last):
        found = f"go from {ends[0]} to {ends[1]}" if ends else "are none"
        raise untrue(file, f"{what} {found}, and must go from {first} to {last}")
    for begin in range(0, len(values) - 1, _PART):
        part = np.asarray(values[begin : begin + _PART + 1])
        # not by their difference, which may be beyond the width of the numbers
        wrong = np.flatnonzero((part[1:] < part[:-1]) | (part[1:] - part[:-1] < step))
        for place in wrong[:1].tolist():
            number, after = begin + place + 1, f"{int(part[place + 1])} after {int(part[place])}"
            raise untrue(file, f"{what} number {number} is {after}, and must be at least {step} more")


def check_within(file: Path, what: str, values: NDArray[Any], *, least: int, below: int) -> None:
    """Reject numbers outside of [least, below)."""
    for begin in range(0, len(values), _PART):
        part = np.asarray(values[begin : begin + _PART])
        for place in np.flatnonzero((part < least) | (part >= below))[:1].tolist():
            found = f"{what} number {begin + place} is {int(part[place])}"
            raise untrue(file, f"{found}, and must be in [{least}, {below})")


def check_bounds(
    file: Path, bounds: NDArray[np.int32], offsets: NDArray[np.int64], sequence_length: int
) -> None:
    """Reject boundaries that do not fit in their sequences.

    Args:
        file: the file that holds them.
        bounds: int32 [p + n], for each sequence a 0 and then the ends of its pieces.
        offsets: int64 [n + 1], index of each sequence's first bound; already checked.
        sequence_length: tokens per sequence.
    """
    for begin in range(0, len(offsets) - 1, _PART):
        part = np.asarray(offsets[begin : begin + _PART + 1])
        mine, begins = np.asarray(bounds[part[0] : part[-1]]), part[:-1] - part[0]
        ascends = np.empty(len(mine), dtype=np.bool_)
        ascends[1:] = mine[1:] > mine[:-1]
        ascends[begins] = mine[begins] == 0
        for place in np.flatnonzero(~ascends | (mine > sequence_length))[:1].tolist():
            row = begin + int(np.searchsorted(begins, place, side="right")) - 1
            raise untrue(
                file,
                f"boundary {int(mine[place])} of sequence {row} must be 0 at its beginning, ascend, and be "
                f"at most {sequence_length}",
            )


def check_pieces(
    file: Path, columns: Mapping[str, NDArray[Any]], sequences: range, sequence_length: int, num_sources: int
) -> None:
    """Reject a table of pieces whose rows do not fill these sequences end to end."""
    sequence, start, length = (columns[name].astype(np.int64) for name in ("sequence", "start", "length"))
    check_within(file, "source of piece", columns["source"], least=0, below=num_sources)
    check_within(file, "form of piece", columns["fim"], least=0, below=_FORMS)
    check_within(file, "sequence of piece", sequence, least=sequences.start, below=sequences.stop)
    check_within(file, "length of piece", length, least=1, below=sequence_length + 1)
    same = sequence[1:] == sequence[:-1]
    expected = np.concatenate([[0][: len(start)], np.where(same, start[:-1] + length[:-1], 0)])
    wrong = (start != expected) | (start + length > sequence_length)
    wrong[1:] |= sequence[1:] < sequence[:-1]
    for place in np.flatnonzero(wrong)[:1].tolist():
        raise untrue(
            file,
            f"piece {place} is [{start[place]}, {start[place] + length[place]}) of sequence "
            f"{sequence[place]}, and must begin at {expected[place]}, end by {sequence_length}, and come "
            "after those of earlier sequences",
        )


def untrue(file: Path, found: str) -> StoreError:
    """Return the error for a file whose numbers break a rule."""
    return StoreError(f"{file}: {found}; verify the artifact it belongs to")
