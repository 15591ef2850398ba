"""Finding special tokens: the slow reference, and cutting documents at them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.tokenizer import SpecialTokenError
from tokmill.tokenizer.components.specials import check_names, chunks, cut, find, whole
from tokmill.tokenizer.core import buffers
from tokmill.tokenizer.reference import byte_bpe as reference

names = st.lists(st.text("ab<é", min_size=2, max_size=5), unique=True, max_size=5)


@given(names, st.lists(st.text("ab<éx", max_size=30), max_size=4))
def test_the_longest_special_token_at_the_leftmost_place_is_found(names: list[str], texts: list[str]) -> None:
    specials = {name: 1000 + i for i, name in enumerate(names)}
    data, offsets = buffers.pack(texts)
    found = list(zip(*(part.tolist() for part in find(data, offsets, specials)), strict=True))
    by_bytes = {name.encode(): i for name, i in specials.items()}
    expected = [
        (start + int(offset), end + int(offset), i)
        for text, offset in zip(texts, offsets[:-1], strict=True)
        for start, end, i in reference.find_specials(text.encode(), by_bytes)
    ]
    assert found == expected


def test_documents_are_cut_by_hand() -> None:
    data, offsets = buffers.pack(["", "a<s>", "<s><s>", "b"])
    segments = cut(data, whole(offsets), {"<s>": 7})
    assert segments.bounds.tolist() == [0, 1, 4, 7, 10, 11]
    assert segments.kinds.tolist() == [-1, 7, 7, 7, -1]
    assert segments.documents.tolist() == [0, 0, 2, 4, 5]


def test_many_special_tokens_are_all_found() -> None:
    data, offsets = buffers.pack(["<s>" * 1000])
    assert len(find(data, offsets, {"<s>": 7})[0]) == 1000


def test_chunks_hold_every_segment_once() -> None:
    bounds = np.cumsum([0, 5 << 18, 1, 1, 3 << 17, 3 << 17, 0, 0])
    ranges = list(chunks(bounds))
    assert [first for first, _ in ranges] + [7] == [0] + [last for _, last in ranges]
    assert ranges == [(0, 1), (1, 3), (3, 4), (4, 5), (5, 7)]


def test_names_are_checked_in_linear_time() -> None:
    names = [f"<|special number {number}|>" for number in range(200_000)]
    assert check_names(names, "special_tokens") == names
    with pytest.raises(SpecialTokenError, match=r"'<\|special number 0\|>' is named twice"):
        check_names([*names, names[0]], "special_tokens")
