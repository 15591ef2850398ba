"""Go on with a training: new merges for byte-level BPE, after the old ones, from the text of a domain.

Pre-tokens are cut into tokens as now; then the most frequent pair of neighbours is merged, ties going to the
lower ids, as a longer training with `lowest_ids` would. Old ids and merges stay, and a new token replaces
neighbours that the old tokenizer gives; everything else keeps its ids.
"""

from dataclasses import replace

import numpy as np

from tokmill.tokenizer.adaptation.extend import Changed, byte_pairs
from tokmill.tokenizer.adaptation.plan import EmbeddingPlan
from tokmill.tokenizer.byte_bpe.model import BytePairModel
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.stopping import raise_if_stopped
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.merging.layout import Text, check_total, in_cells
from tokmill.tokenizer.merging.rules import MergeRules
from tokmill.tokenizer.merging.trainer import PairTrainer
from tokmill.tokenizer.splitting import Pretokens
from tokmill.tokenizer.tokenizer import Tokenizer

_PRETOKENS_A_STEP = 1 << 16


def continued(tok: Tokenizer, counts: PretokenCounts, number: int, *, least: int = 2) -> Changed:
    """Add `number` merges, or fewer if no pair occurs `least` times any more."""
    model = byte_pairs(tok, "extend")
    vocabulary, first = model.vocabulary, model.vocabulary.size
    rules = MergeRules("lowest_ids", least, allows=lambda piece: piece not in trainer.numbers)
    trainer = PairTrainer(_text_of(model, counts), rules, first + number)
    trainer.learn(first + number)
    rows = [(left, right, first + k) for k, (left, right) in enumerate(trainer.merged)]
    if not rows:
        raise VocabularyError(
            f"extend: no two neighbouring tokens occur {least} times in the texts; add text, or lower the "
            "least number of occurrences"
        )
    added = dict(enumerate(trainer.pieces[first:], start=first))
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


def _text_of(model: BytePairModel, counts: PretokenCounts) -> Text:
    """Return the pre-tokens of two tokens or more, as their ids."""
    check_total(counts)
    ids, lengths, weights = [np.empty(0, np.int32)], [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    with model.encoder().workspace() as workspace:
        for first in range(0, len(counts), _PRETOKENS_A_STEP):
            raise_if_stopped()
            bounds = counts.offsets[first : first + _PRETOKENS_A_STEP + 1]
            number = len(bounds) - 1
            pretokens = Pretokens(bounds[:-1], bounds[1:], np.arange(number + 1))
            found, ends, _ = workspace.encode(counts.data, pretokens, np.full(number, -1, dtype=np.int64))
            sizes = np.diff(ends)
            ids.append(found[np.repeat(sizes > 1, sizes)].astype(np.int32))
            lengths.append(sizes[sizes > 1])
            weights.append(counts.counts[first : first + number][sizes > 1].astype(np.int64))
    sizes, tokens = np.concatenate(lengths), model.vocabulary.tokens
    words = np.repeat(np.arange(sizes.shape[0]), sizes), np.repeat(np.concatenate(weights), sizes)
    return Text(list(tokens), in_cells(np.concatenate(ids), *words, len(tokens)), np.empty(0, np.int64))
