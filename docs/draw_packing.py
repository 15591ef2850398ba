"""Draw the pictures of docs/packing.md, from what the code does with a few made-up documents.

python docs/draw_packing.py            # writes docs/pictures/packing-*.svg again
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
from drawing import PADDING, percentages, write
from matplotlib.axes import Axes
from matplotlib.colors import hsv_to_rgb, to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from tokmill.tasks.formats.packed.masks import block_ranges
from tokmill.tasks.formats.packed.reader import Sequence as Packed
from tokmill.tasks.packing.strategies import Packer, Pieces

LENGTHS = [5, 11, 3, 20, 7, 2, 9, 4, 6, 13, 3, 8, 37, 2, 5, 10]
CAPACITY = 16
STRATEGIES = ("concat", "greedy", "best_fit", "pad")
BLOCK = 2
TWO = (10, 11)  # the documents of the mask's picture
SOURCES = ("#8db4e2", "#f2bd7c", "#8cc49b")
MIXED = {
    "chat: 12.5 %, short": (0.125, 12),
    "code: 18.75 %, short": (0.1875, 30),
    "web: the rest, long": (0.6875, 900),
}
"""Sources with their part of the tokens and the mean length of their documents."""
MIXED_TOKENS, MIXED_CAPACITY, BLOCKS = 500_000, 1024, 24
SEEN, FULL, UNUSED = "#9cc3e6", "#2f6fb0", "#bbbbbb"


Color: TypeAlias = tuple[float, float, float]


def color(document: int) -> Color:
    """Return a document's colour; neighbours differ most, by the golden angle."""
    red, green, blue = hsv_to_rgb((document * 137.508 % 360 / 360, 0.42, 0.88)).tolist()
    return red, green, blue


def packed(strategy: str) -> Pieces:
    """Pack the documents."""
    lengths = np.array(LENGTHS, dtype=np.int64)
    nothing = np.zeros(len(lengths), dtype=np.uint8)
    return Packer(strategy, CAPACITY).pack(lengths, nothing, nothing.astype(np.uint16))


def batch_picture() -> Figure:
    """Draw the same documents packed by every strategy."""
    figure = Figure(figsize=(7.6, 2.9), layout="constrained")
    columns = figure.subplots(1, len(STRATEGIES), sharey=True)
    for axes, strategy in zip(columns, STRATEGIES, strict=True):
        _batch(axes, strategy, packed(strategy))
    columns[0].invert_yaxis()  # which all of them share
    return figure


def _batch(axes: Axes, strategy: str, pieces: Pieces) -> None:
    padding = pieces.num_sequences * CAPACITY - pieces.num_tokens
    axes.set_title(f"{strategy}\n{pieces.num_sequences} sequences, {padding} padding")
    axes.barh(np.arange(pieces.num_sequences), CAPACITY, color=PADDING)
    bars = {"color": [color(document) for document in pieces.document.tolist()], "edgecolor": "white"}
    axes.barh(pieces.sequence, pieces.length, left=pieces.start, **bars)
    for k, document in enumerate(pieces.document.tolist()):
        goes_on = "…" if pieces.document_start[k] else ""
        place = (pieces.start[k] + 0.25, pieces.sequence[k])
        axes.annotate(f"{goes_on}{chr(97 + document)}", place, va="center_baseline")
    axes.set_axis_off()


def some_sequence() -> tuple[Packed, list[int]]:
    """Return a sequence of two pieces and some padding, and whose pieces they are."""
    lengths = np.array(LENGTHS)[list(TWO)]
    bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return Packed(np.arange(50, 50 + CAPACITY, dtype=np.uint16), bounds), list(TWO)


def mask_picture() -> Figure:
    """Draw one sequence, its arrays, its mask, and the mask by blocks."""
    figure = Figure(figsize=(7.6, 5.6), layout="constrained")
    axes = figure.subplot_mosaic([["arrays", "arrays"], ["mask", "blocks"]], height_ratios=[1.5, 3])
    sequence, documents = some_sequence()
    _arrays(axes["arrays"], sequence, documents)
    _mask(axes["mask"], sequence, documents)
    _block_grid(axes["blocks"], sequence)
    return figure


def _grid(axes: Axes, title: str, cells: Sequence[Sequence[Color]]) -> None:
    """Draw cells of these colours, the first row on top."""
    axes.pcolormesh(np.array(cells), edgecolors="white", linewidth=1)
    axes.set_title(title)
    axes.set_aspect("equal", anchor="NW")
    axes.invert_yaxis()
    axes.set_xticks([])
    axes.set_yticks([])
    axes.set_frame_on(False)


def _arrays(axes: Axes, sequence: Packed, documents: list[int]) -> None:
    rows = {
        "document": [chr(97 + documents[k - 1]) if k else "" for k in sequence.segment_ids.tolist()],
        "input_ids": sequence.input_ids.tolist(),
        "segment_ids": sequence.segment_ids.tolist(),
        "position_ids": sequence.position_ids.tolist(),
        "loss_mask": sequence.loss_mask.astype(int).tolist(),
        "labels": [label if label >= 0 else "–" for label in sequence.labels.tolist()],
    }
    cells = [color(documents[piece - 1]) if piece else to_rgb(PADDING) for piece in sequence.segment_ids]
    _grid(axes, f"cu_seqlens  {', '.join(map(str, sequence.cu_seqlens.tolist()))}", [cells] * len(rows))
    axes.set_yticks(np.arange(len(rows)) + 0.5, list(rows))
    axes.tick_params(length=0)
    for number, values in enumerate(rows.values()):
        for place, value in enumerate(values):
            axes.annotate(str(value), (place + 0.5, number + 0.5), ha="center", va="center_baseline")


def _mask(axes: Axes, sequence: Packed, documents: list[int]) -> None:
    seen = [color(documents[piece - 1]) if piece else to_rgb(UNUSED) for piece in sequence.segment_ids]
    hidden = to_rgb(PADDING)
    mask = sequence.document_mask()
    cells = [[fill if sees else hidden for sees in row] for fill, row in zip(seen, mask, strict=True)]
    _grid(axes, "document_mask", cells)


def _block_grid(axes: Axes, sequence: Packed) -> None:
    ranges = block_ranges([sequence.cu_seqlens], CAPACITY, BLOCK)
    num_blocks = CAPACITY // BLOCK
    cells = [[to_rgb(PADDING)] * num_blocks for _ in range(num_blocks)]
    for query in range(num_blocks):
        for key in ranges.kv_indices[0, 0, query, : ranges.kv_num_blocks[0, 0, query]].tolist():
            cells[query][key] = to_rgb(SEEN)
        for key in ranges.full_kv_indices[0, 0, query, : ranges.full_kv_num_blocks[0, 0, query]].tolist():
            cells[query][key] = to_rgb(FULL)
    _grid(axes, f"block_ranges, blocks of {BLOCK}: in part, in full", cells)


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


def shares_picture() -> Figure:
    """Draw each source's share over the sequences: in the plan, by first documents, and as they come."""
    lengths, sources = mixture()
    pieces = Packer("best_fit", MIXED_CAPACITY).pack(lengths, np.zeros(len(lengths), np.uint8), sources)
    first = np.full(pieces.num_sequences, len(lengths))
    np.minimum.at(first, pieces.sequence, pieces.document)
    by_first = np.argsort(np.argsort(first, kind="stable"), kind="stable")
    in_plan = np.cumsum(lengths) * pieces.num_sequences // (lengths.sum() + 1)
    packed_sources = sources[pieces.document]
    panels = {
        "the mixture's plan": (in_plan, sources, lengths),
        "packed: in the order of first documents": (by_first[pieces.sequence], packed_sources, pieces.length),
        "packed: as tokmill orders them": (pieces.sequence, packed_sources, pieces.length),
    }
    figure = Figure(figsize=(9, 2.5), layout="constrained")
    for axes, (title, (sequence, of, tokens)) in zip(figure.subplots(1, 3), panels.items(), strict=True):
        summed = np.zeros((BLOCKS, len(MIXED)))
        np.add.at(summed, (sequence * BLOCKS // pieces.num_sequences, of), tokens)
        _stacked(axes, title, summed / summed.sum(axis=1, keepdims=True))
    legend = [Patch(color=fill, label=name) for name, fill in zip(MIXED, SOURCES, strict=True)]
    figure.legend(handles=legend, ncols=len(MIXED), loc="outside upper left", frameon=False)
    return figure


def _stacked(axes: Axes, title: str, shares: NDArray[np.float64]) -> None:
    """Draw the sources' shares of each block of sequences on each other."""
    axes.stackplot(np.arange(BLOCKS + 1), np.vstack([shares, shares[-1:]]).T, step="post", colors=SOURCES)
    axes.set_title(title)
    axes.set_xticks([0, BLOCKS], ["first sequence", "last sequence"])
    for label, side in zip(axes.get_xticklabels(), ("left", "right"), strict=True):
        label.set_horizontalalignment(side)
    percentages(axes)


PICTURES = {
    "packing-strategies.svg": batch_picture,
    "packing-shares.svg": shares_picture,
    "packing-mask.svg": mask_picture,
}


if __name__ == "__main__":
    write(PICTURES, Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures")
