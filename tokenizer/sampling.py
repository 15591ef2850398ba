"""Draw other segmentations of texts, for training (subword regularization), from any family that has them.

A family has one strength: `dropout` for byte_bpe, char_bpe and word_bpe, `alpha` for unigram. The other
families have one segmentation of each text.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tokmill.tokenizer.components.normalizers import Normalizer
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import EncodedBatch, Texts
from tokmill.tokenizer.core.errors import TokenizerError
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.families import FAMILIES, find_family
from tokmill.tokenizer.tokenizer import Tokenizer


def sample_batch(
    definition: Definition,
    texts: Texts,
    *,
    dropout: float | None = None,
    alpha: float | None = None,
    seed: int = 0,
) -> EncodedBatch:
    """Encode texts by random segmentations.

    The draw depends on the seed, the pre-token and its number in its text (between added tokens): neither on
    the other texts nor on how they are batched, and equal texts are cut alike. So take another seed for every
    epoch.

    Args:
        definition: of a tokenizer (`Tokenizer.definition`).
        texts: documents; special tokens in them are encoded as text.
        dropout: all but unigram: the probability with which a merge is left out at each step; 0 gives the
            encoding, 1 single bytes, characters or letters. Provilkov et al. use 0.1, and 0.6 for Chinese and
            Japanese; near 1 it takes long for very long pre-tokens.
        alpha: unigram: the power of the probabilities with which segmentations are drawn; a large number
            gives the encoding.
        seed: from 0 to 2**64 - 1.

    Raises:
        TokenizerError: the family has no other segmentations, its strength is missing, that of another family
            is given, or a value is out of range.
    """
    family = find_family(definition.family)
    if family.sample is None:
        able = [name for name in FAMILIES if find_family(name).sample is not None]
        raise TokenizerError(
            f"sample: a {family.name} tokenizer has one segmentation of each text; use one of family "
            f"{' or '.join(able)}"
        )
    given = {name: value for name, value in (("dropout", dropout), ("alpha", alpha)) if value is not None}
    if list(given) != [family.strength]:
        raise TokenizerError(
            f"sample: a {family.name} tokenizer needs {family.strength}, and was given "
            f"{', '.join(given) or 'nothing'}; use e.g. {family.strength}=0.1"
        )
    draw = partial(family.sample, **given, seed=seed)
    return _draw_around_added(definition, texts, draw) if definition.added_tokens else draw(definition, texts)


def _draw_around_added(
    definition: Definition, texts: Texts, draw: Callable[[Definition, Texts], EncodedBatch]
) -> EncodedBatch:
    """Draw segmentations of the texts between added tokens, which have one."""
    data, segments = Tokenizer(definition).normalized_segments(*buffers.pack(texts))
    is_text = segments.kinds < 0
    parts = [
        part for part, drawn in zip(buffers.unpack(data, segments.bounds), is_text, strict=True) if drawn
    ]
    nothing: Any = {"added_tokens": (), "normalized_tokens": (), "absorbing": {}, "normalizer": Normalizer()}
    found = draw(replace(definition, **nothing), parts)
    lengths = np.ones(is_text.shape[0], np.int64)
    lengths[is_text] = np.diff(found.offsets)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    ids = np.repeat(segments.kinds, lengths).astype(found.ids.dtype)
    ids[np.repeat(is_text, lengths)] = found.ids
    return EncodedBatch(ids, offsets[segments.documents])
