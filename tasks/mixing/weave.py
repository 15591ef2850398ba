"""Interleave the sources' documents into one plan in which every source keeps its share.

`tasks.kernels.interleave` has the rule. This module fills its lanes from the sources and empties them into
blocks of the plan. Memory: the lanes and a block of the plan, whatever the number of documents.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.formats.mixture import Plan, ShareTable
from tokmill.tasks.kernels.interleave import EMPTY, FRESH, OVER, SHORT, Clock, Lanes, weave
from tokmill.tasks.mixing.quotas import Settlement
from tokmill.tasks.mixing.sorting import Rows
from tokmill.tokenizer.core.stopping import raise_if_stopped

_ROWS = 1 << 20  # rows in all lanes together, and in a block of the plan
_POINTS = 1000  # points at which shares are recorded
_DOCUMENT = np.dtype([("shard", "<u4"), ("document", "<u4"), ("epoch", "<u2")])


class Weaver:
    """Interleaves sources: iterate `blocks` once, then use the other methods."""

    def __init__(
        self, streams: Mapping[str, Iterator[Rows]], settled: Settlement, num_documents: int
    ) -> None:
        self._curves, history, number = settled.curves, settled.history, len(streams)
        self._streams = list(streams.values())
        self._rests: list[Rows | None] = [None] * number
        self._num_points = min(_POINTS, 1 + num_documents)
        self._room = max(64, _ROWS // number)
        self._documents = np.empty(number * self._room, dtype=_DOCUMENT)
        self._lanes = Lanes.empty(number, self._room)
        self._clock = Clock(np.full(1, float(history.position)), np.zeros(1), np.zeros(1, dtype=np.int64))
        shifts = history.shifts(settled.curves)
        self._lanes.given[:] = [
            quota.given_tokens + float(shifts[source]) for source, quota in settled.quotas.items()
        ]
        self._requested_in_all = self._requested(np.inf)
        self._lacking = np.zeros(number)
        self._stopped = np.full(number, np.inf)
        self._points: list[tuple[float, NDArray[np.float64]]] = []

    def blocks(self) -> Iterator[Plan]:
        """Yield the plan in blocks of up to a million rows."""
        end, number, begin = float(self._curves.end), self._num_points, float(self._clock.out[0])
        places = np.empty(_ROWS, dtype=np.int64)
        for until in [*(end * k / number for k in range(1, number) if end * k / number > begin), np.inf]:
            chosen = 1
            while chosen or self._fill():
                raise_if_stopped()
                chosen = weave(self._curves.arrays, self._lanes, self._clock, until, places)
                if chosen:
                    yield self._taken(places[:chosen])
            self._note()

    def _note(self) -> None:
        """Record the tokens given so far, unless nothing was given since the last point."""
        if not self._points or self._points[-1][0] != self._position:
            passed_by = np.where(self._lanes.lacking == 0, np.maximum(self._lacking, 0), 0)
            self._points.append((self._position, self._lanes.given - passed_by))

    @property
    def _position(self) -> float:
        """Tokens of the run given so far; those that were skipped are not a whole number."""
        return float(round(self._clock.out[0] - self._clock.passed[0]))

    def _fill(self) -> bool:
        """Put documents into every empty lane; return whether there was one."""
        empty = np.flatnonzero(self._lanes.state == EMPTY).tolist()
        for lane in empty:
            rest = self._rests[lane]
            rows = next(self._streams[lane], None) if rest is None else rest
            if rows is None:
                self._stop(lane)
            else:
                self._put(lane, rows)
        return bool(empty)

    def _stop(self, lane: int) -> None:
        """Mark a source as ended; positions at which its missing tokens are due will be skipped."""
        lacking = self._requested_in_all[lane] - self._lanes.given[lane]
        self._lacking[lane], self._stopped[lane] = lacking, self._position
        if lacking > 0:
            self._lanes.state[lane], self._lanes.lacking[lane] = SHORT, lacking
        else:
            self._lanes.state[lane] = OVER
            self._lanes.starts[lane] = self._lanes.finishes[lane] = np.inf

    def _put(self, lane: int, rows: Rows) -> None:
        self._rests[lane] = rows[self._room :] if len(rows) > self._room else None
        rows = rows[: self._room]
        places = slice(lane * self._room, lane * self._room + len(rows))
        for name in _DOCUMENT.names or ():
            self._documents[name][places] = rows[name]
        self._lanes.lengths[places] = rows["num_tokens"]
        self._lanes.waiting[lane], self._lanes.taken[lane] = len(rows), 0
        self._lanes.state[lane] = FRESH

    def _taken(self, places: NDArray[np.int64]) -> Plan:
        documents = self._documents[places]
        columns = {name: np.ascontiguousarray(documents[name]) for name in _DOCUMENT.names or ()}
        source = (places // self._room).astype(np.uint16)
        return Plan(source=source, num_tokens=self._lanes.lengths[places], **columns)

    def shares(self) -> ShareTable:
        """The requested and given tokens of each source, at a thousand points of the run."""
        positions = np.array([position for position, _ in self._points])
        given = np.array([given for _, given in self._points])
        return ShareTable(positions, np.array([self._requested(at) for at in positions.tolist()]), given)

    def deviations(self) -> list[list[float]]:
        """Of each source the most tokens ahead of the request, and behind it, and by how many it stops short.

        The last are 0 if less than one; the fourth number is the position from which on they are missing.
        """
        position, given = self._points[-1]
        behind, short = np.maximum(self._lanes.behind, self._requested(position) - given), self._lacking >= 1
        lacking, since = np.where(short, self._lacking, 0.0), np.where(short, self._stopped, np.inf)
        deviations: list[list[float]] = np.stack([self._lanes.ahead, behind, lacking, since], axis=1).tolist()
        return deviations

    def _requested(self, position: float) -> NDArray[np.float64]:
        at = min(Decimal(position), self._curves.end)
        return np.array(list(map(float, self._curves.requested(at).values())))
