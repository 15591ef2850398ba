"""A trainer in plain Python, fast enough for a real vocabulary: the definition, without counting all anew.

Like `tokenizer.reference.byte_bpe.train_merges` it knows nothing but strings of bytes, sets and sums; what it
adds is to count again only the words that a merge changes.
"""

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise

from tokmill.tokenizer.reference.byte_bpe import Pair, merge_everywhere


class Last:
    """Turns the order of pairs around, for a heap that gives the least."""

    __slots__ = ("pair",)

    def __init__(self, pair: Pair) -> None:
        self.pair = pair

    def __lt__(self, other: "Last") -> bool:
        return self.pair > other.pair


def train_merges(counts: Mapping[bytes, int], num_merges: int) -> list[Pair]:
    """Train merges; of equal counts the greater pair of byte strings wins."""
    words = [[word[i : i + 1] for i in range(len(word))] for word in counts]
    weights = list(counts.values())
    pairs: Counter[Pair] = Counter()
    places: defaultdict[Pair, set[int]] = defaultdict(set)
    for number, symbols in enumerate(words):
        for pair in pairwise(symbols):
            pairs[pair] += weights[number]
            places[pair].add(number)
    heap = [(-count, Last(pair)) for pair, count in pairs.items()]
    heapq.heapify(heap)
    merges: list[Pair] = []
    while heap and len(merges) < num_merges:
        count, last = heapq.heappop(heap)
        if pairs[last.pair] != -count or count == 0:
            continue
        merges.append(last.pair)
        changed = set()
        for number in places.pop(last.pair):
            before, after = words[number], merge_everywhere(words[number], last.pair)
            words[number] = after
            changed.update(pairwise(before), pairwise(after))
            for pair in pairwise(before):
                pairs[pair] -= weights[number]
            for pair in pairwise(after):
                pairs[pair] += weights[number]
                places[pair].add(number)
        for pair in changed:
            heapq.heappush(heap, (-pairs[pair], Last(pair)))
    return merges
