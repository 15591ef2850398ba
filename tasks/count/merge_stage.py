"""merge_counts: the counts of consecutive shards of a source, added up in one artifact.

The shards of a source are merged in a tree if they are many, so that no task reads more than `FAN_IN` files.
Files are merged as they are read, so that no task holds the distinct pre-tokens in memory
(`tasks.count.merging`). The artifact has the format of a counted shard.
"""

from collections.abc import Sequence
from pathlib import Path

from tokmill.tasks.core.context import memory_budget
from tokmill.tasks.core.stage import NO_SOURCE, Account, Outcome, Params, Stage
from tokmill.tasks.formats.counts import COUNTS_FILE, CountsStatistics


class MergeParams(Params):
    """Merging has no parameters."""


def run(params: MergeParams, *, out: Path, shards: Sequence[Path]) -> Outcome:
    """Add up the counts of some shards into `out`: `counts.parquet` and `statistics.json`."""
    statistics = add_up_shards(shards, out / COUNTS_FILE)
    statistics.save(out)
    return Outcome(metrics=statistics.model_dump(), accounts=_accounts(statistics))


def add_up_shards(shards: Sequence[Path], path: Path) -> CountsStatistics:
    """Write the sum of some shards' counts into the file `path`, and return its statistics."""
    from tokmill.tasks.count.counter import add_up

    parts = [CountsStatistics.open(shard) for shard in shards]
    num_pretokens = sum(part.num_pretokens for part in parts)
    totals = add_up([shard / COUNTS_FILE for shard in shards], path, num_pretokens, memory_budget())
    return CountsStatistics(
        num_documents=sum(part.num_documents for part in parts),
        num_bytes=sum(part.num_bytes for part in parts),
        **totals._asdict(),
    )


def _accounts(statistics: CountsStatistics) -> list[Account]:
    return [
        Account(
            source=NO_SOURCE,
            unit="documents",
            num_in=statistics.num_documents,
            became={"counted": statistics.num_documents},
        ),
        Account(
            source=NO_SOURCE,
            unit="bytes",
            num_in=statistics.num_bytes,
            became={"counted": statistics.num_bytes},
        ),
    ]


MERGE_COUNTS = Stage(
    verb="merge_counts", task="merge_counts", kind="counts_shard", version=1, params=MergeParams, run=run
)
