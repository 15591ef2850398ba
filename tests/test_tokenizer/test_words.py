"""The words of pre-tokens, and the bytes of segments."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.kernels.lookup import add_up
from tokmill.tokenizer.splitting.splitter import Pretokens, words_of


@given(
    parts=st.lists(st.text("ab!~\x1f \t\n\x85\xa0é\u1680\u2003\u200b\u2028\u3000今", max_size=12), max_size=6)
)
def test_words_are_what_lies_between_white_space(parts: list[str]) -> None:
    data, cuts = pack_bytes([part.encode() for part in parts])
    words = words_of(data, Pretokens(cuts[:-1], cuts[1:], np.arange(len(parts) + 1)))

    found = [data[i:j].tobytes().decode() for i, j in zip(words.starts, words.ends, strict=True)]
    # what str.split() has beyond White_Space is left out of the alphabet, but for U+001F
    split = [part.replace("\x1f", "X").split() for part in parts]
    assert [word.replace("\x1f", "X") for word in found] == [word for each in split for word in each]
    assert words.offsets.tolist() == np.cumsum([0, *map(len, split)]).tolist()


@given(
    lengths=st.lists(st.integers(0, 9), min_size=1, max_size=5),
    segments=st.lists(st.lists(st.integers(0, 4), max_size=4), max_size=4),
)
def test_lengths_are_added_up_by_segment(lengths: list[int], segments: list[list[int]]) -> None:
    segments = [[i for i in segment if i < len(lengths)] for segment in segments]
    ids = np.array([i for segment in segments for i in segment], np.uint32)
    ends, sums = np.cumsum([0, *map(len, segments)]), np.full(len(segments), -1)
    add_up(ids, ends, np.array(lengths), sums)

    assert sums.tolist() == [sum(lengths[i] for i in segment) for segment in segments]
