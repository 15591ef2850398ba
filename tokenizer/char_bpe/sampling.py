"""Segmentations other than the encoding, for training: BPE-dropout of characters.

Laws: the bytes of the pieces and of unknown characters add up to the text; with the dropout 0 the ids are
    those of the encoding, with 1 those of single characters and of symbols that users defined.

Source: Provilkov, Emelianenko and Voita 2020, "BPE-Dropout: Simple and Effective Subword Regularization".
"""

import numpy as np

from tokmill.tokenizer.char_bpe.kernels.encoding import sample_characters
from tokmill.tokenizer.char_bpe.model import NAME, CharacterPairModel
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import EncodedBatch, Texts
from tokmill.tokenizer.core.errors import LawError, TokenizerError
from tokmill.tokenizer.kernels.merges import make_scratch
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.drawing import check_seed, check_strength, cut_texts


def sample_batch(definition: Definition, texts: Texts, *, dropout: float, seed: int = 0) -> EncodedBatch:
    """Encode texts with BPE-dropout.

    At each step every place where two pieces can be joined is left out with the probability `dropout`, and of
    the others the one whose joined piece has the greatest score is joined, the leftmost first. A pre-token is
    done when all places are left out. The draw depends on the seed, the pre-token and its number in its text.
    """
    check_strength("dropout", dropout, 1)
    check_seed(seed)
    model = definition.model
    if not isinstance(model, CharacterPairModel):
        raise TokenizerError(f"sample: these merges are those of {NAME}, and this is {definition.family}")
    data, bounds, pretokens = cut_texts(definition, texts)
    number, longest = bounds.shape[0] - 1, int((pretokens.ends - pretokens.starts).max(initial=0))
    scratch, encoder = make_scratch(longest), model.encoder()
    ids, ends = np.empty(data.shape[0], np.uint32), np.zeros(number + 1, np.int64)
    lost, left_out = np.empty(number, np.int64), np.empty(scratch.ids.shape[0], np.uint64)
    given = data, pretokens.starts, pretokens.ends, pretokens.offsets, encoder.pieces, scratch, left_out
    size = sample_characters(*given, float(dropout), np.array([seed], np.uint64), ids, ends, lost)
    breach = encoder.law.breach(ids[:size], ends, bounds, lost)
    if breach is not None:
        raise LawError(breach.says, breach.segment)
    return EncodedBatch(ids[:size].astype(buffers.id_type(definition.vocab_size)), ends)
