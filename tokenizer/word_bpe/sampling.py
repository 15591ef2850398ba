"""Segmentations other than the encoding, for training: BPE-dropout of words.

Laws: the bytes of the pieces, of unknown letters and of white space add up to the text; with the dropout 0
    the ids are those of the encoding, with 1 those of the letters.

Source: Provilkov, Emelianenko and Voita 2020, "BPE-Dropout: Simple and Effective Subword Regularization".
"""

import numpy as np

from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.core.buffers import EncodedBatch, Texts
from tokmill.tokenizer.core.errors import LawError, TokenizerError
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.drawing import check_seed, check_strength, cut_texts
from tokmill.tokenizer.splitting.splitter import words_of
from tokmill.tokenizer.word_bpe.encoder import id_room, scratch_for
from tokmill.tokenizer.word_bpe.kernels.encoding import sample_words
from tokmill.tokenizer.word_bpe.model import NAME, model_of


def sample_batch(definition: Definition, texts: Texts, *, dropout: float, seed: int = 0) -> EncodedBatch:
    """Encode texts with BPE-dropout.

    At each step of merging a word every place that a merge could join is left out with the probability
    `dropout`, and of the others the one of the lowest rank is joined, the leftmost first. A word is done when
    all places are left out. The draw depends on the seed, the word and its number in its text. Unknown
    letters stay unknown tokens.
    """
    check_strength("dropout", dropout, 1)
    check_seed(seed)
    if definition.family != NAME or model_of(definition).by_length:
        raise TokenizerError("sample: dropout leaves merges out, and this tokenizer encodes without merges")
    model = model_of(definition)
    data, bounds, pretokens = cut_texts(definition, texts)
    words, number = words_of(data, pretokens), bounds.shape[0] - 1
    scratch, encoder = scratch_for(words), model.encoder()
    ids, ends = np.empty(id_room(words, number), np.uint32), np.zeros(number + 1, np.int64)
    lost, left_out = np.empty(number, np.int64), np.empty(scratch.ids.shape[0], np.uint64)
    given = data, words.starts, words.ends, words.offsets, encoder.pieces, scratch, left_out, float(dropout)
    nowhere = np.empty((0, 2), np.int64)
    size = sample_words(*given, np.array([seed], np.uint64), nowhere, ids, ends, lost)
    lengths = np.concatenate([np.zeros(1, np.int64), np.cumsum(words.ends - words.starts)])
    white = np.diff(bounds) - np.diff(lengths[words.offsets])
    breach = encoder.law.breach(ids[:size], ends, bounds, lost + white)
    if breach is not None:
        raise LawError(breach.says, breach.segment)
    return EncodedBatch(ids[:size].astype(buffers.id_type(definition.vocab_size)), ends)
