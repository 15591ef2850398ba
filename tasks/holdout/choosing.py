"""Choose limits: for each source, the draw below which its documents are held out.

A share is a limit by itself. A number of documents is the limit above the smallest draws that make up so
many; copies of a document have the same draw, so there may be a few more. A text that one source holds out
and another, with a smaller limit, would keep is held out of both.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.document_hashes import read_hashes
from tokmill.tasks.formats.text.selection import draws_of

_ALL = 1 << 64
_NO_DRAWS = np.empty(0, dtype=np.uint64)


@dataclass(frozen=True)
class Wanted:
    """How much of a source is held out: a share of its documents, or a number of them."""

    share: float
    num_documents: int | None


@dataclass(frozen=True)
class Limits:
    """By source, the draw below which documents are held out, and further draws that are."""

    below: Mapping[str, int]
    also: Mapping[str, NDArray[np.uint64]]


def choose(wanted: Mapping[str, Wanted], hashed: Mapping[str, Sequence[Path]], seed: int) -> Limits:
    """Return the limits of every source.

    Args:
        wanted: by source.
        hashed: by source, the folders of its shards' hashes.
        seed: seed of the draws.
    """
    below = {source: _limit(one, _draws(hashed[source], seed)) for source, one in wanted.items()}
    return Limits(below, _shared(below, hashed, seed))


def _limit(wanted: Wanted, draws: Iterator[NDArray[np.uint64]]) -> int:
    if wanted.num_documents is None:
        return int(Fraction(repr(wanted.share)) * _ALL)
    return _above_smallest(draws, wanted.num_documents)


def _above_smallest(draws: Iterator[NDArray[np.uint64]], number: int) -> int:
    """Return the least limit below which there are `number` draws; above all draws if there are fewer."""
    if not number:
        return 0
    smallest = _NO_DRAWS
    for part in draws:
        smallest = np.concatenate([smallest, part])
        if len(smallest) > number:
            smallest = np.partition(smallest, number - 1)[:number]
    return int(smallest.max()) + 1 if len(smallest) == number else _ALL


def _shared(
    below: Mapping[str, int], hashed: Mapping[str, Sequence[Path]], seed: int
) -> dict[str, NDArray[np.uint64]]:
    """Return the draws that another source holds out, by the source with the smaller limit."""
    least, most = min(below.values()), max(below.values())
    if least == most:
        return dict.fromkeys(below, _NO_DRAWS)
    held_out = _NO_DRAWS
    for source, limit in below.items():
        for draws in _draws(hashed[source], seed):
            held_out = np.union1d(held_out, _between(draws, least, limit))
    found = {}
    for source, limit in below.items():
        parts = [_NO_DRAWS, *(_between(draws, limit, most) for draws in _draws(hashed[source], seed))]
        found[source] = np.intersect1d(np.concatenate(parts), held_out)
    return found


def _draws(folders: Sequence[Path], seed: int) -> Iterator[NDArray[np.uint64]]:
    return (draws_of(read_hashes(folder).hashes, seed) for folder in folders)


def _between(draws: NDArray[np.uint64], low: int, high: int) -> NDArray[np.uint64]:
    """Return the draws from `low` up to but not including `high`."""
    last = np.uint64(max(high - 1, 0))
    return draws[(draws >= np.uint64(min(low, _ALL - 1))) & (draws <= last)] if high > low else _NO_DRAWS
