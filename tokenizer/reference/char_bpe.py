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

from collections.abc import Mapping, Sequence

from tokmill.tokenizer.reference.byte_bpe import count_pairs, join


def learn(words: Mapping[str, int], number: int) -> list[str]:
    """Return the joined pieces, in the order in which they are made."""
    cut, made = [(list(word), count) for word, count in words.items()], list[str]()
    while len(made) < number and (found := count_pairs(cut)):
        best = min(found, key=lambda pair: (-found[pair], "".join(pair).encode(), len(pair[0].encode())))
        cut = [(join(pieces, best), count) for pieces, count in cut]
        if "".join(best) not in made:
            made.append("".join(best))
    return made


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
