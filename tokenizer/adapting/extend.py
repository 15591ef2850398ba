"""Add tokens to a byte-level BPE vocabulary, without changing an id or the encoding of any other text.

A new token is a whole pre-token: where a pre-token of a text equals it, it is taken whole, as `ignore_merges`
says (so do tiktoken, and Llama 3's files for Hugging Face's tokenizers). No merge is added, so the tokens of
all other pre-tokens stay as they were. New ids follow the last one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tokmill.tokenizer.adapting.plan import EmbeddingPlan
from tokmill.tokenizer.adapting.terms import Term
from tokmill.tokenizer.byte_bpe.model import BytePairModel
from tokmill.tokenizer.core.errors import VocabularyError
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.tokenizer import Tokenizer


@dataclass(frozen=True)
class Changed:
    """A tokenizer whose vocabulary was changed, and where its embeddings come from."""

    tokenizer: Tokenizer
    plan: EmbeddingPlan


def extended(tok: Tokenizer, terms: Sequence[Term]) -> Changed:
    """Add terms that were checked (`check_terms`) or found (`mine`) as tokens, in their order.

    Raises:
        VocabularyError: the tokenizer is of another family than byte-level BPE, or has tokens that merging
            does not lead to; or there is no term.
    """
    model = byte_pairs(tok, "extend")
    if not terms:
        raise VocabularyError("extend: there is no term to add; every one is a token, or is cut in two")
    vocabulary, first = model.vocabulary, model.vocabulary.size
    tokens = dict(vocabulary.ordinary()) | {first + k: term.token for k, term in enumerate(terms)}
    grown = Vocabulary.build(tokens, vocabulary.special_tokens, vocabulary.num_reserved)
    made = replace(tok.definition, model=BytePairModel(grown, model.merges, ignore_merges=True))
    sources = {first + k: term.ids for k, term in enumerate(terms)}
    plan = EmbeddingPlan.of(tok.definition.tokens, [*range(first), *[-1] * len(terms)], sources)
    return Changed(Tokenizer(made), plan)


def byte_pairs(tok: Tokenizer, what: str) -> BytePairModel:
    """Return the model of a tokenizer whose tokens are all reached, by merging or whole.

    Raises:
        VocabularyError: it is of another family, or tokens are not reached.
    """
    model = tok.definition.model
    if not isinstance(model, BytePairModel):
        raise VocabularyError(
            f"{what}: a {tok.family} vocabulary cannot be changed: any token may appear within words of all "
            "texts; train another, or use a byte_bpe tokenizer"
        )
    if not model.ignore_merges:
        unreached = unreached_tokens(model)
        if len(unreached):
            raise VocabularyError(
                f"{what}: merging does not lead to {len(unreached)} tokens (the first is "
                f"{model.vocabulary.tokens[int(unreached[0])]!r}), which would be taken whole from now on; "
                "load the tokenizer with ignore_merges=true if they should be"
            )
    return model


def unreached_tokens(model: BytePairModel) -> np.ndarray:
    """Return the ids of tokens of two bytes or more that merging does not lead to, int64, ascending."""
    made = np.zeros(model.vocabulary.size, dtype=np.bool_)
    made[model.merges[:, 2]] = True
    lengths = np.diff(model.vocabulary.offsets)
    made[list(model.vocabulary.special_tokens.values())] = True
    return np.flatnonzero((lengths > 1) & ~made)
