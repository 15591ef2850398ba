"""Families whose model is a closed vocabulary; they differ in the strings that pre-tokens are cut into."""

from collections.abc import Mapping, Sequence
from typing import Any

from tokmill.tokenizer.closed_vocabulary.encoder import Cut
from tokmill.tokenizer.closed_vocabulary.model import UNKNOWN, ClosedModel
from tokmill.tokenizer.closed_vocabulary.training import ClosedTraining, check_options, least_vocab_size
from tokmill.tokenizer.core.pretoken_counts import PretokenCounts
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.families import Family
from tokmill.tokenizer.pipeline.options import ModelOptions


def closed_family(name: str, title: str, kind: str, cut: Cut, formats: Mapping[str, str]) -> Family:
    """Make the family.

    Args:
        name: see `Family`.
        title: see `Family`.
        kind: what its tokens are called, one of them: `word`.
        cut: cuts pre-tokens into the strings that are looked up.
        formats: see `Family`.
    """

    def model_of(vocabulary: Vocabulary, unknown_token: str = UNKNOWN) -> ClosedModel:
        return ClosedModel(name, kind, cut, vocabulary, unknown_token)

    def from_spec(vocabulary: Vocabulary, spec: Mapping[str, Any]) -> ClosedModel:
        return model_of(vocabulary, spec["unknown_token"])

    def trainer(counts: PretokenCounts, options: ModelOptions, vocab_sizes: Sequence[int]) -> ClosedTraining:
        return ClosedTraining(model_of, cut, counts, options, vocab_sizes)

    parts = from_spec, trainer, least_vocab_size
    return Family(name, title, f"{kind}s", *parts, formats, check_options=check_options, revision=1)
