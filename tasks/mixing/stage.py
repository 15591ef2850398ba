"""Mix: plan the documents of each source and their order, on lengths only.

At every point of the plan a source has given at most one of its own documents more than requested, and at
most the longest document of any source less (`tasks.kernels.interleave` has the exceptions).
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
from tokmill.tasks.formats.mixture import CutDocument, Ledger, MixedSource, MixtureManifest, Plan, write_plan
from tokmill.tasks.mixing.curriculum import Difficulty, ScoreShards, easy_to_hard, paced
from tokmill.tasks.mixing.draw import Draw, check_epochs, shuffled
from tokmill.tasks.mixing.lengths import (
    NOTHING,
    History,
    SourceLengths,
    Standing,
    source_lengths,
    with_consumed,
)
from tokmill.tasks.mixing.params import MixParams
from tokmill.tasks.mixing.quotas import Settlement, competence_of, missed_requests, settle
from tokmill.tasks.mixing.sorting import Rows, Scratch, scratch_below
from tokmill.tasks.mixing.weave import Weaver
from tokmill.tasks.sampling import proportions, rounded

__all__ = ["MIX", "MixParams", "run"]

_MOST_SOURCES = (1 << 16) - 1


@dataclass(frozen=True)
class Planning:
    """A mixture that is being planned: iterate `blocks` once, then use the other methods."""

    params: MixParams
    sources: Mapping[str, SourceLengths]  # document lengths of each source
    settled: Settlement  # the settled request
    draws: Mapping[str, Draw]  # what each source gives
    weaver: Weaver  # interleaves the documents
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
        standings = {source: Standing.of(source, lengths) for source, lengths in sources.items()}
        sizes = {
            source: lengths.num_tokens - standings[source].taken_down[1]
            for source, lengths in sources.items()
        }
        settled = settle(params, sizes, history)
        splits = params.long_documents == "split"
        draws = {source: quota.draw(splits=splits) for source, quota in settled.quotas.items()}
        num_documents = sum(lengths.num_documents for lengths in sources.values())
        streams = {
            source: _stream(
                (params, settled), source, lengths, standings[source].least, draws[source], scores, scratch
            )
            for source, lengths in sources.items()
        }
        return cls(params, sources, settled, draws, Weaver(streams, settled, num_documents), standings)

    @property
    def cuts(self) -> tuple[CutDocument, ...]:
        """The rests of an earlier mixture's documents, which begin this one."""
        return self.settled.history.cuts

    def blocks(self) -> Iterator[Plan]:
        """The plan, in blocks; the first one has the rests of documents that were begun before."""
        if self.cuts:
            yield self._rests()
        yield from self.weaver.blocks()

    def _rests(self) -> Plan:
        for cut in self.cuts:
            lengths = np.array([cut.num_tokens], dtype=np.uint32)
            self.draws[cut.source].add(lengths, np.array([cut.epoch == 0]))
        places = {
            (source, shard.digest): (number, index)
            for number, (source, lengths) in enumerate(self.sources.items())
            for index, shard in enumerate(lengths.shards)
        }
        source, shard = zip(*(places[cut.source, cut.digest] for cut in self.cuts), strict=True)
        return Plan(
            source=np.array(source, dtype=np.uint16),
            shard=np.array(shard, dtype=np.uint32),
            document=np.array([cut.document for cut in self.cuts], dtype=np.uint32),
            epoch=np.array([cut.epoch for cut in self.cuts], dtype=np.uint16),
            num_tokens=np.array([cut.num_tokens for cut in self.cuts], dtype=np.uint32),
        )

    def accounts(self) -> list[Account]:
        """Accounts of every source's documents and tokens."""
        units: tuple[Unit, ...] = ("documents", "tokens")
        return [self._account(source, unit) for source in self.sources for unit in units]

    def _account(self, source: str, unit: Unit) -> Account:
        """In + repeated = kept + repeated + left out; several rests of one document are as many documents."""
        lengths, draw, standing = self.sources[source], self.draws[source], self.standings[source]
        rests = [cut for cut in self.cuts if cut.source == source and cut.epoch == 0]
        further = 0
        num_in, kept, drawn = (
            getattr(owner, f"{what}_{unit}")
            for owner, what in ((lengths, "num"), (draw, "unique"), (draw, "num"))
        )
        empty, rest = 0, sum(cut.num_tokens for cut in rests)
        if unit == "documents":
            empty, rest = standing.empty, len({(cut.digest, cut.document) for cut in rests})
            further = len(rests) - rest
        consumed, taken_down = (pair[unit == "tokens"] for pair in (standing.consumed, standing.taken_down))
        became = {"kept": kept, "repeated": drawn - kept, "dropped:empty": empty}
        if self.settled.history.position or taken_down:
            became |= {"dropped:consumed_before": consumed - rest, "dropped:taken_down": taken_down}
        became["dropped:not_drawn"] = num_in + further + (drawn - kept) - sum(became.values())
        added = {"repetition": drawn - kept} | ({"further_rests": further} if further else {})
        return Account(source=source, unit=unit, num_in=num_in, added=added, became=became)

    def manifest(self) -> MixtureManifest:
        """The manifest: the request and the resulting mixture."""
        params, draws, scheduled = self.params, self.draws, bool(self.params.schedule)
        given = {source: draw.given for source, draw in draws.items()}
        shares = proportions({source: Decimal(draw.num_tokens) for source, draw in draws.items()})
        return MixtureManifest(
            method="schedule" if scheduled else params.method,
            temperature=params.temperature if params.method == "temperature" else None,
            change=params.change if scheduled else None,
            seed=params.seed,
            num_documents=sum(draw.num_documents for draw in draws.values()),
            num_tokens=sum(draw.num_tokens for draw in draws.values()),
            long_documents=params.long_documents,
            curriculum=params.curriculum is not None,
            tolerance=params.tolerance,
            warnings=missed_requests(
                params.tolerance, self.settled.quotas, given, refused=params.on_miss == "fail"
            ),
            longest_document_tokens=max(draw.longest for draw in draws.values()),
            first_position=self.settled.history.begin,
            first_document_starts=tuple(cut.start for cut in self.cuts),
            sources=[
                self._entry(source, float(shares[source]), *figures)
                for source, figures in zip(draws, self.weaver.deviations(), strict=True)
            ],
        )

    def _entry(
        self, source: str, share: float, ahead: float, behind: float, short: float, since: float
    ) -> MixedSource:
        lengths, quota, draw = self.sources[source], self.settled.quotas[source], self.draws[source]
        return MixedSource(
            source=source,
            num_documents=lengths.num_documents,
            num_tokens=lengths.num_tokens,
            requested_share=float(quota.share),
            quota_tokens=quota.num_tokens,
            share=share,
            drawn_documents=draw.num_documents,
            drawn_tokens=draw.num_tokens,
            unique_documents=draw.unique_documents,
            unique_tokens=draw.unique_tokens,
            epochs=float(rounded(Decimal(draw.num_tokens) / max(1, lengths.num_tokens))),
            max_repetition=quota.max_repetition,
            min_epochs=quota.min_epochs,
            limits=quota.limits,
            given_before_tokens=quota.given_tokens,
            most_ahead_tokens=round(ahead, 3),
            most_behind_tokens=round(behind, 3),
            short_tokens=round(short, 3),
            short_from=round(since) if short else None,
        )


def _stream(
    planned: tuple[MixParams, Settlement],
    source: str,
    lengths: SourceLengths,
    least: int,
    draw: Draw,
    scores: ScoreShards | None,
    scratch: Scratch,
) -> Iterator[Rows]:
    """The documents of a source, each of which was consumed at least `least` times, in their order."""
    params, settled = planned
    rules, quota = params.curriculum, settled.quotas[source]
    num_epochs = -(-quota.run_tokens // max(1, lengths.num_tokens))
    if rules is None or not rules.has(source):
        check_epochs(source, num_epochs)
        return draw.taken(shuffled(source, lengths, params.seed, scratch, least))
    measures = list((scores or ScoreShards()).measures(rules, source))
    difficulty = Difficulty(source, lengths, measures, params.seed, scratch)
    if rules.order == "easy_to_hard":
        check_epochs(source, num_epochs)
        return easy_to_hard(difficulty, draw, least)
    check_epochs(source, quota.copies)
    begin = quota.given_tokens + float(settled.history.shifts(settled.curves)[source])
    return draw.taken(paced(difficulty, competence_of(rules), settled.curves, quota.copies, begin))


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
                report_progress(planned, sum(draw.given for draw in planning.draws.values()), "tokens")
    planning.weaver.shares().save(out)
    planning.settled.curves.table.save(out)
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
