"""Segmentations other than the encoding, for training: BPE-dropout.

Laws: the bytes of the tokens add up to the text; with the dropout 0 the ids are those of the encoding, with 1
    those of the bytes.

Source: Provilkov, Emelianenko and Voita 2020, "BPE-Dropout: Simple and Effective Subword Regularization".
"""

import numpy as np

from tokmill.tokenizer.byte_bpe.encoder import Tiling
from tokmill.tokenizer.byte_bpe.kernels.encoding import sample_merges
from tokmill.tokenizer.byte_bpe.model import NAME, model_of
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import EncodedBatch, Texts
from tokmill.tokenizer.core.errors import LawError, TokenizerError
from tokmill.tokenizer.kernels.merges import make_scratch
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.drawing import check_seed, check_strength, cut_texts

_MAX_BYTES = (1 << 31) - 1


def sample_batch(definition: Definition, texts: Texts, *, dropout: float, seed: int = 0) -> EncodedBatch:
    """Encode texts with BPE-dropout.

    At each step of merging a pre-token every place that a merge could join is left out with the probability
    `dropout`, and of the others the one of the lowest rank is joined, the leftmost first. A pre-token is done
    when all places are left out. The draw depends on the seed, the pre-token and its number in its text:
    neither on the other texts nor on how they are batched, and equal texts are cut alike. So take another
    seed for every epoch. With `ignore_merges`, a pre-token that is a token is taken whole with the dropout 0
    alone. A step tries 1 / (1 - dropout) places on average, so that a dropout near 1 takes long for
    pre-tokens of very many bytes.
    """
    check_strength("dropout", dropout, 1)
    check_seed(seed)
    if definition.family != NAME:
        raise TokenizerError(f"sample: dropout is for the merges of {NAME}, and this is {definition.family}")
    model = model_of(definition)
    data, bounds, pretokens = cut_texts(definition, texts)
    longest = int((pretokens.ends - pretokens.starts).max(initial=0))
    if longest > _MAX_BYTES:
        raise TokenizerError(
            f"sample: a pre-token has {longest} bytes, but at most {_MAX_BYTES} can be encoded; "
            "cut the document, or use a split pattern that does"
        )
    ids, offsets = np.empty(data.shape[0], np.uint32), np.zeros(bounds.shape[0], np.int64)
    given = data, pretokens.starts, pretokens.ends, pretokens.offsets, model.tables.pairs, model.tables.whole
    scratch = make_scratch(longest), np.empty(longest, np.uint64)
    size = sample_merges(*given, *scratch, float(dropout), np.array([seed], np.uint64), ids, offsets)
    breach = Tiling(model.vocabulary.offsets).breach(ids[:size], offsets, bounds)
    if breach is not None:
        raise LawError(breach.says, breach.segment)
    return EncodedBatch(ids[:size].astype(buffers.id_type(definition.vocab_size)), offsets)
