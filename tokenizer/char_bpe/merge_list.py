"""A list of merges for BPE that joins any two pieces that make a piece, as SentencePiece's models do.

Such a model joins the pieces whose joined piece has the greatest score, the leftmost first, however the piece
is cut in two. A list of merges has a rank for each pair, so of two places that make the same piece the rank
decides, not the place. Pieces of one score, such as the runs of `▁` in Llama's models, are likewise made from
the left. That matters only where the places overlap: x y z with x y = y z, which is a piece
that repeats itself. Say that it has n characters and x has k. Then `y` is its end and its beginning of n - k
characters, and the cut after k characters must come before the one after n - k.

Where both orders are wanted, the piece is a power of a string, such as `====`. No order can be right for all
cuts, but not all of them occur. So models are compared on runs of such strings, alone and between their
neighbours in other pieces, and one whose ids differ is refused.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from tokmill.tokenizer.char_bpe.model import CharacterPairModel
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import FormatError
from tokmill.tokenizer.splitting import Pretokens

_MOST_NEIGHBOURS = 40
_MORE = 12  # repetitions beyond twice those of the longest piece


def with_merges(model: CharacterPairModel) -> CharacterPairModel:
    """Return the model with a list of merges that gives the same ids."""
    pieces = {
        token.decode(): i for i, token in model.vocabulary.ordinary() if i not in model.vocabulary.byte_ids
    }
    _check(model, pieces)
    found = [
        (pieces[left], pieces[right])
        for group in _groups(model, pieces)
        for left, right in _pairs(group)
        if left in pieces and right in pieces
    ]
    listed = np.array(found, np.int32).reshape(-1, 2)
    made = replace(model, scores=np.zeros_like(model.scores), merges=listed)
    _compare(model, made, pieces)
    return made


def _check(model: CharacterPairModel, pieces: Mapping[str, int]) -> None:
    for group in _groups(model, pieces):
        if len(set(map(_base, group))) > 1:
            names = f"{group[0]!r:.80} and {group[1]!r:.80}"
            raise _refusal(f"{names} have one score, and the leftmost of them is made first")
    lone = next((letter for piece in pieces for letter in piece if letter not in pieces), None)
    if lone is not None:
        raise _refusal(f"the character {lone!r} is in pieces, but is none itself")


def _groups(model: CharacterPairModel, pieces: Mapping[str, int]) -> list[list[str]]:
    """Return the pieces that are joined, those of one score together, the greatest score first."""
    found = defaultdict[float, list[str]](list)
    for piece, i in pieces.items():
        if len(piece) > 1:
            found[float(model.scores[i])].append(piece)
    return [found[score] for score in sorted(found, reverse=True)]


def _pairs(group: list[str]) -> list[tuple[str, str]]:
    """Return the ways to cut pieces of one score in two, in the order of their merges.

    Of powers of one string the longest beginning goes first, so that a run grows from its beginning.
    """
    if len(group) == 1:
        return [(group[0][:cut], group[0][cut:]) for cut in _cuts(group[0])]
    cut = [(piece[:end], piece[end:]) for piece in group for end in range(1, len(piece))]
    return sorted(cut, key=lambda pair: (-len(pair[0]), -len(pair[1])))


def _refusal(reason: str) -> FormatError:
    return FormatError(
        f"format='huggingface' cannot express these pieces as a list of merges: {reason}; use "
        "format='sentencepiece' or 'tokmill'"
    )


def _cuts(piece: str) -> list[int]:
    """Return where a piece is cut in two, in the order of its merges: the longest beginning first.

    The cut after k characters goes before the one after n - k if the piece begins as it ends for n - k
    characters, unless it does so for k, too.
    """
    number = len(piece)
    first = [
        cut
        for cut in range(1, (number + 1) // 2)
        if piece[cut:] == piece[: number - cut] and piece[number - cut :] != piece[:cut]
    ]
    return [*first, *(cut for cut in range(number - 1, 0, -1) if cut not in first)]


def _compare(model: CharacterPairModel, made: CharacterPairModel, pieces: Mapping[str, int]) -> None:
    """Compare the ids of two models on runs of strings whose powers are pieces."""
    texts = sorted(set(_runs(pieces)))
    data, offsets = pack_bytes([text.encode() for text in texts])
    given = data, Pretokens(offsets[:-1], offsets[1:], np.arange(len(texts) + 1)), np.full(len(texts), -1)
    with model.encoder().workspace() as one, made.encoder().workspace() as other:
        first, second = one.encode(*given), other.encode(*given)
    for i, text in enumerate(texts):
        ids = [found.ids[found.ends[i] : found.ends[i + 1]].tolist() for found in (first, second)]
        if ids[0] != ids[1]:
            raise _refusal(f"{text!r:.200} would be cut in another way")


def _runs(pieces: Mapping[str, int]) -> Iterator[str]:
    powers = defaultdict[str, int](int)
    for piece in pieces:
        base = _base(piece)
        powers[base] = max(powers[base], len(piece) // len(base))
    for base in [base for base, power in powers.items() if power > 2]:
        before, after = _neighbours(base, pieces)
        for number in range(1, 2 * powers[base] + _MORE):
            run = base * number
            yield run
            yield from (left + run for left in before)
            yield from (run + right for right in after)
            yield from (left + run + right for left in before[:4] for right in after[:4])


def _base(piece: str) -> str:
    """Return the shortest string of which a piece is a power."""
    return piece[: (piece + piece).find(piece, 1)]


def _neighbours(base: str, pieces: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Return characters that stand before a string in pieces, and after it."""
    before = {piece[piece.find(base) - 1] for piece in pieces if piece.find(base) > 0}
    ends = ((piece, piece.rfind(base) + len(base)) for piece in pieces if base in piece)
    after = {piece[end] for piece, end in ends if end < len(piece)}
    kept = [sorted(found - {base}, key=lambda letter: pieces.get(letter, 0)) for found in (before, after)]
    return kept[0][:_MOST_NEIGHBOURS], kept[1][:_MOST_NEIGHBOURS]
