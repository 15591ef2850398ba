"""Draw other segmentations of texts, for training (subword regularization), from any family that has them.

A family has one strength: `dropout` for byte_bpe, char_bpe and word_bpe (`byte_bpe.sampling`), `alpha` for
unigram (`unigram.sampling`). The other families have one segmentation of each text.
"""

import importlib
from types import MappingProxyType

from tokmill.tokenizer.core.buffers import EncodedBatch, Texts
from tokmill.tokenizer.core.errors import TokenizerError
from tokmill.tokenizer.pipeline.definition import Definition

_STRENGTHS = MappingProxyType(
    {"byte_bpe": "dropout", "char_bpe": "dropout", "word_bpe": "dropout", "unigram": "alpha"}
)


def sample_batch(
    definition: Definition,
    texts: Texts,
    *,
    dropout: float | None = None,
    alpha: float | None = None,
    seed: int = 0,
) -> EncodedBatch:
    """Encode texts by random segmentations.

    The draw depends on the seed, the pre-token and its number in its text: neither on the other texts nor on
    how they are batched, and equal texts are cut alike. So take another seed for every epoch.

    Args:
        definition: of a tokenizer (`Tokenizer.definition`).
        texts: documents; special tokens in them are encoded as text.
        dropout: all but unigram: the probability with which a merge is left out at each step; 0 gives the
            encoding.
        alpha: unigram: the power of the probabilities with which segmentations are drawn; a large number
            gives the encoding.
        seed: from 0 to 2**64 - 1.

    Raises:
        TokenizerError: the family has no other segmentations, its strength is missing, that of another family
            is given, or a value is out of range.
    """
    family = definition.family
    strength = _STRENGTHS.get(family)
    if strength is None:
        raise TokenizerError(
            f"sample: a {family} tokenizer has one segmentation of each text; use one of family "
            f"{' or '.join(_STRENGTHS)}"
        )
    given = {name: value for name, value in (("dropout", dropout), ("alpha", alpha)) if value is not None}
    if list(given) != [strength]:
        raise TokenizerError(
            f"sample: a {family} tokenizer needs {strength}, and was given {', '.join(given) or 'nothing'}; "
            f"use e.g. {strength}=0.1"
        )
    module = importlib.import_module(f"tokmill.tokenizer.{family}.sampling")
    drawn: EncodedBatch = module.sample_batch(definition, texts, **given, seed=seed)
    return drawn
