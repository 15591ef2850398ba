"""Take the tokens away that cost least, until a byte-level BPE vocabulary has the wanted size.

Only leaves of the tree of merges are taken: the rarest in the corpus first, then the longest, then the
greatest id. Bytes, special and added tokens stay. Ids are numbered again, in the old order.
"""

import heapq
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.adaptation.extend import Changed, byte_pairs
from tokmill.tokenizer.adaptation.plan import EmbeddingPlan
from tokmill.tokenizer.byte_bpe.model import BytePairModel
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.tokenizer import Tokenizer


def trimmed(tok: Tokenizer, token_counts: NDArray[np.uint64], size: int) -> Changed:
    """Take tokens away until `size` are left."""
    model = byte_pairs(tok, "trim")
    present = [token for token, text in enumerate(model.vocabulary.tokens) if text]
    named = model.vocabulary.special_tokens.values(), tok.definition.added_ids.values()
    fixed = {*model.byte_ids.tolist(), *named[0], *named[1]}
    least = len(fixed)
    if not least <= size < len(present):
        raise VocabularyError(
            f"trim: {size} must be from {least} (bytes, special and added tokens) to {len(present) - 1} (one "
            "token less than there are)"
        )
    gone = _leaves(model, token_counts, len(present) - size, fixed)
    left = [token for token in present if token not in gone]
    return Changed(
        Tokenizer(replace(tok.definition, model=_with_ids(model, left))),
        EmbeddingPlan.of(model.vocabulary.tokens, left, {}),
    )


def _leaves(model: BytePairModel, token_counts: NDArray[np.uint64], number: int, fixed: set[int]) -> set[int]:
    """Return the ids of tokens to take away, one leaf of the tree of merges after the other."""
    counts = token_counts.astype(np.int64).tolist()
    parts: dict[int, list[tuple[int, int]]] = {}
    uses = [0] * model.vocabulary.size
    for left, right, result in model.merges.tolist():
        parts.setdefault(result, []).append((left, right))
        uses[left] += 1
        uses[right] += 1
    lengths = np.diff(model.vocabulary.offsets).tolist()

    def entry(token: int) -> tuple[int, int, int]:
        return counts[token], -lengths[token], -token

    free = [token for token in range(len(uses)) if lengths[token] and token not in fixed]
    heap = [(*entry(token), token) for token in free if not uses[token]]
    heapq.heapify(heap)
    gone: set[int] = set()
    while len(gone) < number:
        if not heap:  # merges lead to a special token, which stays
            raise VocabularyError(
                f"trim: only {len(gone)} of {number} tokens can be taken away: special tokens are merged "
                f"from the others; use a size of at least {len(free) - len(gone) + len(fixed)}"
            )
        count, *_, token = heapq.heappop(heap)
        if token in gone or count != counts[token]:
            continue  # it was counted again since
        gone.add(token)
        for part in {part for pair in parts.get(token, ()) for part in pair}:
            counts[part] += count
            uses[part] -= sum(pair.count(part) for pair in parts[token])
            if not uses[part] and part not in fixed:
                heapq.heappush(heap, (*entry(part), part))
    return gone


def _with_ids(model: BytePairModel, left: list[int]) -> BytePairModel:
    """Return the model with these tokens only, numbered in their order."""
    new = np.full(model.vocabulary.size, -1, dtype=np.int32)
    new[left] = np.arange(len(left), dtype=np.int32)
    specials = {name: int(new[token]) for name, token in model.vocabulary.special_tokens.items()}
    special_ids = set(model.vocabulary.special_tokens.values())
    tokens = {int(new[token]): model.vocabulary.tokens[token] for token in left if token not in special_ids}
    rows = new[model.merges]
    vocabulary = Vocabulary.build(tokens, specials, model.vocabulary.num_reserved)
    return BytePairModel(vocabulary, np.ascontiguousarray(rows[(rows >= 0).all(axis=1)]), model.ignore_merges)
