"""Mixtures planned on made-up lengths, without a store or files."""

from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from tokmill.tasks.formats.encoded import components_of, write_scores
from tokmill.tasks.formats.mixture import Plan
from tokmill.tasks.mixing.curriculum import ScoreShards
from tokmill.tasks.mixing.lengths import SourceLengths
from tokmill.tasks.mixing.sorting import Scratch
from tokmill.tasks.mixing.stage import MixParams, Planning


def lengths_of(corpus):
    """Of each source its shards, and of each shard the lengths of its documents."""
    return {
        source: SourceLengths.of_arrays([np.array(shard, dtype=np.int64) for shard in shards])
        for source, shards in corpus.items()
    }


def scored(folder, scores):
    """Score shards: of each measure and source, for each shard, the numbers of its documents by component."""
    paths = {}
    for measure, by_source in scores.items():
        paths[measure] = {source: [] for source in by_source}
        for source, shards in by_source.items():
            for index, numbers in enumerate(shards):
                named = numbers if isinstance(numbers, dict) else {components_of(measure)[0]: numbers}
                path = folder / f"{measure}-{source}-{index}"
                path.mkdir()
                arrays = {name: np.array(values, dtype=np.float32) for name, values in named.items()}
                write_scores(path, measure, arrays)
                paths[measure][source].append(path)
    return ScoreShards(paths)


class Planned:
    """A plan, with all that is said of it."""

    def __init__(self, corpus, memory_rows=1 << 16, scores=None, **params):
        with TemporaryDirectory() as folder:
            scratch = Scratch(Path(folder), memory_rows=memory_rows, kept_rows=memory_rows)
            shards = scored(Path(folder), scores or {})
            planning = Planning.of(MixParams(**params), lengths_of(corpus), scratch, shards)
            self.plan = Plan.joined(list(planning.blocks()))
        self.manifest = planning.manifest()
        self.accounts = planning.accounts()
        self.shares = planning.weaver.shares()
        self.curves = planning.settled.curves

    @property
    def letters(self):
        """The source of each document, as its name's first letter."""
        names = [entry.source for entry in self.manifest.sources]
        return "".join(names[source][0] for source in self.plan.source.tolist())


def rows(plan):
    """The rows of a plan as tuples."""
    names = ("source", "shard", "document", "epoch", "num_tokens")
    return list(zip(*(getattr(plan, name).tolist() for name in names), strict=True))


def given_along(planned):
    """Tokens that are out of each source before each row of the plan and after the last: int64 [n + 1, s]."""
    given = np.zeros((len(planned.plan) + 1, len(planned.manifest.sources)), dtype=np.int64)
    for source in range(given.shape[1]):
        mine = planned.plan.source == source
        given[1:, source] = np.cumsum(np.where(mine, planned.plan.num_tokens, 0), dtype=np.int64)
    return given


def requested_along(planned, requested=None):
    """Tokens that are asked of each source at the same moments, as the tokens that are out tell the time."""
    asked, end = requested or (lambda at: planned.curves.requested(at).values()), planned.curves.end
    positions = given_along(planned).sum(axis=1).tolist()
    return np.array([[float(value) for value in asked(min(Decimal(at), end))] for at in positions])


def left_to_others(planned, given, asked):
    """What each source leaves to the others at each moment: float64 [n + 1, s].

    One that stopped leaves what it lacks in all. One of which a document waits, since its share is 0 before
    the document could be whole, leaves what is asked of it meanwhile.
    """
    left = np.zeros(given.shape)
    in_all = [float(value) for value in planned.curves.requested(planned.curves.end).values()]
    for source, wanted in enumerate(in_all):
        rows = np.flatnonzero(planned.plan.source == source)
        last = int(np.max(rows + 1, initial=0))
        left[last:, source] = max(0.0, wanted - given[-1, source])
        pauses = [
            float(planned.curves.requested(segment.start)[planned.manifest.sources[source].source])
            for segment in planned.curves.intervals
            if not segment.first[source] and not segment.last[source]
        ]
        for first, row in zip([0, *(rows[:-1] + 1)], rows, strict=False):
            before, after = given[row, source], given[row + 1, source]
            if any(before <= asked_by_then <= after for asked_by_then in pauses):
                lag = asked[first : row + 1, source] - before
                left[first : row + 1, source] = np.maximum.accumulate(np.maximum(lag, 0.0))
    return left


def assert_shares_hold(planned, requested=None, slack=0.0):
    """The bound of docs/mixing.md, at every point of the plan.

    With each of its documents a source comes to be at most that one ahead, and what others leave; between two
    of them it only falls back, by at most a document of anybody's. The manifest's figures are the plan's.
    `requested(position)` gives the tokens asked of each source; by default what the plan's own curves say.
    """
    given, asked = given_along(planned), requested_along(planned, requested)
    left = left_to_others(planned, given, asked)
    for index, entry in enumerate(planned.manifest.sources):
        mine = planned.plan.source == index
        own = int(np.max(planned.plan.num_tokens[mine], initial=0))
        others = (left.sum(axis=1) - left[:, index])[:-1][mine]  # before each of its documents
        off = given[:, index] - asked[:, index]
        assert np.max(off[1:][mine] - others, initial=0) <= own + slack + 1e-6
        assert off.min() >= -planned.manifest.longest_document_tokens - slack - 1e-6
        assert entry.most_ahead_tokens == pytest.approx(max(off.max(), 0), abs=1e-3 + slack)
        assert entry.most_behind_tokens == pytest.approx(max(-off.min(), 0), abs=1e-3 + slack)
        assert entry.short_tokens == pytest.approx(left[-1, index] if left[-1, index] >= 1 else 0, abs=1e-3)
        if entry.short_from is not None:
            last = int(np.max(np.flatnonzero(planned.plan.source == index) + 1, initial=0))
            assert entry.short_from == given[last].sum()
    assert planned.shares.positions.max() <= planned.manifest.num_tokens
