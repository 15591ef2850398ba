"""Byte-level BPE, slow and obvious, and what other families of merges share with it.

Byte-pair encoding in two definitions:
- *training*: while the vocabulary has room, count every adjacent pair of symbols in every pre-token
  (overlapping places count: `aaa` has the pair a a twice), take the pair with the highest count, and join
  it everywhere, from the left. Equal counts are decided by the tie rule.
- *encoding*: while a pre-token has adjacent symbols that a merge joins, join those of the earliest merge, the
  leftmost first.

The textbook's corpus, hug 10 times, pug 5, pun 12, bun 4 and hugs 5. `ug` occurs 20 times, then `un` 16, and
once `ug` is one symbol, `h` stands before it 15 times:

    >>> counts = {b"hug": 10, b"pug": 5, b"pun": 12, b"bun": 4, b"hugs": 5}
    >>> merges = train_merges(counts, num_merges=3)
    >>> merges
    [(b'u', b'g'), (b'u', b'n'), (b'h', b'ug')]
    >>> ranks = {pair: rank for rank, pair in enumerate(merges)}
    >>> encode_pretoken(b"hugs", ranks), encode_pretoken(b"bug", ranks)
    ([b'hug', b's'], [b'b', b'ug'])

BPE-dropout (Provilkov et al. 2020) leaves merges out at random. With one half, `ug` is joined in half of the
cases, and then `hug` in half of these:

    >>> dropout_chances(b"hug", ranks, 0.5)
    {(b'hug',): 0.25, (b'h', b'ug'): 0.25, (b'h', b'u', b'g'): 0.5}

Where pairs are equally frequent the tie rule decides which tokens there are. In `aaabdaaabac`, after `aa`
has been joined, (aa, a) and (a, b) both occur twice:

    >>> train_merges({b"aaabdaaabac": 1}, 3, tie_break="lexicographic_max")
    [(b'a', b'a'), (b'aa', b'a'), (b'aaa', b'b')]
    >>> train_merges({b"aaabdaaabac": 1}, 3, tie_break="lowest_ids")
    [(b'a', b'a'), (b'a', b'b'), (b'aa', b'ab')]

There (aa, a) occurs first, and is merged first by the textbooks' rule. In `bcab` the three rules differ:

    >>> train_merges({b"aaabdaaabac": 1}, 3, tie_break="first_seen")
    [(b'a', b'a'), (b'aa', b'a'), (b'aaa', b'b')]
    >>> rules = ["lexicographic_max", "lowest_ids", "first_seen"]
    >>> [train_merges({b"bcab": 1}, 1, tie_break=rule) for rule in rules]
    [[(b'c', b'a')], [(b'a', b'b')], [(b'b', b'c')]]
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, product
from typing import TypeVar

from tokmill.tokenizer.core.text import BYTE_ORDER

Pair = tuple[bytes, bytes]
Symbol = TypeVar("Symbol", str, bytes)

_NO_LIMIT = 1 << 62


def join(symbols: Sequence[Symbol], pair: tuple[Symbol, Symbol]) -> list[Symbol]:
    """Join each place where a pair stands, from the left."""
    joined: list[Symbol] = []
    for symbol in symbols:
        if joined and (joined[-1], symbol) == pair:
            joined[-1] += symbol
        else:
            joined.append(symbol)
    return joined


def count_pairs(words: Iterable[tuple[Sequence[Symbol], int]]) -> Counter[tuple[Symbol, Symbol]]:
    """Count neighbours, in the order in which they occur; a word's count counts for each of its places."""
    pairs: Counter[tuple[Symbol, Symbol]] = Counter()
    for symbols, count in words:
        for pair in pairwise(symbols):
            pairs[pair] += count
    return pairs


def first_pair(pairs: Mapping[Pair, int], tie_break: str, ids: Sequence[bytes]) -> Pair:
    """Return the most frequent pair; of equal ones the greatest, that of the lowest ids, or the first."""
    most = [pair for pair, count in pairs.items() if count == max(pairs.values())]
    if tie_break == "first_seen":
        return most[0]
    if tie_break == "lowest_ids":
        return min(most, key=lambda pair: (ids.index(pair[0]), ids.index(pair[1])))
    return max(most)


def train_merges(
    counts: Mapping[bytes, int],
    num_merges: int,
    *,
    tie_break: str = "lexicographic_max",
    min_frequency: int = 1,
    max_token_bytes: int | None = None,
    forbidden: Sequence[bytes] = (),
) -> list[Pair]:
    """Train merges by recounting all pairs for every merge; shorter than asked where the pairs run out.

    Pairs are counted in the order of `counts`, from left to right, so a dictionary holds the one that occurs
    first before the others.
    """
    words = [([word[i : i + 1] for i in range(len(word))], count) for word, count in counts.items() if count]
    ids, merges, longest = [bytes([byte]) for byte in BYTE_ORDER], list[Pair](), max_token_bytes or _NO_LIMIT
    while len(merges) < num_merges:
        possible = {
            pair: count
            for pair, count in count_pairs(words).items()
            if count >= max(min_frequency, 1)
            and len(pair[0] + pair[1]) <= longest
            and pair[0] + pair[1] not in forbidden
        }
        if not possible:
            break
        best = first_pair(possible, tie_break, ids)
        merges.append(best)
        ids.append(best[0] + best[1])
        words = [(join(symbols, best), count) for symbols, count in words]
    return merges


def merge(symbols: Iterable[Symbol], ranks: Mapping[tuple[Symbol, Symbol], int]) -> list[Symbol]:
    """Join the pair of lowest rank, the leftmost first, and again."""
    left = list(symbols)
    while places := [(ranks[pair], i) for i, pair in enumerate(pairwise(left)) if pair in ranks]:
        _, i = min(places)
        left[i : i + 2] = [left[i] + left[i + 1]]
    return left


def encode_pretoken(pretoken: bytes, ranks: Mapping[Pair, int]) -> list[bytes]:
    """Encode one pre-token by merges: `ranks` maps a pair to its place in the order of merges."""
    return merge([pretoken[i : i + 1] for i in range(len(pretoken))], ranks)


def dropout_chances(
    pretoken: bytes | Sequence[bytes], ranks: Mapping[Pair, int], dropout: float
) -> dict[tuple[bytes, ...], float]:
    """Return every segmentation of bytes, or other letters, that BPE-dropout can give, and its probability.

    At each step each place that a merge could join is left out with the probability `dropout`; of the others
    the one of the earliest merge is joined, the leftmost first. If none is left, the pre-token is done.
    """
    chances: dict[tuple[bytes, ...], float] = {}

    def follow(symbols: tuple[bytes, ...], chance: float) -> None:
        places = sorted((ranks[pair], i) for i, pair in enumerate(pairwise(symbols)) if pair in ranks)
        for kept in product([True, False], repeat=len(places)):
            likely = chance * math.prod(1 - dropout if keep else dropout for keep in kept)
            if not any(kept):
                chances[symbols] = chances.get(symbols, 0.0) + likely
            elif likely:
                _, i = places[kept.index(True)]
                follow((*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :]), likely)

    single = (pretoken[i : i + 1] for i in range(len(pretoken))) if isinstance(pretoken, bytes) else pretoken
    follow(tuple(single), 1.0)
    return chances


def encode_by_token_ranks(pretoken: bytes, vocab: Mapping[bytes, int]) -> list[int]:
    """Encode one pre-token as tiktoken does.

    A pre-token that is a token is one token; else any two neighbours whose joined bytes are a token are a
    pair, and the pair that makes the token of the lowest id is joined first.
    """
    if pretoken in vocab:
        return [vocab[pretoken]]
    ranks = {(text[:cut], text[cut:]): i for text, i in vocab.items() for cut in range(1, len(text))}
    return [vocab[symbol] for symbol in encode_pretoken(pretoken, ranks)]


def find_specials(data: bytes, specials: Mapping[bytes, int]) -> list[tuple[int, int, int]]:
    """Find special tokens as (start, end, id): leftmost first, the longest at a place, none overlapping."""
    found = []
    i = 0
    while i < len(data):
        here = [special for special in specials if special and data.startswith(special, i)]
        if here:
            longest = max(here, key=len)
            found.append((i, i + len(longest), specials[longest]))
            i += len(longest)
        else:
            i += 1
    return found
