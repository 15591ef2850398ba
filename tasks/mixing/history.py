"""What was consumed before a mixture begins, looked up in a ledger.

The model. A mixture may go on where another one was left: it begins at a position of the run, every source
has given tokens already, and every document was consumed a number of times. Shares and curricula go by the
position in the whole run. How far a source is from what was asked of it is carried over: what is asked from
here on adds to what it lacks.

Laws. With the parameters and sources of the mixture that was left, what follows is the rest of that mixture.
With others, no document comes again before all documents of its source have come as often, and what was left
comes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.formats.ledger import CutDocument, Ledger, LedgerShard
from tokmill.tasks.mixing.curves import Curves
from tokmill.tasks.mixing.lengths import ShardLengths, SourceLengths


@dataclass(frozen=True)
class History:
    """What was consumed before.

    Attributes:
        begin: tokens of the run that were consumed; the mixture begins there.
        position: the same up to the end of the document that this ends in.
        given: tokens that each source has given, that document whole.
        requested: tokens that were asked of each by the position.
        cut: that document, if anything of it is left.
    """

    begin: int = 0
    position: int = 0
    given: Mapping[str, int] = field(default_factory=dict)
    requested: Mapping[str, float] = field(default_factory=dict)
    cut: CutDocument | None = None

    @classmethod
    def of(cls, ledger: Ledger, sources: Mapping[str, SourceLengths]) -> "History":
        """What a ledger says of these sources."""
        known = {name: entry for name, entry in ledger.by_source.items() if name in sources}
        manifest = ledger.manifest
        return cls(
            begin=manifest.consumed_tokens,
            position=manifest.position,
            given={name: entry.given_tokens for name, entry in known.items()},
            requested={name: entry.requested_tokens for name, entry in known.items()},
            cut=manifest.cut if manifest.cut and manifest.cut.source in sources else None,
        )

    def shifts(self, curves: Curves) -> dict[str, Decimal]:
        """How many tokens more the curves ask of each source by the position than were asked of it.

        A source that has given g tokens stands on the curve as one that has given g plus this: what it lacks
        or is ahead of what was asked of it is kept.
        """
        if not self.position:
            return dict.fromkeys(curves.sources, Decimal(0))
        now = np.array([float(self.position)])
        return {
            source: Decimal(float(curves.doubles(index, now)[0]) - self.requested.get(source, 0.0))
            for index, source in enumerate(curves.sources)
        }


NOTHING = History()


def with_consumed(sources: Mapping[str, SourceLengths], ledger: Ledger) -> dict[str, SourceLengths]:
    """The same sources with the ledger's counts of their documents.

    Raises:
        MixingError: a shard of which documents were consumed is no longer there.
    """
    return {
        name: _of_source(name, found, ledger) if name in ledger.by_source else found
        for name, found in sources.items()
    }


def _of_source(name: str, found: SourceLengths, ledger: Ledger) -> SourceLengths:
    known, left = ledger.matched(name, (shard.digest for shard in found.shards))
    for shard in left:
        if shard.num_consumed:
            raise MixingError(
                f"mix: {shard.num_consumed} documents of source '{name}' were consumed whose shard "
                f"{shard.digest[:12]} is not in this encoding, so that nobody knows what is left of "
                "them; mix an encoding that has that shard, or give the source another name"
            )
    return SourceLengths([_of_shard(*both, ledger) for both in zip(found.shards, known, strict=True)])


def _of_shard(shard: ShardLengths, known: LedgerShard | None, ledger: Ledger) -> ShardLengths:
    return shard if known is None else replace(shard, consumed=_opener(ledger, known))


def _opener(ledger: Ledger, shard: LedgerShard) -> Callable[[], NDArray[np.uint16]]:
    return lambda: ledger.consumed(shard)
