"""The tree in which the counts of a source's shards are merged.

Model. A part is a range of a source's shards whose counts are in one artifact; at first each shard is a
part. While there are more than `FAN_IN` parts, each `FAN_IN` consecutive ones are merged into one; a single
part that is left over stays as it is. `count` adds up the parts that remain.

Laws. The tree depends on the number of shards alone, not on workers. A source of at most `FAN_IN` shards has
no merges. One more shard at the end leaves all merges as they are, but the last one of each level.
"""

from collections.abc import Sequence

FAN_IN = 32
MOST_LEVELS = 3
"""Levels of merges; enough for 1,048,576 shards per source. `count` adds up more parts all the same."""


def level_of(num_shards: int, level: int) -> list[list[range]]:
    """Return which parts are merged on a level, in order: groups of one part stay as they are.

    Args:
        num_shards: shards of a source.
        level: 0 merges shards.
    """
    parts = parts_of(num_shards, level)
    if len(parts) <= FAN_IN:
        return [[part] for part in parts]
    return [parts[first : first + FAN_IN] for first in range(0, len(parts), FAN_IN)]


def parts_of(num_shards: int, num_levels: int = MOST_LEVELS) -> list[range]:
    """Return the parts that remain after some levels of merges, in order."""
    if not num_levels:
        return [range(index, index + 1) for index in range(num_shards)]
    return [joined(group) for group in level_of(num_shards, num_levels - 1)]


def joined(group: Sequence[range]) -> range:
    """Return consecutive parts as one."""
    return range(group[0].start, group[-1].stop)
