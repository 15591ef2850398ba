"""The unigram language model, slow and obvious: every segmentation is listed, and its probability computed.

The example: hug 10, pug 5, pun 12, bun 4, hugs 5, and as vocabulary all proper substrings of these words.

>>> words = {b"hug": 10, b"pug": 5, b"pun": 12, b"bun": 4, b"hugs": 5}
>>> pieces = {p: n for p, n in substrings(words).items() if p not in words or p == b"hug"}
>>> len(pieces), sum(pieces.values())
(15, 210)
>>> scores = {p: math.log(n / 210) for p, n in pieces.items()}
>>> for cut in segmentations(b"pug", scores):
...     print(cut, f"{math.exp(total(cut, scores)):.7f}")
[b'p', b'u', b'g'] 0.0013217
[b'p', b'ug'] 0.0077098
[b'pu', b'g'] 0.0077098

The last two are equally probable; here the one whose last piece is longest is taken (`best`).

>>> [best(word, scores) for word in words]
[[b'hug'], [b'p', b'ug'], [b'p', b'un'], [b'b', b'un'], [b'h', b'ugs']]
>>> f"{loss(words, scores):.1f}"
'169.8'

Without `pu` nothing is lost, without `hug` much is:

>>> f"{loss(words, {p: s for p, s in scores.items() if p != b'pu'}):.1f}"
'169.8'
>>> f"{loss(words, {p: s for p, s in scores.items() if p != b'hug'}):.1f}"
'193.3'
"""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence


def characters(string: bytes) -> list[bytes]:
    """Cut a byte string into characters: a byte, and the continuation bytes of UTF-8 that follow it."""
    bounds = [i for i, byte in enumerate(string) if i == 0 or byte & 0xC0 != 0x80]
    return [string[start:end] for start, end in itertools.pairwise([*bounds, len(string)])]


def substrings(counts: Mapping[bytes, int], longest: int = 16) -> dict[bytes, int]:
    """Return how often each substring of whole characters occurs, given how often each word does."""
    found: Counter[bytes] = Counter()
    for word, count in counts.items():
        letters = characters(word)
        for i in range(len(letters)):
            for j in range(i + 1, min(i + longest, len(letters)) + 1):
                found[b"".join(letters[i:j])] += count
    return dict(found)


def seeds(counts: Mapping[bytes, int], number: int, longest: int = 16) -> dict[bytes, int]:
    """Return the characters, and the best substrings that occur twice or more, by count × characters."""
    score = {s: n * len(characters(s)) for s, n in substrings(counts, longest).items()}
    often = {s for s, n in substrings(counts, longest).items() if n > 1 and len(characters(s)) > 1}
    chosen = sorted(often, key=lambda s: (-score[s], characters(s)))[:number]
    return {s: score[s] for s in score if len(characters(s)) == 1 or s in set(chosen)}


def segmentations(word: bytes, scores: Mapping[bytes, float]) -> list[list[bytes]]:
    """Return every way to cut a word into pieces."""
    letters = characters(word)
    if not letters:
        return [[]]
    found = []
    for size in range(1, len(letters) + 1):
        piece = b"".join(letters[:size])
        if piece in scores:
            found += [[piece, *rest] for rest in segmentations(word[len(piece) :], scores)]
    return found


def total(cut: Sequence[bytes], scores: Mapping[bytes, float]) -> float:
    """Return the log probability of a segmentation, added from left to right."""
    added = 0.0
    for piece in cut:
        added += scores[piece]
    return added


def best(
    word: bytes,
    scores: Mapping[bytes, float],
    unknown_score: float = -math.inf,
    rounded: Callable[[float], float] = float,
    lowest: float = -math.inf,
) -> list[bytes]:
    """Return the most probable segmentation, with `b""` for each run of unknown characters.

    The best way to each place is found from the left; of equal ways the one whose last piece is longest.
    `rounded` is what becomes of every sum. Where the sum to a place is below `lowest`, it is taken from all
    sums to places ahead, and becomes 0.
    """
    letters, ways = characters(word), [(0.0, 0, b"")]
    taken: dict[int, float] = {}
    longest = max(map(len, scores), default=0)
    for end in range(1, len(letters) + 1):
        offers = []
        for start in range(max(end - longest, 0), end):
            piece = b"".join(letters[start:end])
            if piece in scores:
                offers.append((rounded(ways[start][0] + scores[piece]), start, piece))
            elif end == start + 1:
                offers.append((rounded(ways[start][0] + unknown_score), start, b""))
        for place in [place for place in taken if place >= end - longest]:
            offers = [
                (rounded(score - taken[place]) if start < place else score, start, piece)
                for score, start, piece in offers
            ]
        ways.append(max(offers, key=lambda offer: offer[0]))  # the first of equal ones
        if ways[end][0] < lowest:
            taken[end] = ways[end][0]
            ways[end] = (0.0, *ways[end][1:])
    found: list[bytes] = []
    place = len(letters)
    while place:
        _, place, piece = ways[place]
        if piece or not found or found[-1]:
            found.append(piece)
    return found[::-1]


def loss(counts: Mapping[bytes, int], scores: Mapping[bytes, float]) -> float:
    """Return the negative log likelihood of words, each cut in the most probable way."""
    return -sum(count * total(best(word, scores), scores) for word, count in counts.items())


def expected(counts: Mapping[bytes, int], scores: Mapping[bytes, float]) -> tuple[dict[bytes, float], float]:
    """Return how often each piece is expected in the words, and the log likelihood of the words."""
    found, likelihood = dict.fromkeys(scores, 0.0), 0.0
    for word, count in counts.items():
        cuts = segmentations(word, scores)
        chances = [math.exp(total(cut, scores)) for cut in cuts]
        for cut, chance in zip(cuts, chances, strict=True):
            for piece in cut:
                found[piece] += count * chance / sum(chances)
        likelihood += count * math.log(sum(chances))
    return found, likelihood


def losses(counts: Mapping[bytes, int], scores: Mapping[bytes, float]) -> dict[bytes, float]:
    """Return what removing each piece loses, per word, if its best other segmentation takes its place.

    Infinite for a piece that nothing can replace; minus infinity for one that no best segmentation has,
    or whose bytes other pieces make more probable.
    """
    used: Counter[bytes] = Counter()
    for word, count in counts.items():
        for piece in best(word, scores):
            used[piece] += count
    return {piece: _loss(piece, scores, used, sum(counts.values())) for piece in scores}


def _loss(piece: bytes, scores: Mapping[bytes, float], used: Mapping[bytes, int], number: int) -> float:
    others = {other: score for other, score in scores.items() if other != piece}
    count, everything = used.get(piece, 0), sum(used.values())
    if not count:
        return -math.inf
    if not segmentations(piece, others):
        return math.inf
    instead = best(piece, others)
    if total(instead, scores) > scores[piece]:
        return -math.inf
    after = everything + count * (len(instead) - 1)
    there = math.log(count / everything)
    return count / number * (there - sum(math.log((used.get(p, 0) + count) / after) for p in instead))


def best_cuts(word: bytes, scores: Mapping[bytes, float], number: int) -> list[list[bytes]]:
    """Return the most probable segmentations, the best first."""
    return sorted(segmentations(word, scores), key=lambda cut: -total(cut, scores))[:number]


def chances(word: bytes, scores: Mapping[bytes, float], alpha: float) -> list[tuple[list[bytes], float]]:
    """Return every segmentation and how probable it is to be drawn with a power `alpha`."""
    cuts = segmentations(word, scores)
    weights = [math.exp(alpha * total(cut, scores)) for cut in cuts]
    return [(cut, weight / sum(weights)) for cut, weight in zip(cuts, weights, strict=True)]
