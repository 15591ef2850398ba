"""BPE over characters, slow and obvious: neighbours whose joined piece has the greatest score are joined.

The example is that of Sennrich et al. 2016, low 5, lower 2, newest 6, widest 3: the most frequent pair is
joined first, of equally frequent ones that whose joined piece has the smaller bytes, and a piece's score is
minus its number.

>>> words = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
>>> joined = learn(words, 8)
>>> joined
['es', 'est', 'lo', 'low', 'ew', 'ewest', 'newest', 'dest']
>>> scores = {piece: -float(i) for i, piece in enumerate([*sorted(set("".join(words))), *joined])}
>>> encode("lowest", scores)
['low', 'est']
>>> encode("newer", scores)
['n', 'ew', 'e', 'r']
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence


def learn(words: Mapping[str, int], number: int) -> list[str]:
    """Return the joined pieces, in the order in which they are made."""
    cut = {word: list(word) for word in words}
    made: list[str] = []
    while len(made) < number:
        found: Counter[tuple[str, str]] = Counter()
        for word, pieces in cut.items():
            for pair in itertools.pairwise(pieces):
                found[pair] += words[word]
        if not found:
            break
        best = min(found, key=lambda pair: (-found[pair], "".join(pair).encode(), len(pair[0].encode())))
        cut = {word: _joined(pieces, best) for word, pieces in cut.items()}
        if "".join(best) not in made:
            made.append("".join(best))
    return made


def _joined(pieces: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Join a pair, from left to right, wherever it stands."""
    found: list[str] = []
    for piece in pieces:
        if found and (found[-1], piece) == pair:
            found[-1] += piece
        else:
            found.append(piece)
    return found


def encode_by_merges(text: str, ranks: Mapping[tuple[str, str], int]) -> list[str]:
    """Return the pieces of a text by a list of merges: the pair of the lowest rank, the leftmost first.

    >>> encode_by_merges("abcab", {("a", "b"): 1, ("b", "c"): 0})
    ['a', 'bc', 'ab']
    """
    pieces = list(text)
    while True:
        offers = [(ranks[pair], i) for i, pair in enumerate(itertools.pairwise(pieces)) if pair in ranks]
        if not offers:
            return pieces
        _, i = min(offers)
        pieces[i : i + 2] = [pieces[i] + pieces[i + 1]]


def encode(text: str, scores: Mapping[str, float], frozen: Sequence[str] = ()) -> list[str]:
    """Return the pieces of a text; characters without a score stay alone, and frozen pieces as they are."""
    pieces, fixed = list[str](), list[bool]()
    while text:
        first = max((piece for piece in frozen if text.startswith(piece)), key=len, default="")
        pieces.append(first or text[0])
        fixed.append(bool(first))
        text = text[len(pieces[-1]) :]
    while True:
        offers = [
            (-scores[pieces[i] + pieces[i + 1]], i)
            for i in range(len(pieces) - 1)
            if pieces[i] + pieces[i + 1] in scores and not fixed[i] and not fixed[i + 1]
        ]
        if not offers:
            return pieces
        _, i = min(offers)
        pieces[i : i + 2], fixed[i : i + 2] = [pieces[i] + pieces[i + 1]], [False]
