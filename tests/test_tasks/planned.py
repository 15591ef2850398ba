"""Mixtures planned on made-up lengths, without a store or files."""

from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tasks.formats.mixture import Plan
from tasks.formats.scores import components_of, write_scores
from tasks.mix import MixParams, Planning
from tasks.mixing.lengths import SourceLengths
from tasks.mixing.orders import ScoreShards
from tasks.mixing.sorting import Scratch


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
            self.plan = Plan.join(list(planning.blocks()))
        self.manifest = planning.manifest()
        self.accounts = planning.accounts()
        self.shares = planning.shares()
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


def assert_shares_hold(planned, requested=None, slack=0.0):
    """At most one of its own documents ahead, at most one of anybody's behind, at every point.

    `requested(position)` gives the tokens asked of each source; by default what the plan's own curves say. A
    source that stops short of what is asked of it does not make the others be ahead.
    """
    plan, num_sources, end = planned.plan, len(planned.manifest.sources), planned.curves.end
    asked = requested or (lambda at: [float(v) for v in planned.curves.requested(at).values()])
    given = np.zeros((len(plan) + 1, num_sources))
    short = np.zeros(len(plan) + 1)
    for source in range(num_sources):
        mine = plan.source == source
        given[1:, source] = np.cumsum(np.where(mine, plan.num_tokens, 0), dtype=np.int64)
        last = int(np.max(np.flatnonzero(mine) + 1, initial=0))
        short[last:] += max(0.0, asked(end)[source] - given[-1, source])
    positions = given.sum(axis=1)
    low = np.array([asked(min(Decimal(at), end)) for at in positions.tolist()])
    high = np.array([asked(min(Decimal(at), end)) for at in (positions + short).tolist()])
    for source in range(num_sources):
        own = int(np.max(plan.num_tokens[plan.source == source], initial=0))
        assert (given - high)[:, source].max() <= own + slack + 1e-6
        assert (given - low)[:, source].min() >= -planned.manifest.longest_document_tokens - slack - 1e-6
