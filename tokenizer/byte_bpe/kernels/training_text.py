"""The training text: write words into cells, and compact symbols that merges have joined."""

import numpy as np

from tokmill.tokenizer.byte_bpe.kernels.training_state import HOLE, SEPARATOR, Words
from tokmill.tokenizer.jit import kernel
from tokmill.tokenizer.jit.arrays import BytesIn, Int32, Int64, Int64In, UInt64In


@kernel(inline=True)
def of_last_cell(number: int) -> int:
    """Turn a symbol into its form for the last of several cells, or that form into the symbol."""
    return HOLE - 1 - number


@kernel(inline=True)
def symbol_in(cell: int) -> int:
    """Return the symbol that begins or ends in a cell, or SEPARATOR."""
    return cell if cell >= SEPARATOR else of_last_cell(cell)


@kernel
def lay_out(
    data: BytesIn,
    offsets: Int64In,
    counts: UInt64In,
    order: Int64In,
    symbol_of: Int32,
    words: Words,
    progress: Int64,
    until: int,
) -> None:
    """Write words into cells, one symbol per byte.

    Args:
        data: holds the words.
        offsets: shape (number of words + 1,).
        counts: shape (number of words,), below 2**63.
        order: the words to write; those of equal counts that follow each other share a step.
        symbol_of: shape (256,), the symbol of each byte.
        words: of the right sizes, the first cell a separator; filled.
        progress: shape (4,), at first 0, 1, 0, -1: the word that comes next, the cells and the steps that
            are filled, and the last count; a further call continues from there.
        until: number of words to write in all.
    """
    used, steps, last = progress[1], progress[2], progress[3]
    for k in range(progress[0], until):
        word = order[k]
        if np.int64(counts[word]) != last:
            last = np.int64(counts[word])
            words.step_at[steps], words.step_count[steps] = used, last
            steps += 1
        for i in range(offsets[word], offsets[word + 1]):
            words.cells[used] = symbol_of[data[i]]
            used += 1
        words.cells[used] = SEPARATOR
        used += 1
    words.step_at[steps] = used
    progress[0], progress[1], progress[2], progress[3] = until, used, steps, last


@kernel
def compact(words: Words) -> int:
    """Compact the text, so that each symbol takes one cell, and drop words that are one symbol.

    Args:
        words: changed; cells after `step_at[number of steps]` are no longer text.

    Returns:
        The number of remaining steps.
    """
    cells = words.cells
    used, steps = np.int64(1), 0
    for step in range(words.step_count.shape[0]):
        count, first, start = words.step_count[step], used, used
        for position in range(words.step_at[step], words.step_at[step + 1]):
            cell = cells[position]
            cells[used] = cell
            used += 1 if cell >= SEPARATOR else 0
            if cell == SEPARATOR:
                used = used if used - start > 2 else start
                start = used
        if used > first:
            words.step_at[steps], words.step_count[steps] = first, count
            steps += 1
    words.step_at[steps] = used
    return steps
