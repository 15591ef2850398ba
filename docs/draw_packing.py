"""Draw the pictures of docs/packing.md, from what the code does with a few made-up documents.

python docs/draw_packing.py            # writes docs/pictures/packing-*.svg again
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from drawing import box, svg, words, write

from tasks.formats.packed import Sequence
from tasks.formats.packed_masks import block_ranges
from tasks.packing.pieces import Pieces
from tasks.packing.strategies import packer

LENGTHS = [5, 11, 3, 20, 7, 2, 9, 4, 6, 13, 3, 8, 37, 2, 5, 10]
CAPACITY = 16
STRATEGIES = ("concat", "greedy", "best_fit", "pad")
BLOCK = 2
TWO = (10, 11)  # the documents of the mask's picture
UNIT = 9
PADDING, SEEN, FULL = "#e8e8e8", "#9cc3e6", "#2f6fb0"


def color(document: int) -> str:
    """A colour a document; neighbours differ most, by the golden angle."""
    return f"hsl({document * 137.508 % 360:.0f},55%,62%)"


def packed(strategy: str) -> Pieces:
    """Pack the documents."""
    lengths = np.array(LENGTHS, dtype=np.int64)
    return packer(strategy, CAPACITY).pack(lengths, np.zeros(len(lengths), dtype=np.uint8))


def batch_picture() -> str:
    """Draw the same documents packed by every strategy."""
    column, top, row = CAPACITY * UNIT + 28, 40, 17
    parts, lowest = [], 0
    for place, strategy in enumerate(STRATEGIES):
        pieces, left = packed(strategy), 12 + place * column
        padding = pieces.num_sequences * CAPACITY - pieces.num_tokens
        parts.append(words(left, 16, strategy))
        parts.append(words(left, 30, f"{pieces.num_sequences} sequences, {padding} padding"))
        parts += [
            box(left, top + sequence * row, CAPACITY * UNIT, row - 3, PADDING)
            for sequence in range(pieces.num_sequences)
        ]
        for k in range(len(pieces)):
            x, y = left + int(pieces.start[k]) * UNIT, top + int(pieces.sequence[k]) * row
            document = int(pieces.document[k])
            parts.append(box(x, y, int(pieces.length[k]) * UNIT, row - 3, color(document)))
            goes_on = "…" if pieces.document_start[k] else ""
            parts.append(words(x + 3, y + 11, f"{goes_on}{chr(97 + document)}", fill="#222222"))
        lowest = max(lowest, top + pieces.num_sequences * row)
    return svg(12 + len(STRATEGIES) * column, lowest + 8, parts)


def some_sequence() -> tuple[Sequence, list[int]]:
    """Return a sequence of two pieces and some padding, and whose pieces they are."""
    lengths = np.array(LENGTHS)[list(TWO)]
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return Sequence(np.zeros(CAPACITY, dtype=np.uint16), bounds), list(TWO)


def mask_picture() -> str:
    """Draw one sequence, its arrays, its mask, and the mask by blocks."""
    sequence, documents = some_sequence()
    left, side, cell = 96, 20, 17
    parts = list(_arrays(sequence, documents, left, side))
    top = 5 * side + 40
    mask = sequence.document_mask()
    parts.append(words(left, top - 8, "document_mask"))
    for query in range(CAPACITY):
        for key in range(CAPACITY):
            fill = PADDING
            if mask[query, key]:
                piece = int(sequence.segment_ids[query])
                fill = color(documents[piece - 1]) if piece else "#bbbbbb"
            parts.append(box(left + key * cell, top + query * cell, cell, cell, fill))
    parts += _block_grid(sequence, left + CAPACITY * cell + 40, top, cell * BLOCK)
    return svg(left + 2 * CAPACITY * cell + 60, top + CAPACITY * cell + 12, parts)


def _arrays(sequence: Sequence, documents: list[int], left: int, side: int) -> Iterator[str]:
    rows = {
        "document": [chr(97 + documents[k - 1]) if k else "" for k in sequence.segment_ids.tolist()],
        "segment_ids": sequence.segment_ids.tolist(),
        "position_ids": sequence.position_ids.tolist(),
        "loss_mask": sequence.loss_mask.astype(int).tolist(),
    }
    for number, (name, values) in enumerate(rows.items()):
        y = 12 + number * side
        yield words(left - 8, y + 14, name, "end")
        for place, value in enumerate(values):
            piece = int(sequence.segment_ids[place])
            fill = color(documents[piece - 1]) if piece else PADDING
            yield box(left + place * side, y, side, side, fill)
            yield words(left + place * side + side / 2, y + 14, str(value), "middle", "#222222")
    bounds = ", ".join(map(str, sequence.cu_seqlens.tolist()))
    yield words(left - 8, 12 + 4 * side + 14, "cu_seqlens", "end")
    yield words(left, 12 + 4 * side + 14, bounds)


def _block_grid(sequence: Sequence, left: int, top: int, side: int) -> list[str]:
    ranges = block_ranges([sequence.cu_seqlens], CAPACITY, BLOCK)
    parts = [words(left, top - 8, f"block_ranges, blocks of {BLOCK}: in part, in full")]
    num_blocks = CAPACITY // BLOCK
    for query in range(num_blocks):
        part = ranges.kv_indices[0, 0, query, : ranges.kv_num_blocks[0, 0, query]].tolist()
        full = ranges.full_kv_indices[0, 0, query, : ranges.full_kv_num_blocks[0, 0, query]].tolist()
        for key in range(num_blocks):
            fill = FULL if key in full else SEEN if key in part else PADDING
            parts.append(box(left + key * side, top + query * side, side, side, fill))
    return parts


PICTURES = {"packing-strategies.svg": batch_picture, "packing-mask.svg": mask_picture}


if __name__ == "__main__":
    write(PICTURES, Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures")
