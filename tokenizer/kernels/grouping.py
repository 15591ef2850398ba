"""Cut runs of characters into groups of equal size, counted from the right."""

from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int64, Int64In
from tokmill.tokenizer.kernels.split import SplitTables, entry, next_character


@kernel(inline=True)
def count_characters(data: BytesIn, start: int, end: int) -> int:
    """Count the characters of well-formed text: the bytes that continue none."""
    number = 0
    for position in range(start, end):
        number += (entry(data, position) & 0xC0) != 0x80
    return number


@kernel
def count_groups(
    data: BytesIn, starts: Int64In, ends: Int64In, tables: SplitTables, size: int, numbers: Int64
) -> None:
    """Count the groups of each part of a text; a part that is no run is a group.

    Args:
        data: shape (num_bytes,).
        starts: shape (num_parts,); no part is empty.
        ends: shape (num_parts,).
        tables: of an expression that matches runs of one class of characters.
        size: characters per group.
        numbers: written, shape (num_parts,).
    """
    for part in range(len(starts)):
        column, _ = next_character(data, starts[part], ends[part], tables)
        numbers[part] = 1
        if tables.matcher_next[column] >= 0:
            numbers[part] = (count_characters(data, starts[part], ends[part]) + size - 1) // size


@kernel
def write_groups(
    data: BytesIn,
    starts: Int64In,
    ends: Int64In,
    offsets: Int64In,
    size: int,
    group_starts: Int64,
    group_ends: Int64,
) -> None:
    """Write the bounds of groups, for each part from its end to its beginning.

    Args:
        data: shape (num_bytes,).
        starts: shape (num_parts,).
        ends: shape (num_parts,).
        offsets: shape (num_parts + 1,): the groups of each part, as `count_groups` counts them.
        size: characters per group.
        group_starts: written, shape (num_groups,).
        group_ends: written, shape (num_groups,).
    """
    for part in range(len(starts)):
        first, end = offsets[part], ends[part]
        for group in range(offsets[part + 1] - 1, first, -1):
            group_ends[group] = end
            for _ in range(size):
                end -= 1
                while (entry(data, end) & 0xC0) == 0x80:
                    end -= 1
            group_starts[group] = end
        group_starts[first], group_ends[first] = starts[part], end
