"""Words of pre-tokens, for the families whose pieces are parts of words and that leave white space out."""

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.kernels.white_space import find_words
from tokmill.tokenizer.splitting.splitter import Pretokens


def words_of(data: NDArray[np.uint8], pretokens: Pretokens) -> Pretokens:
    """Return the words of pre-tokens: the runs of characters that are not white space."""
    starts, ends = pretokens.starts, pretokens.ends
    room = int(((ends - starts + 1) // 2).sum())
    words, firsts = np.empty((2, room), np.int64), np.empty(starts.shape[0] + 1, np.int64)
    number = find_words(data, starts, ends, words[0], words[1], firsts)
    return Pretokens(words[0, :number], words[1, :number], firsts[pretokens.offsets])


def edges_of(pretokens: Pretokens, num_segments: int) -> NDArray[np.int64]:
    """Return where each segment begins, given that pre-tokens tile the text; an empty one has no bytes."""
    if not pretokens.starts.shape[0]:
        return np.zeros(num_segments + 1, np.int64)
    cuts = np.append(pretokens.starts, pretokens.ends[-1])
    edges: NDArray[np.int64] = cuts[pretokens.offsets]
    return edges
