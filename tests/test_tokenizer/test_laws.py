"""The laws that every encoding is held to: what breaks them is found, and the document is named."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import any_text
from tokmill import tokenizer
from tokmill.tokenizer import LawError, Tokenizer
from tokmill.tokenizer.byte_bpe.encoder import Tiling

LENGTHS = [1, 1, 2, 3, 0]
LAW = Tiling(np.cumsum([0, *LENGTHS]))


def breach(ids: list[int], ends: list[int], bounds: list[int]) -> tuple[int, str] | None:
    return LAW.breach(np.array(ids, np.uint32), np.array(ends, np.int64), np.array(bounds, np.int64))


def test_what_tiles_its_text_keeps_the_law() -> None:
    assert breach([0, 2, 3, 3], [0, 2, 2, 4], [5, 8, 8, 14]) is None
    assert breach([], [0], [3]) is None
    assert breach([], [0, 0], [3, 3]) is None


@pytest.mark.parametrize(
    ("ids", "ends", "bounds", "segment", "says"),
    [
        ([0, 2], [0, 1, 2], [0, 1, 4], 1, "its 1 tokens have 2 bytes, but its text has 3"),
        ([0, 2], [0, 1, 2], [0, 2, 4], 0, "its 1 tokens have 1 bytes, but its text has 2"),
        ([0, 4], [0, 2], [0, 2], 0, "its 2 tokens have 1 bytes"),
        ([0, 5], [0, 2], [0, 2], 0, "it has the id 5, but ids are below 5"),
        ([8, 0], [0, 1, 2], [0, 1, 2], 0, "it has the id 8"),
        ([0, 3_432_318_984], [0, 2], [0, 1], 0, "it has the id 3432318984"),
        ([0, 1], [0, 2, 1], [0, 2, 2], 1, "its ids go from 2 to 1 of 2"),
        ([0, 1], [-1, 2], [0, 2], 0, "its ids go from -1 to 2 of 2"),
        ([0, 1], [0, 3], [0, 2], 0, "its ids go from 0 to 3 of 2"),
        ([0, 1], [0, 1], [0, 1], 0, "ids that belong nowhere"),
    ],
)
def test_what_breaks_the_law_is_found(
    ids: list[int], ends: list[int], bounds: list[int], segment: int, says: str
) -> None:
    found = breach(ids, ends, bounds)
    assert found is not None
    assert found[0] == segment
    assert says in found[1]


@given(st.lists(st.lists(st.integers(0, 3), max_size=9), min_size=1, max_size=6), st.data())
def test_any_other_length_is_found(segments: list[list[int]], data: st.DataObject) -> None:
    ids = [token for segment in segments for token in segment]
    ends = np.cumsum([0, *map(len, segments)]).tolist()
    bounds = np.cumsum([0, *(sum(LENGTHS[i] for i in segment) for segment in segments)]).tolist()
    assert breach(ids, ends, bounds) is None
    if ids:
        at = data.draw(st.integers(0, len(ids) - 1))
        other = data.draw(
            st.integers(0, 12).filter(lambda token: [*LENGTHS, -1][min(token, 5)] != LENGTHS[ids[at]])
        )
        broken = breach([*ids[:at], other, *ids[at + 1 :]], ends, bounds)
        assert broken is not None
        assert broken[0] == int(np.searchsorted(ends, at, side="right")) - 1


@given(st.lists(any_text(), max_size=5))
def test_no_text_breaks_the_law(small: Tokenizer, texts: list[str]) -> None:
    small.encode_batch(texts, allowed_special="all")


@pytest.mark.parametrize("vocab_size", [256, 257, 511, 512, 513])
def test_every_size_of_vocabulary_has_its_law(vocab_size: int) -> None:
    law = Tiling(np.arange(vocab_size + 1))
    every = np.arange(vocab_size, dtype=np.uint32)
    bounds = np.array([0, vocab_size])
    assert law.breach(every, bounds, bounds) is None
    assert (
        law.breach(np.append(every, np.uint32(vocab_size)), np.array([0, vocab_size + 1]), bounds) is not None
    )


def damaged(texts: list[str], **how: object) -> Tokenizer:
    """A tokenizer whose memory of what it has encoded is damaged, as faulty memory would."""
    tok = tokenizer.train(["abc"], vocab_size=257, special_tokens=[], **how)
    tok.encode_batch(texts)
    with tok._encoder._encoder.workspace() as workspace:
        workspace.memory.cache.aside[:] = 400
    return tok


ASIDE = "qzxjkvqz"  # eight ids, which stand aside


@pytest.mark.parametrize("number", [0, 2])
def test_ids_that_cannot_be_right_are_not_given_out(number: int) -> None:
    texts = ["", "abc abc", "a", "b"]
    texts.insert(number, ASIDE)
    tok = damaged([ASIDE])
    with pytest.raises(
        LawError, match=f"document {number} was encoded wrongly: .* id 400, but ids are below"
    ):
        tok.encode_batch(texts)
    for call in (tok.encode, tok.count_tokens, tok.encode_with_offsets):
        with pytest.raises(LawError, match="document 0"):
            call(ASIDE)


def test_threads_name_the_document_too() -> None:
    texts = [ASIDE, "abc " * 100_000] * 8
    with pytest.raises(LawError) as caught:
        damaged([ASIDE]).encode_batch(texts, num_threads=2)
    assert texts[caught.value.document] == ASIDE


def test_the_error_goes_from_process_to_process() -> None:
    error = LawError("it has the id 7", 3, "source 'web': a.jsonl, line 4")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert str(error).startswith(
        "encode: source 'web': a.jsonl, line 4 was encoded wrongly: it has the id 7;"
    )
    assert again.document == 3
