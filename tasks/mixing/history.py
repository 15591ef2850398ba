"""The documents and tokens that a run consumed before a mixture, according to a ledger.

The model. A mixture may continue another one: it begins at a position of the run, every source has already
given tokens, and every document was consumed a number of times. Shares and curricula depend on the position
in the whole run. The difference between the requested and the given tokens of a source is carried over.

Laws. With the parameters and sources of the earlier mixture, the new one is the rest of it. With others, no
document is drawn again before all documents of its source have been drawn as often, and what remains of begun
documents comes first.
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
    """The tokens and documents consumed before a mixture.

    Attributes:
        begin: tokens of the run consumed before; the mixture begins there.
        position: `begin`, and the tokens of `cuts`.
        given: tokens that each source has given, counting begun documents as whole.
        requested: tokens requested of each source up to `position`.
        cuts: what remains of begun documents.
    """

    begin: int = 0
    position: int = 0
    given: Mapping[str, int] = field(default_factory=dict)
    requested: Mapping[str, float] = field(default_factory=dict)
    cuts: tuple[CutDocument, ...] = ()

    @classmethod
    def of(cls, ledger: Ledger, sources: Mapping[str, SourceLengths]) -> "History":
        """The history of these sources according to a ledger."""
        known = {name: entry for name, entry in ledger.by_source.items() if name in sources}
        manifest = ledger.manifest
        return cls(
            begin=manifest.consumed_tokens,
            position=manifest.position,
            given={name: entry.given_tokens for name, entry in known.items()},
            requested={name: entry.requested_tokens for name, entry in known.items()},
            cuts=tuple(cut for cut in manifest.cuts if cut.source in sources),
        )

    def shifts(self, curves: Curves) -> dict[str, Decimal]:
        """For each source, the tokens that the curves request up to `position` beyond those requested before.

        A source that has given g tokens continues on the curve at g plus this shift. So a deficit or surplus
        of tokens is carried over.
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
    """The same sources with the ledger's counts of their documents."""
    return {
        name: _of_source(name, found, ledger) if name in ledger.by_source else found
        for name, found in sources.items()
    }


def _of_source(name: str, found: SourceLengths, ledger: Ledger) -> SourceLengths:
    known, left = ledger.matched(name, (shard.digest for shard in found.shards))
    for shard in left:
        if shard.num_consumed:
            raise MixingError(
                f"mix: {shard.num_consumed} documents of source '{name}' were consumed from shard "
                f"{shard.digest[:12]}, which is not in this encoding, so the rest of that shard is "
                "unknown; mix an encoding that has that shard, or give the source another name"
            )
    return SourceLengths([_of_shard(*both, ledger) for both in zip(found.shards, known, strict=True)])


def _of_shard(shard: ShardLengths, known: LedgerShard | None, ledger: Ledger) -> ShardLengths:
    return shard if known is None else replace(shard, consumed=_opener(ledger, known))


def _opener(ledger: Ledger, shard: LedgerShard) -> Callable[[], NDArray[np.uint16]]:
    return lambda: ledger.consumed(shard)
