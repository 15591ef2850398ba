"""Mixtures planned on made-up lengths, without a store or files."""

from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from tasks.formats.mixture import Plan
from tasks.mix import MixParams, Planning
from tasks.mixing.lengths import SourceLengths
from tasks.mixing.sorting import Scratch


def lengths_of(corpus):
    """Of each source its shards, and of each shard the lengths of its documents."""
    return {
        source: SourceLengths.of_arrays([np.array(shard, dtype=np.int64) for shard in shards])
        for source, shards in corpus.items()
    }


class Planned:
    """A plan, with all that is said of it."""

    def __init__(self, corpus, memory_rows=1 << 16, **params):
        with TemporaryDirectory() as folder:
            scratch = Scratch(Path(folder), memory_rows=memory_rows, kept_rows=memory_rows)
            planning = Planning.of(MixParams(**params), lengths_of(corpus), scratch)
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


def deviations(planned, requested=None):
    """At every point of a plan how far each source is from its request: tokens, float [n + 1, s].

    `requested(position)` gives the tokens asked of each source; by default what the plan's own curves say.
    """
    plan, num_sources = planned.plan, len(planned.manifest.sources)
    given = np.zeros((len(plan) + 1, num_sources))
    for source in range(num_sources):
        given[1:, source] = np.cumsum(np.where(plan.source == source, plan.num_tokens, 0), dtype=np.int64)
    positions = given.sum(axis=1)
    end = planned.curves.end
    asked = requested or (lambda at: [float(v) for v in planned.curves.requested(at).values()])
    return given - np.array([asked(min(Decimal(at), end)) for at in positions.tolist()])


def assert_shares_hold(planned, requested=None, slack=0.0):
    """At most one of its own documents ahead, at most one of anybody's behind, at every point."""
    plan = planned.plan
    longest = planned.manifest.longest_document_tokens
    off = deviations(planned, requested)
    for source in range(off.shape[1]):
        own = int(np.max(plan.num_tokens[plan.source == source], initial=0))
        assert off[:, source].max() <= own + slack + 1e-6
        assert off[:, source].min() >= -longest - slack - 1e-6
