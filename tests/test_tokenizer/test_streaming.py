"""Encoding text that comes in parts: the ids are those of the joined text, wherever it is cut."""

import itertools
import random
from collections.abc import Iterator
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import SPECIALS, TRAINING_TEXTS, any_text, corpus
from tokmill import tokenizer
from tokmill.tokenizer import SpecialTokenError, Tokenizer, TokenizerError, streaming
from tokmill.tokenizer.components.normalizers import STEPS, final_boundary, normalize
from tokmill.tokenizer.components.specials import Wanted
from tokmill.tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS

PATTERNS = [*SPLIT_PATTERNS, *SPLIT_CHAINS, r"a.*b|a|\s", r"(?i:ab)+|x(?=y)"]


@lru_cache(maxsize=32)
def made(split_pattern: str = "gpt2", normalizer: str | None = None) -> Tokenizer:
    return tokenizer.train(
        TRAINING_TEXTS,
        vocab_size=310,
        special_tokens=SPECIALS,
        split_pattern=split_pattern,
        normalizer=normalizer,
    )


def parts_of(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[i:j] for i, j in itertools.pairwise(places)]


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work on every part as it comes, so that short texts cross all edges."""
    with monkeypatch.context() as patch:
        patch.setattr(streaming, "_ROOM", 1)
        yield


@pytest.mark.usefixtures("no_room")
@pytest.mark.parametrize("pattern", PATTERNS)
def test_ids_are_those_of_the_joined_text(pattern):
    tok = made(pattern)

    @settings(max_examples=60)
    @given(any_text(), st.lists(st.integers(0, 200), max_size=30))
    def check(text, cuts):
        expected = tok.encode(text, allowed_special="all")
        assert list(tok.encode_iterable(parts_of(text, cuts), allowed_special="all")) == expected
        as_bytes = [bytes([byte]) for byte in text.encode("utf-8", "replace")]
        assert list(tok.encode_iterable(as_bytes, as_text=True)) == tok.encode(
            b"".join(as_bytes), as_text=True
        )

    check()


@pytest.mark.usefixtures("no_room")
@pytest.mark.parametrize("normalizer", ["nfc", "nfkd+strip_accents+lowercase", "lowercase+nfkc"])
def test_normalized_ids_are_those_of_the_joined_text(normalizer):
    tok = made(normalizer=normalizer)
    alphabet = "aE\u0301\u0323 \u1112\u1161\u11abΣ\u3099カﾞ각\u0bc6\u0bbe😀"

    @given(st.text(alphabet, max_size=30), st.lists(st.integers(0, 60), max_size=20))
    def check(text, cuts):
        assert list(tok.encode_iterable(parts_of(text, cuts))) == tok.encode(text)

    check()


def test_lines_of_a_text_that_end_in_white_space():
    tok = made()
    assert list(tok.encode_iterable(["a\n", "\n", "\n", "b\n"])) == tok.encode("a\n\n\nb\n")
    assert list(tok.encode_iterable([])) == []


def test_halves_of_a_surrogate_pair_meet(small):
    assert list(small.encode_iterable(["a\ud83d", "\ude00b"])) == small.encode("a😀b")
    assert list(small.encode_iterable(["a\ud83d", "b"])) == small.encode("a\ufffdb")
    assert list(small.encode_iterable(["a\ud83d"])) == small.encode("a\ufffd")


@pytest.mark.usefixtures("no_room")
def test_a_special_token_over_an_edge_is_found_or_refused(small):
    parts = ["a<|end", "of", "text|", "><|more|>b"]
    for each in (parts, ["<|end|><|en", "d|>b"], ["a<|end|>", "<|end", "|>b"]):
        expected = small.encode("".join(each), allowed_special="all")
        assert list(small.encode_iterable(each, allowed_special="all")) == expected
    with pytest.raises(SpecialTokenError, match=r"'<\|endoftext\|><\|more\|>' at byte 1"):
        list(small.encode_iterable(parts))
    with pytest.raises(SpecialTokenError, match=r"'<\|end\|>' at byte 70001"):
        list(small.encode_iterable(["a " * 35_000, "b<|en", "d|>"]))


def test_parts_must_be_text(small):
    with pytest.raises(TokenizerError, match="is one text"):
        small.encode_iterable("abc")
    with pytest.raises(TokenizerError, match="part 1: None is of type NoneType"):
        list(small.encode_iterable(["a", None]))


@pytest.mark.parametrize("unit", ["word ", "x", "今天", " 12", "e\u0301 "])
def test_memory_is_bounded_by_what_may_still_change(unit):
    tok = made("deepseek_v3", "nfc")
    stream = tok._encoder.stream(tok.definition.normalizer, Wanted({}))
    held = []
    for _ in range(40):
        stream.add((unit * (40_000 // len(unit))).encode())
        held.append(len(stream))
    longest = max(held)
    one_pretoken = unit in ("x", "今天")
    assert (longest > 1_000_000) if one_pretoken else (longest < 100)


@given(st.text(), st.text(), st.sampled_from([None, *STEPS, "nfkd+strip_accents+lowercase"]))
def test_normalizing_on_both_sides_of_a_boundary_gives_the_whole(text, more, normalizer):
    text, more = (one.encode("utf-8", "replace").decode() for one in (text, more))
    place = final_boundary(normalizer, text.encode())
    left, right = text.encode()[:place].decode(), text.encode()[place:].decode() + more
    assert normalize(normalizer, left) + normalize(normalizer, right) == normalize(normalizer, text + more)


@pytest.mark.shared_data
@pytest.mark.parametrize("pattern", ["gpt2", "o200k", "deepseek_v3"])
def test_real_text_in_parts_of_any_size(pattern, shared_data):
    tok = made(pattern)
    chance = random.Random(0)
    for name in ("english_docs", "japanese_literature"):
        text = "".join(corpus(shared_data, name, 150_000))
        cuts = [chance.randrange(len(text)) for _ in range(300)]
        assert list(tok.encode_iterable(parts_of(text, cuts), as_text=True)) == tok.encode(text, as_text=True)
