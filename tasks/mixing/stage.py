"""Mix: plan the documents of each source and their order, on lengths only.

The model. A rule, or a schedule, gives every source a share of the mixture's tokens at every position
(`tasks.mixing.quotas`). Each source gives whole documents in a seeded order, a new one each epoch, until its
tokens are nearest to its quota (`tasks.mixing.draw`). The documents are interleaved so that every source
keeps its share throughout the plan (`tasks.mixing.weave`).

Laws. At every point of the plan a source has given at most one of its own documents more than requested, and
at most the longest document of any source less. If a source stops short of its request (by less than a
document; the manifest has the amount and the position), the others may be ahead by as much in addition; and
by less than a document if its share drops to 0 within one. A source never gives more than `max_repetition`
times its tokens. No document is repeated before all of its source have been drawn once. The plan depends on
the parameters and lengths alone, not on the machine. Memory does not grow with the number of documents. The
accounts include documents that were not drawn. A mixture that misses its request by more than the tolerance
is rejected or has a warning (`tasks.mixing.misses`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import numpy as np

from tokmill.tasks.core.context import report_progress
from tokmill.tasks.core.errors import MixingError
from tokmill.tasks.core.stage import Account, Outcome, Scalar, Stage, Unit
from tokmill.tasks.formats.encoded import Encoded
from tokmill.tasks.formats.mixture import (
    CutDocument,
    Ledger,
    MixedSource,
    MixtureManifest,
    Plan,
    ShareTable,
    write_plan,
)
from tokmill.tasks.mixing.draw import Draw, DrawnTotals
from tokmill.tasks.mixing.lengths import (
    NOTHING,
    History,
    SourceLengths,
    Standing,
    source_lengths,
    with_consumed,
)
from tokmill.tasks.mixing.misses import missed_requests
from tokmill.tasks.mixing.orders import ScoreShards, orders
from tokmill.tasks.mixing.params import MixParams
from tokmill.tasks.mixing.quotas import Asked, Quota, asked
from tokmill.tasks.mixing.sorting import Scratch, scratch_below
from tokmill.tasks.mixing.weave import Weaver
from tokmill.tasks.sampling import proportions, rounded

__all__ = ["MIX", "MixParams", "run"]

_MOST_SOURCES = (1 << 16) - 1


@dataclass(frozen=True)
class Planning:
    """A mixture that is being planned: iterate `blocks` once, then use the other methods."""

    params: MixParams  # the parameters
    sources: Mapping[str, SourceLengths]  # document lengths of each source
    settled: Asked  # the settled request
    draws: Mapping[str, Draw]  # draws the documents of each source
    weaver: Weaver  # interleaves them
    standings: Mapping[str, Standing]  # counts of each source's documents before the mixture

    @classmethod
    def of(
        cls,
        params: MixParams,
        sources: Mapping[str, SourceLengths],
        scratch: Scratch,
        scores: ScoreShards | None = None,
        ledger: Ledger | None = None,
    ) -> "Planning":
        """Settle the request on sources; a ledger, if given, has the documents consumed before."""
        if len(sources) > _MOST_SOURCES:
            raise MixingError(
                f"mix: {len(sources)} sources must be at most {_MOST_SOURCES}; join some of them"
            )
        history = NOTHING if ledger is None else History.of(ledger, sources)
        sources = sources if ledger is None else with_consumed(sources, ledger)
        standings = {source: found.standing(source) for source, found in sources.items()}
        sizes = {
            source: found.num_tokens - standings[source].taken_down[1] for source, found in sources.items()
        }
        settled = asked(params, sizes, history)
        found = orders(params, sources, settled, scores or ScoreShards(), standings, scratch)
        draws = {
            source: Draw(found[source], quota.stop(splits=params.long_documents == "split"))
            for source, quota in settled.quotas.items()
        }
        num_documents = sum(lengths.num_documents for lengths in sources.values())
        weaver = Weaver(list(draws.values()), settled, num_documents)
        return cls(params, sources, settled, draws, weaver, standings)

    @property
    def cuts(self) -> tuple[CutDocument, ...]:
        """The rests of an earlier mixture's documents, which begin this one."""
        return self.settled.history.cuts

    @property
    def num_tokens(self) -> int:
        """The tokens that are planned."""
        return sum(draw.stop.num_tokens for draw in self.draws.values())

    def blocks(self) -> Iterator[Plan]:
        """The plan, in blocks."""
        if self.cuts:
            yield self._rests()
        yield from self.weaver.blocks()

    def _rests(self) -> Plan:
        """The plan's first rows: the rests of documents that were begun before."""
        for cut in self.cuts:
            drawn, is_first = self.draws[cut.source].drawn, cut.epoch == 0
            drawn.num_documents, drawn.num_tokens = drawn.num_documents + 1, drawn.num_tokens + cut.num_tokens
            drawn.longest = max(drawn.longest, cut.num_tokens)
            drawn.unique_documents += is_first
            drawn.unique_tokens += is_first * cut.num_tokens
        numbers = {source: index for index, source in enumerate(self.sources)}
        shards = {
            (source, shard.digest): index
            for source, found in self.sources.items()
            for index, shard in enumerate(found.shards)
        }
        return Plan(
            source=np.array([numbers[cut.source] for cut in self.cuts], dtype=np.uint16),
            shard=np.array([shards[cut.source, cut.digest] for cut in self.cuts], dtype=np.uint32),
            document=np.array([cut.document for cut in self.cuts], dtype=np.uint32),
            epoch=np.array([cut.epoch for cut in self.cuts], dtype=np.uint16),
            num_tokens=np.array([cut.num_tokens for cut in self.cuts], dtype=np.uint32),
        )

    def shares(self) -> ShareTable:
        """The table of requested and given tokens along the plan."""
        return self.weaver.shares()

    def accounts(self) -> list[Account]:
        """Accounts of every source's documents and tokens."""
        return [
            self._account(source, found, unit)
            for source, found in self.sources.items()
            for unit in ("documents", "tokens")
        ]

    def _account(self, source: str, found: SourceLengths, unit: Unit) -> Account:
        """In + repeated = kept + repeated + left out; a document without tokens can never be drawn.

        Several rests of one document are as many documents here.
        """
        drawn, standing = self.draws[source].drawn, self.standings[source]
        # kept, and not consumed before
        rests = [cut for cut in self.cuts if cut.source == source and cut.epoch == 0]
        begun = len({(cut.digest, cut.document) for cut in rests})
        further = len(rests) - begun if unit == "documents" else 0
        if unit == "documents":
            num_in, empty, rest = found.num_documents, standing.empty, begun
            kept, again = drawn.unique_documents, drawn.num_documents - drawn.unique_documents
        else:
            num_in, empty, rest = found.num_tokens, 0, sum(cut.num_tokens for cut in rests)
            kept, again = drawn.unique_tokens, drawn.num_tokens - drawn.unique_tokens
        consumed, taken_down = (pair[unit == "tokens"] for pair in (standing.consumed, standing.taken_down))
        became = {"kept": kept, "repeated": again, "dropped:empty": empty}
        if self.settled.history.position or taken_down:
            became |= {"dropped:consumed_before": consumed - rest, "dropped:taken_down": taken_down}
        became["dropped:not_drawn"] = (
            num_in
            + further
            - kept
            - sum(amount for end, amount in became.items() if end.startswith("dropped:"))
        )
        added = {"repetition": again} | ({"further_rests": further} if further else {})
        return Account(source=source, unit=unit, num_in=num_in, added=added, became=became)

    def warnings(self) -> list[str]:
        """Warnings of missed requests."""
        given = {source: draw.stop.num_tokens for source, draw in self.draws.items()}
        refused = self.params.on_miss == "fail"
        return missed_requests(self.params.tolerance, self.settled.quotas, given, refused=refused)

    def manifest(self) -> MixtureManifest:
        """The manifest: the request and the resulting mixture."""
        drawn_by_source = {source: draw.drawn for source, draw in self.draws.items()}
        shares = proportions({source: Decimal(drawn.num_tokens) for source, drawn in drawn_by_source.items()})
        ahead, behind, short = (
            self.weaver.ahead().tolist(),
            self.weaver.behind().tolist(),
            self.weaver.short(),
        )
        scheduled = bool(self.params.schedule)
        return MixtureManifest(
            method="schedule" if scheduled else self.params.method,
            temperature=self.params.temperature if self.params.method == "temperature" else None,
            change=self.params.change if scheduled else None,
            seed=self.params.seed,
            num_documents=sum(drawn.num_documents for drawn in drawn_by_source.values()),
            num_tokens=sum(drawn.num_tokens for drawn in drawn_by_source.values()),
            long_documents=self.params.long_documents,
            curriculum=self.params.curriculum is not None,
            tolerance=self.params.tolerance,
            warnings=self.warnings(),
            longest_document_tokens=max(drawn.longest for drawn in drawn_by_source.values()),
            first_position=self.settled.history.begin,
            first_document_starts=tuple(cut.start for cut in self.cuts),
            sources=[
                MixedSource(
                    share=float(shares[source]),
                    most_ahead_tokens=round(ahead[index], 3),
                    most_behind_tokens=round(behind[index], 3),
                    short_tokens=round(short[index][0], 3),
                    short_from=round(short[index][1]) if short[index][0] else None,
                    **_given(source, self.sources[source], self.settled.quotas[source], drawn),
                )
                for index, (source, drawn) in enumerate(drawn_by_source.items())
            ],
        )


def _given(source: str, found: SourceLengths, quota: Quota, drawn: DrawnTotals) -> dict[str, Scalar]:
    epochs = Decimal(drawn.num_tokens) / max(1, found.num_tokens)
    return {
        "source": source,
        "num_documents": found.num_documents,
        "num_tokens": found.num_tokens,
        "requested_share": float(quota.share),
        "quota_tokens": quota.num_tokens,
        "given_before_tokens": quota.given_tokens,
        "drawn_documents": drawn.num_documents,
        "drawn_tokens": drawn.num_tokens,
        "unique_documents": drawn.unique_documents,
        "unique_tokens": drawn.unique_tokens,
        "epochs": float(rounded(epochs)),
        "max_repetition": quota.max_repetition,
        "min_epochs": quota.min_epochs,
        "limits": quota.limits,
    }


def run(
    params: MixParams,
    *,
    out: Path,
    encoded: Path,
    shards: Sequence[Path],
    ledger: Path | None = None,
    **scores: Sequence[Path],
) -> Outcome:
    """Plan the mixture of an encoded corpus; writes the files of `tasks.formats.mixture`."""
    opened = Encoded.open(encoded)
    sources = source_lengths(opened, shards)
    _check_dropped(params, opened)
    scored = ScoreShards.of(opened.manifest, params.curriculum, scores)
    with scratch_below(out, len(sources)) as scratch:
        before = Ledger.open(ledger) if ledger is not None else None
        planning = Planning.of(params, sources, scratch, scored, before)
        with write_plan(out) as append:
            planned = 0
            for block in planning.blocks():
                append(block)
                planned += int(block.num_tokens.sum())
                report_progress(planned, planning.num_tokens, "tokens")
    planning.shares().save(out)
    planning.settled.curves.table().save(out)
    manifest = planning.manifest()
    manifest.save(out)
    return Outcome(metrics=_metrics(manifest), accounts=planning.accounts())


def _metrics(manifest: MixtureManifest) -> dict[str, Scalar]:
    metrics: dict[str, Scalar] = {
        "method": manifest.method,
        "num_documents": manifest.num_documents,
        "num_tokens": manifest.num_tokens,
        "limited_by": ", ".join(entry.source for entry in manifest.sources if entry.limits),
    }
    metrics |= {"warnings": "; ".join(manifest.warnings)} if manifest.warnings else {}
    return metrics | {f"share.{entry.source}": entry.share for entry in manifest.sources}


def _check_dropped(params: MixParams, encoded: Encoded) -> None:
    """Reject a weight for a source whose documents were all dropped when they were encoded."""
    given = [point.given for point in params.schedule] or [params.tables]
    for source in encoded.sources:
        statistics = encoded.source(source).statistics
        dropped = statistics.num_dropped_documents if not statistics.num_documents else 0
        if dropped and any(weights.get(source) for weights in given):
            raise MixingError(
                f"mix: source '{source}' has a weight but no tokens: its {dropped} documents have fewer than "
                f"encode.min_tokens and were dropped; lower that, or set weights.{source}=0"
            )


MIX = Stage(verb="mix", task="mix", kind="mixture", version=6, params=MixParams, run=run)
