"""An embedding plan: where the embedding of each id of a changed vocabulary comes from.

A kept id has the row of its old id. A new id has the mean of the rows of the old ids that its text was
encoded as before, weighted by their bytes on request.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import FormatError, refuse_malformed
from tokmill.tokenizer.core.vocabulary import MAX_IDS

FORMAT, VERSION = "tokmill-embedding-plan", 1


@dataclass(frozen=True, eq=False)
class EmbeddingPlan:
    """The rows of the new vocabulary.

    Attributes:
        old_size: ids of the old vocabulary.
        kept: int64, shape (new size,): the old id of each id, or -1 for a new one.
        sources: by new id, its old ids in order; an id without any has no text of its own (special tokens).
        weights: by new id, the bytes of each of its old ids.
    """

    old_size: int
    kept: NDArray[np.int64]
    sources: Mapping[int, tuple[int, ...]]
    weights: Mapping[int, tuple[int, ...]]

    @property
    def new_size(self) -> int:
        """Ids of the new vocabulary."""
        return len(self.kept)

    @classmethod
    def of(cls, old_tokens: list[bytes], kept: Iterable[int], sources: Mapping[int, Iterable[int]]) -> Self:
        """Make a plan."""
        by_id = {new: tuple(ids) for new, ids in sources.items()}
        weights = {new: tuple(len(old_tokens[old]) for old in ids) for new, ids in by_id.items()}
        return cls(len(old_tokens), np.fromiter(kept, dtype=np.int64), by_id, weights)

    def then(self, later: "EmbeddingPlan", old_tokens: list[bytes]) -> Self:
        """Return the plan of this change and a later one together."""

        def origin(between: int) -> tuple[int, ...]:
            old = int(self.kept[between])
            return (old,) if old >= 0 else self.sources[between]

        kept = np.where(later.kept >= 0, self.kept[later.kept], -1)
        sources = {
            new: origin(int(later.kept[new]))
            if later.kept[new] >= 0
            else tuple(old for between in later.sources[new] for old in origin(between))
            for new in np.flatnonzero(kept < 0).tolist()
        }
        return self.of(old_tokens, kept.tolist(), sources)

    def to_spec(self) -> dict[str, Any]:
        """Return the plan as JSON-able data; kept ids as runs of [new id, old id, length]."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "old_size": self.old_size,
            "new_size": self.new_size,
            "kept": _runs(self.kept),
            "new": [
                {"id": new, "from": list(ids), "bytes": list(self.weights[new])}
                for new, ids in sorted(self.sources.items())
            ],
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, Any], where: str) -> Self:
        """Read the result of `to_spec`, and check every id."""
        if spec.get("format") != FORMAT or spec.get("version") != VERSION:
            raise FormatError(
                f"{where}: format={spec.get('format')!r:.80} and version={spec.get('version')!r:.80} must be "
                f"{FORMAT!r} and {VERSION}; give the embedding-plan.json of `tokmill vocab extend` or `trim`"
            )
        with refuse_malformed(where):
            old_size, new_size = int(spec["old_size"]), int(spec["new_size"])
            if not (0 < old_size <= MAX_IDS and 0 < new_size <= MAX_IDS):
                raise FormatError(f"{where}: sizes {old_size} and {new_size} must be from 1 to {MAX_IDS}")
            kept = np.full(new_size, -1, dtype=np.int64)
            for first, old, length in spec["kept"]:
                _check_run(where, (first, old, length), len(kept), old_size)
                kept[first : first + length] = np.arange(old, old + length)
            sources = {int(row["id"]): tuple(map(int, row["from"])) for row in spec["new"]}
            weights = {int(row["id"]): tuple(map(int, row["bytes"])) for row in spec["new"]}
        plan = cls(old_size, kept, sources, weights)
        plan._check(where)
        return plan

    def _check(self, where: str) -> None:
        missing = set(np.flatnonzero(self.kept < 0).tolist()) ^ set(self.sources)
        if missing:
            raise FormatError(f"{where}: id {min(missing)} must be kept or new, one of the two")
        for new, ids in self.sources.items():
            if len(ids) != len(self.weights[new]) or not all(0 <= old < self.old_size for old in ids):
                raise FormatError(
                    f"{where}: id {new} is made from {ids!r:.80}; use ids below {self.old_size}"
                )
            sizes = self.weights[new]
            if ids and not (min(sizes) >= 0 and 0 < sum(sizes) < 1 << 53):
                raise FormatError(
                    f"{where}: id {new} has bytes={sizes!r:.80}; they must be sizes, one of them above 0"
                )


def _check_run(where: str, run: tuple[int, int, int], new_size: int, old_size: int) -> None:
    first, old, length = run
    if min(run) < 0 or first + length > new_size or old + length > old_size:
        raise FormatError(f"{where}: kept {run} goes beyond {new_size} new or {old_size} old ids")


def _runs(kept: NDArray[np.int64]) -> list[list[int]]:
    """Return the kept ids as runs: first new id, first old id, length."""
    new = np.flatnonzero(kept >= 0)
    if not len(new):
        return []
    breaks = np.flatnonzero((np.diff(new) != 1) | (np.diff(kept[new]) != 1)) + 1
    parts = np.split(new, breaks)
    return [[int(part[0]), int(kept[part[0]]), len(part)] for part in parts]
