"""Go on with a training: new merges for byte-level BPE, after the old ones, from the text of a domain.

Pre-tokens are cut into tokens as now; then the most frequent pair of neighbours is merged, ties going to the
lower ids, as a longer training with `lowest_ids` would. Old ids and merges stay, and a new token replaces
neighbours that the old tokenizer gives; everything else keeps its ids.
"""

import heapq
import itertools
from collections import defaultdict
from dataclasses import replace

import numpy as np

from tokmill.tokenizer.adaptation.extend import Changed, byte_pairs
from tokmill.tokenizer.adaptation.plan import EmbeddingPlan
from tokmill.tokenizer.byte_bpe.model import BytePairModel
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.stopping import raise_if_stopped
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.splitting import Pretokens
from tokmill.tokenizer.tokenizer import Tokenizer

_PRETOKENS_A_STEP = 1 << 16


def continued(tok: Tokenizer, counts: PretokenCounts, number: int, *, least: int = 2) -> Changed:
    """Add `number` merges, or fewer if no pair occurs `least` times any more."""
    model = byte_pairs(tok, "extend")
    words = _Words(model, counts)
    rows = words.merges(number, max(least, 1))
    if not rows:
        raise VocabularyError(
            f"extend: no two neighbouring tokens occur {least} times in the texts; add text, or lower the "
            "least number of occurrences"
        )
    vocabulary, first = model.vocabulary, model.vocabulary.size
    added = {token: words.tokens[token] for token in range(first, len(words.tokens))}
    grown = Vocabulary.build(
        dict(vocabulary.ordinary()) | added, vocabulary.special_tokens, vocabulary.num_reserved
    )
    merges = np.concatenate([model.merges, np.array(rows, dtype=np.int32)])
    made = replace(tok.definition, model=BytePairModel(grown, merges, model.ignore_merges))
    plan = EmbeddingPlan.of(tok.definition.tokens, [*range(first), *[-1] * len(rows)], _sources(rows))
    return Changed(Tokenizer(made), plan)


def _sources(rows: list[tuple[int, int, int]]) -> dict[int, tuple[int, ...]]:
    """Return the old ids that each new token consists of."""
    found: dict[int, tuple[int, ...]] = {}
    for left, right, new in rows:
        found[new] = (*found.get(left, (left,)), *found.get(right, (right,)))
    return found


class _Words:
    """Pre-tokens as tokens, and where each pair of neighbours is.

    Attributes:
        tokens: the bytes of every id, new ones included.
    """

    def __init__(self, model: BytePairModel, counts: PretokenCounts) -> None:
        self.tokens = list(model.vocabulary.tokens)
        self._known = set(self.tokens)
        self._words, self._counts = _encoded(model, counts)
        self._pairs: dict[tuple[int, int], int] = defaultdict(int)
        self._places: dict[tuple[int, int], set[int]] = defaultdict(set)
        for place in range(len(self._words)):
            self._count(place, 1)
        self._queue = [(-count, *pair) for pair, count in self._pairs.items()]
        heapq.heapify(self._queue)

    def merges(self, number: int, least: int) -> list[tuple[int, int, int]]:
        """Merge up to `number` pairs; return rows of left, right and new id."""
        rows: list[tuple[int, int, int]] = []
        while len(rows) < number and self._queue:
            count, left, right = heapq.heappop(self._queue)
            if -count < least:
                break
            joined = self.tokens[left] + self.tokens[right]
            if self._pairs.get((left, right)) == -count and joined not in self._known:
                rows.append((left, right, len(self.tokens)))
                self._merge(left, right, joined)
                raise_if_stopped()
        return rows

    def _merge(self, left: int, right: int, joined: bytes) -> None:
        new = len(self.tokens)
        self.tokens.append(joined)
        self._known.add(joined)
        changed: set[tuple[int, int]] = set()
        for place in sorted(self._places.pop((left, right))):
            changed |= self._count(place, -1)
            self._words[place] = _joined(self._words[place], left, right, new)
            changed |= self._count(place, 1)
        for pair in changed:
            count = self._pairs[pair]
            if count:
                heapq.heappush(self._queue, (-count, *pair))
            else:
                del self._pairs[pair]

    def _count(self, place: int, sign: int) -> set[tuple[int, int]]:
        """Count the pairs of a pre-token, or take them off; return them."""
        word = self._words[place]
        pairs = list(itertools.pairwise(word))
        for pair in pairs:
            self._pairs[pair] += sign * self._counts[place]
            if sign > 0:
                self._places[pair].add(place)
        return set(pairs)


def _joined(word: list[int], left: int, right: int, new: int) -> list[int]:
    """Return a word with a pair merged, from the left."""
    merged: list[int] = []
    place = 0
    while place < len(word):
        both = word[place] == left and place + 1 < len(word) and word[place + 1] == right
        merged.append(new if both else word[place])
        place += 1 + both
    return merged


def _encoded(model: BytePairModel, counts: PretokenCounts) -> tuple[list[list[int]], list[int]]:
    """Return the ids of the pre-tokens of two tokens or more, and how often each occurs."""
    words: list[list[int]] = []
    kept: list[int] = []
    with model.encoder().workspace() as workspace:
        for first in range(0, len(counts), _PRETOKENS_A_STEP):
            raise_if_stopped()
            bounds = counts.offsets[first : first + _PRETOKENS_A_STEP + 1]
            number = len(bounds) - 1
            pretokens = Pretokens(bounds[:-1], bounds[1:], np.arange(number + 1))
            ids, ends, _ = workspace.encode(counts.data, pretokens, np.full(number, -1, dtype=np.int64))
            for k in np.flatnonzero(np.diff(ends) > 1).tolist():
                words.append(ids[ends[k] : ends[k + 1]].tolist())
                kept.append(int(counts.counts[first + k]))
    return words, kept
