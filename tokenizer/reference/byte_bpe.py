"""Slow, obvious implementations that the kernels are held to. Nothing here is used at run time.

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
from collections.abc import Mapping, Sequence
from itertools import pairwise, product
from operator import itemgetter

from tokmill.tokenizer.core.text import BYTE_ORDER

Pair = tuple[bytes, bytes]

_NO_TOKEN = 1 << 62


def merge_everywhere(symbols: list[bytes], pair: Pair) -> list[bytes]:
    """Join each place where a pair stands, from the left."""
    out: list[bytes] = []
    i = 0
    while i < len(symbols):
        if i + 1 < len(symbols) and (symbols[i], symbols[i + 1]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


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
    words = {word: [word[i : i + 1] for i in range(len(word))] for word, count in counts.items() if count}
    ids = {bytes([byte]): i for i, byte in enumerate(BYTE_ORDER)}
    merges: list[Pair] = []
    while len(merges) < num_merges:
        pairs: Counter[Pair] = Counter()
        for word, symbols in words.items():
            for pair in pairwise(symbols):
                pairs[pair] += counts[word]
        possible = [
            (count, pair)
            for pair, count in pairs.items()
            if count >= max(min_frequency, 1)
            and (max_token_bytes is None or len(pair[0] + pair[1]) <= max_token_bytes)
            and pair[0] + pair[1] not in forbidden
        ]
        if not possible:
            return merges
        if tie_break == "lexicographic_max":
            best = max(possible)[1]
        elif tie_break == "first_seen":
            best = max(possible, key=itemgetter(0))[1]  # of equal ones, max takes the first
        else:
            best = min(possible, key=lambda found: (-found[0], ids[found[1][0]], ids[found[1][1]]))[1]
        merges.append(best)
        ids.setdefault(best[0] + best[1], len(ids))
        words = {word: merge_everywhere(symbols, best) for word, symbols in words.items()}
    return merges


def encode_pretoken(pretoken: bytes, ranks: Mapping[Pair, int]) -> list[bytes]:
    """Encode one pre-token by merges: `ranks` maps a pair to its place in the order of merges."""
    symbols = [pretoken[i : i + 1] for i in range(len(pretoken))]
    while len(symbols) > 1:
        rank, i = min((ranks.get(pair, len(ranks)), i) for i, pair in enumerate(pairwise(symbols)))
        if rank == len(ranks):
            break
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
    return symbols


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
    symbols = [pretoken[i : i + 1] for i in range(len(pretoken))]
    while len(symbols) > 1:
        joined = [vocab.get(a + b, _NO_TOKEN) for a, b in pairwise(symbols)]
        i = min(range(len(joined)), key=joined.__getitem__)
        if joined[i] == _NO_TOKEN:
            break
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
    return [vocab[symbol] for symbol in symbols]


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
