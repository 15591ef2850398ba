"""WordPiece, slow and obvious.

- *words*: runs of characters that are not white space; white space itself is lost.
- *training*: a word is its characters, each but the first with `##`. The pair of neighbours with the greatest
  f(ab) / (f(a) f(b)) is joined everywhere, until there are enough pieces.
- *encoding*: a word becomes the longest piece that it begins with, then the longest `##` piece at each place;
  where none fits, the whole word is `[UNK]`.
- *decoding*: a space before every token, unless it begins with `##`, which goes.

The textbook's corpus. `##g` occurs 20 times, and `##s` 5 times, always after it: a score of 5 / (20 × 5):

>>> words = {"hug": 10, "pug": 5, "pun": 12, "bun": 4, "hugs": 5}
>>> train(words, 10)
['##u', '##g', 'p', '##n', 'h', '##s', 'b', '##gs', 'pu', 'hu']
>>> score(words_as_pieces(words), ("##g", "##s"))
Fraction(1, 20)

By frequency the first pair is another one, as in byte-pair encoding:

>>> train(words, 8, by_likelihood=False)[-1]
'##ug'

Encoding takes the longest piece first, which need not be a good idea:

>>> encode("unhappiness", {"un", "##hap", "##happi", "##ness", "##p"})
['un', '##happi', '##ness']
>>> encode("playing", {"play", "##ing"})
['play', '##ing']
>>> encode("unrunning", {"un", "run", "##ing"})
['[UNK]']
>>> encode("unrunning", {"un", "run", "##ing"}, by_part=True)
['un', 'run', '[UNK]', '##ing']
>>> encode("鞲韫", {"[UNK]", "a"})
['[UNK]']
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction

from tokmill.tokenizer.reference.byte_bpe import count_pairs

UNKNOWN = "[UNK]"
Words = list[tuple[list[str], int]]


def words_as_pieces(words: Mapping[str, int]) -> Words:
    """Return words as their characters, each but the first with `##`."""
    return [([word[0], *("##" + letter for letter in word[1:])], count) for word, count in words.items()]


def count_pieces(words: Words) -> Counter[str]:
    """Count pieces."""
    pieces = Counter[str]()
    for word, count in words:
        for piece in word:
            pieces[piece] += count
    return pieces


def score(words: Words, pair: tuple[str, str]) -> Fraction:
    """Return how much more often a pair occurs than its parts would suggest, but for a factor."""
    pieces = count_pieces(words)
    return Fraction(count_pairs(words)[pair], pieces[pair[0]] * pieces[pair[1]])


def joined(pair: tuple[str, str]) -> str:
    """Return the piece that a pair makes."""
    return pair[0] + pair[1].removeprefix("##")


def train(counts: Mapping[str, int], number: int, *, by_likelihood: bool = True, least: int = 1) -> list[str]:
    """Return pieces: the characters, the most frequent first, then joined ones in order."""
    words = words_as_pieces(counts)
    alphabet = count_pieces(words)
    pieces = sorted(alphabet, key=lambda piece: (-alphabet[piece], piece.encode()))[:number]
    words = [(word, count) for word, count in words if set(word) <= set(pieces)]
    while len(pieces) < number:
        single, pairs = count_pieces(words), count_pairs(words)
        ranks = {
            pair: (
                -Fraction(count, single[pair[0]] * single[pair[1]] if by_likelihood else 1),
                -count,
                joined(pair).encode(),
                len(pair[0].encode()),
            )
            for pair, count in pairs.items()
            if count >= least
        }
        if not ranks:
            break
        best = min(ranks, key=ranks.__getitem__)
        words = [(join(word, best), count) for word, count in words]
        pieces += [joined(best)] if joined(best) not in pieces else []
    return pieces


def join(word: Sequence[str], pair: tuple[str, str]) -> list[str]:
    """Join a pair everywhere, from the left."""
    pieces: list[str] = []
    for piece in word:
        if pieces and (pieces[-1], piece) == pair:
            pieces[-1] = joined(pair)
        else:
            pieces.append(piece)
    return pieces


def encode(word: str, pieces: set[str], *, by_part: bool = False, max_chars: int = 100) -> list[str]:
    """Return the pieces of one word."""
    if len(word) > max_chars:
        return [UNKNOWN]
    found: list[str] = []
    while word:
        prefixes = [""] if not found else ["##", ""] if by_part else ["##"]
        fitting = (
            (prefix, end)
            for prefix in prefixes
            for end in range(len(word), 0, -1)
            if prefix + word[:end] in pieces and (prefix or not is_continuing(word[:end]))
        )
        prefix, end = next(fitting, (None, 1))
        if prefix is not None:
            found.append(prefix + word[:end])
        elif not by_part:
            return [UNKNOWN]
        elif not found or found[-1] != UNKNOWN:
            found.append(UNKNOWN)
        word = word[end:]
    return found


def is_continuing(text: str) -> bool:
    """Whether a text reads as a piece that continues a word."""
    return text.startswith("##") and len(text) > 2
