"""Draw the pictures of docs/tokenizers.md, from what the code does with a few words.

python docs/draw_tokenizers.py         # writes docs/pictures/tokenizers-*.svg again
"""

import math
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from drawing import DARK, PADDING, write
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Rectangle

from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.reference import unigram

HUGS = {b"hug": 10, b"pug": 5, b"pun": 12, b"bun": 4, b"hugs": 5}
ENDINGS = {b"low": 5, b"lower": 2, b"newest": 6, b"widest": 3}
SENTENCE = "The naïve newcomers were unbelievably happy."
TEXTS = (
    "The newcomers were happy. They were unhappy and unable; the unbelievers were naïve.",
    "She believes, he believed, we believe: believable, and probably unbelievable, beliefs.",
    "Newly come, the comers were happily lively. Happy people come, unlikely and unsung.",
    "An undone deed, really; were they naïve? Lovely, lonely, likely, comely, livelier.",
)
FILLS = ("#8db4e2", "#f2bd7c", "#8cc49b", "#d7a6cf", "#e3d27c")
BEST, OTHER = "#2f6fb0", "#bbbbbb"


def rows() -> dict[str, list[bytes]]:
    """Cut the sentence by tokenizers of each family, from words to bytes."""
    common = {"split_pattern": "o200k", "special_tokens": []}
    trained = {
        "word_level": tokenizer.train(TEXTS * 9, family="word_level", vocab_size=90, **common),
        "wordpiece": tokenizer.train(
            TEXTS * 9, family="wordpiece", vocab_size=80, score="frequency", **common
        ),
        "unigram": tokenizer.train(TEXTS, family="unigram", vocab_size=57, **common),
        "byte_bpe": tokenizer.train(TEXTS * 9, vocab_size=256 + 50, **common),
        "character_level": tokenizer.train(TEXTS * 9, family="character_level", vocab_size=60, **common),
    }
    cut = {family: _pieces(tok) for family, tok in trained.items()}
    return cut | {"bytes": [bytes([byte]) for byte in SENTENCE.encode()]}


def _pieces(tok: Tokenizer) -> list[bytes]:
    """The part of the sentence that each token stands for."""
    ids, spans = tok.encode_with_offsets(SENTENCE)
    text = tok.normalize(SENTENCE)
    del ids
    return [text[start:end].encode() for start, end in spans]


def granularity_picture() -> Figure:
    """Draw the tokens of a sentence, one row a family."""
    figure = Figure(figsize=(9, 2.6), layout="constrained")
    axes = figure.subplots()
    for number, pieces in enumerate(rows().values()):
        place = 0.0
        for k, piece in enumerate(pieces):
            width = len(piece)
            axes.add_patch(Rectangle((place, number), width, 0.82, facecolor=FILLS[k % len(FILLS)], lw=0))
            label = _shown(piece)
            axes.annotate(label, (place + width / 2, number + 0.42), ha="center", va="center", fontsize=7)
            place += width
        axes.annotate(f"{len(pieces)} tokens", (place + 0.6, number + 0.42), va="center", fontsize=7)
    names = list(rows())
    axes.set_yticks([number + 0.42 for number in range(len(names))], names)
    axes.set_xlim(0, len(SENTENCE.encode()) + 7)
    axes.set_ylim(len(names), 0)
    _bare(axes)
    return figure


def _shown(piece: bytes) -> str:
    """A token as text; a byte that is no character as a number."""
    try:
        return piece.decode().replace(" ", "␣")
    except UnicodeDecodeError:
        return f"{piece[0]:x}"


def merges_picture() -> Figure:
    """Draw how the bytes of three words become tokens, merge by merge."""
    tok = tokenizer.train_from_counts(ENDINGS, vocab_size=256 + 9)
    ranks = {pair: rank for rank, pair in enumerate(tok.merges)}
    words = ["lowest", "newest", "wider"]
    figure = Figure(figsize=(9, 2.8), layout="constrained")
    widths = [len(word) for word in words]
    for axes, word in zip(figure.subplots(1, len(words), width_ratios=widths), words, strict=True):
        _tree(axes, word, ranks)
    return figure


def _tree(axes: Axes, word: str, ranks: Mapping[tuple[bytes, bytes], int]) -> None:
    """Draw the merges of a word: a symbol above the two that it is made of, with the merge's number."""
    symbols = [(bytes([byte]), float(k), 0.0) for k, byte in enumerate(word.encode())]
    for symbol in symbols:
        _symbol(axes, symbol, merged=False)
    while True:
        pairs = [(ranks.get((a[0], b[0]), math.inf), i) for i, (a, b) in enumerate(pairwise(symbols))]
        rank, i = min(pairs, default=(math.inf, 0))
        if rank == math.inf:
            break
        left, right = symbols[i : i + 2]
        top = (left[0] + right[0], (left[1] + right[1]) / 2, max(left[2], right[2]) + 1)
        for below in (left, right):
            axes.plot([below[1], top[1]], [below[2] + 0.25, top[2] - 0.25], color=OTHER, lw=1, zorder=0)
        _symbol(axes, top, merged=True)
        beside = top[1] + 0.24 + 0.05 * len(top[0])
        axes.annotate(f"{int(rank) + 1}", (beside, top[2]), va="center", fontsize=6, color=BEST)
        symbols[i : i + 2] = [top]
    axes.set_title(f"{word}: {' '.join(symbol[0].decode() for symbol in symbols)}")
    axes.set_xlim(-0.6, len(word) - 0.3)
    axes.set_ylim(-0.5, 4.5)
    axes.set_axis_off()


def _symbol(axes: Axes, symbol: tuple[bytes, float, float], *, merged: bool) -> None:
    fill = FILLS[0] if merged else PADDING
    box = {"boxstyle": "round,pad=0.25", "facecolor": fill, "edgecolor": "none"}
    axes.annotate(symbol[0].decode(), symbol[1:], ha="center", va="center", fontsize=7, bbox=box)


def lattice_picture() -> Figure:
    """Draw all ways to cut a word into pieces, with their probabilities, and the most probable one."""
    word = b"hugs"
    pieces = {p: n for p, n in unigram.substrings(HUGS).items() if p not in HUGS or p == b"hug"}
    scores = {piece: math.log(number / 210) for piece, number in pieces.items()}
    best = unigram.best(word, scores)
    figure = Figure(figsize=(7.6, 2.9), layout="constrained")
    axes = figure.subplots()
    for start in range(len(word)):
        for end in range(start + 1, len(word) + 1):
            if word[start:end] in pieces:
                chosen = (start, end) in _places(best)
                _edge(axes, word[start:end], (start, end), f"{pieces[word[start:end]]}/210", chosen=chosen)
    for place in range(len(word) + 1):
        axes.plot(place, 0, "o", color=DARK, ms=5, zorder=3)
    probability = math.exp(unigram.total(best, scores))
    ways = len(unigram.segmentations(word, scores))
    parts = " ".join(piece.decode() for piece in best)
    axes.set_title(f"{word.decode()}: {ways} ways, the most probable is {parts} ({probability:.4f})")
    axes.set_xlim(-0.2, len(word) + 0.2)
    axes.set_ylim(-0.75, 1.75)
    axes.set_axis_off()
    return figure


def _places(pieces: Sequence[bytes]) -> list[tuple[int, int]]:
    ends = [sum(map(len, pieces[: k + 1])) for k in range(len(pieces))]
    return list(zip([0, *ends], ends, strict=False))


def _edge(axes: Axes, piece: bytes, place: tuple[int, int], label: str, *, chosen: bool) -> None:
    """Draw a piece as an arc from where it begins to where it ends; single characters below the line."""
    start, end = place
    color, width = (BEST, 2.2) if chosen else (OTHER, 1.2)
    size = end - start
    down = -1 if size == 1 else 1
    height = 0.6 if size == 1 else 0.85 * size
    middle = (start + end) / 2
    angles = {"theta1": 180, "theta2": 360} if size == 1 else {"theta1": 0, "theta2": 180}
    axes.add_patch(Arc((middle, 0), size, height, color=color, lw=width, **angles))
    axes.annotate(
        f"{piece.decode()}  {label}",
        (middle, down * (height / 2 + 0.1)),
        ha="center",
        va="center",
        fontsize=7,
        color=BEST if chosen else DARK,
    )


def _bare(axes: Axes) -> None:
    """Take away everything but the labels of the rows."""
    axes.set_xticks([])
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


PICTURES = {
    "tokenizers-granularity.svg": granularity_picture,
    "tokenizers-merges.svg": merges_picture,
    "tokenizers-lattice.svg": lattice_picture,
}


if __name__ == "__main__":
    write(PICTURES, Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures")
