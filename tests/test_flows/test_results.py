"""The totals of a run."""

from tokmill.flows.run.results import RunRow, wall_seconds
from tokmill.tasks.core.stage import ArtifactRef

REF = ArtifactRef(kind="counts_shard", name="x", fingerprint="0" * 64, content_digest="1" * 64)


def test_shards_side_by_side_take_the_time_from_the_first_to_the_last():
    side_by_side = [RunRow("count[a/0]", REF, "made", 4.0, {}, began=10.0)]
    side_by_side += [RunRow("count[a/1]", REF, "made", 3.0, {}, began=11.0)]
    side_by_side += [RunRow("count[a/2]", REF, "made", 1.0, {}, began=14.0)]

    assert wall_seconds(side_by_side) == 5.0
