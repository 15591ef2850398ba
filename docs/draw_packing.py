"""Draw the pictures of docs/packing.md, from what the code does with a few made-up documents.

python docs/draw_packing.py            # writes docs/pictures/packing-*.svg again
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from drawing import area, box, line, svg, words, write
from numpy.typing import NDArray

from tokmill.tasks.formats.packed.masks import block_ranges
from tokmill.tasks.formats.packed.reader import Sequence
from tokmill.tasks.packing.pieces import Pieces
from tokmill.tasks.packing.strategies import packer

LENGTHS = [5, 11, 3, 20, 7, 2, 9, 4, 6, 13, 3, 8, 37, 2, 5, 10]
CAPACITY = 16
STRATEGIES = ("concat", "greedy", "best_fit", "pad")
BLOCK = 2
TWO = (10, 11)  # the documents of the mask's picture
UNIT = 9
SOURCES = ("#8db4e2", "#f2bd7c", "#8cc49b")
MIXED = {
    "chat: 12.5 %, short": (0.125, 12),
    "code: 18.75 %, short": (0.1875, 30),
    "web: the rest, long": (0.6875, 900),
}
"""Sources with their part of the tokens and the mean length of their documents."""
MIXED_TOKENS, MIXED_CAPACITY, BLOCKS = 500_000, 1024, 24
PADDING, SEEN, FULL = "#e8e8e8", "#9cc3e6", "#2f6fb0"


def color(document: int) -> str:
    """A colour a document; neighbours differ most, by the golden angle."""
    return f"hsl({document * 137.508 % 360:.0f},55%,62%)"


def packed(strategy: str) -> Pieces:
    """Pack the documents."""
    lengths = np.array(LENGTHS, dtype=np.int64)
    nothing = np.zeros(len(lengths), dtype=np.uint8)
    return packer(strategy, CAPACITY).pack(lengths, nothing, nothing.astype(np.uint16))


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


def mixture() -> tuple[NDArray[np.int64], NDArray[np.uint16]]:
    """Return lengths and sources of documents that keep their sources' shares all along the way."""
    shares, lengths = (np.array([values[k] for values in MIXED.values()]) for k in range(2))
    given, found = np.zeros(len(shares)), []
    while given.sum() < MIXED_TOKENS:
        source = int(np.argmin(given / shares))
        spread = (len(found) * 7919) % 1024  # the same on every machine
        length = int(lengths[source] * (1 + spread) // 512) + 1
        given[source] += length
        found.append((length, source))
    columns = np.array(found)
    return columns[:, 0], columns[:, 1].astype(np.uint16)


def shares_picture() -> str:
    """Draw each source's share over the sequences: in the plan, by first documents, and as they come."""
    lengths, sources = mixture()
    pieces = packer("best_fit", MIXED_CAPACITY).pack(lengths, np.zeros(len(lengths), np.uint8), sources)
    first = np.full(pieces.num_sequences, len(lengths))
    np.minimum.at(first, pieces.sequence, pieces.document)
    by_first = np.argsort(np.argsort(first, kind="stable"), kind="stable")
    panels = {
        "the mixture's plan": np.cumsum(lengths) * pieces.num_sequences // (lengths.sum() + 1),
        "packed: in the order of first documents": by_first[pieces.sequence],
        "packed: as tokmill orders them": pieces.sequence,
    }
    parts, width, height, top = [], 250, 150, 46
    for place, (title, sequence) in enumerate(panels.items()):
        plan = place == 0
        of = sources if plan else sources[pieces.document]
        tokens = np.zeros((BLOCKS, len(MIXED)))
        np.add.at(tokens, (sequence * BLOCKS // pieces.num_sequences, of), lengths if plan else pieces.length)
        parts += _stacked(title, tokens, 40 + place * (width + 34), top, width, height)
    for k, name in enumerate(MIXED):
        parts.append(box(40 + k * 190, 8, 12, 12, SOURCES[k]))
        parts.append(words(58 + k * 190, 18, name))
    return svg(40 + 3 * (width + 34), top + height + 30, parts)


def _stacked(
    title: str, tokens: NDArray[np.float64], left: float, top: float, width: float, height: float
) -> Iterator[str]:
    """One diagram: the sources' shares of each block of sequences on each other."""
    shares = tokens / tokens.sum(axis=1, keepdims=True)
    bounds = np.hstack([np.zeros((len(shares), 1)), np.cumsum(shares, axis=1)])
    xs = [left + width * k / len(shares) for k in range(len(shares) + 1)]
    yield words(left, top - 6, title)
    for source in range(tokens.shape[1]):
        lower, upper = (
            [
                (x, top + height * (1 - bound))
                for k, bound in enumerate(bounds[:, source + side].tolist())
                for x in (xs[k], xs[k + 1])
            ]
            for side in (0, 1)
        )
        yield area([*lower, *reversed(upper)], SOURCES[source])
    yield line([(left, top), (left, top + height), (left + width, top + height)], "#999999")
    yield words(left, top + height + 14, "first sequence")
    yield words(left + width, top + height + 14, "last sequence", "end")
    for share in (0, 0.5, 1):
        yield words(left - 5, top + height * (1 - share) + 4, f"{share:.0%}", "end")


PICTURES = {
    "packing-strategies.svg": batch_picture,
    "packing-shares.svg": shares_picture,
    "packing-mask.svg": mask_picture,
}


if __name__ == "__main__":
    write(PICTURES, Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures")
