"""Single short texts take another way than batches, to the same ids."""

from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import SPECIALS, TRAINING_TEXTS, any_text, ntrex
from tokmill import tokenizer
from tokmill.tokenizer import SpecialTokenError, Tokenizer, encoding
from tokmill.tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS

PATTERNS = [*SPLIT_PATTERNS, *SPLIT_CHAINS, r"(a)+|b", r"[a-z]+", r"(?<=a)b|\w+|\s"]


@lru_cache(maxsize=32)
def made(pattern: str, *names: str) -> Tokenizer:
    return tokenizer.train(TRAINING_TEXTS, vocab_size=310, split_pattern=pattern, special_tokens=names)


@pytest.mark.parametrize("names", [(), ("<a>",), tuple(SPECIALS), ("<s>", "[b]")])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_ids_and_counts_are_those_of_a_batch(pattern: str, names: tuple[str, ...]) -> None:
    tok = made(pattern, *names)

    @settings(max_examples=30)  # of each of the combinations, more than a thousand in all
    @given(any_text() | st.text("a<>[]sb\ud800 ", max_size=20), st.sampled_from([{}, {"as_text": True}]))
    def check(text: str, how: dict) -> None:
        how = how or {"allowed_special": "all"}
        expected = tok.encode_batch([text], **how)[0].tolist()
        assert tok.encode(text, **how) == expected
        assert tok.encode(text, **how) == expected  # what was learnt
        assert tok.count_tokens(text, **how) == len(expected)

    check()


def test_special_tokens_are_refused_in_short_texts_too() -> None:
    tok = made("gpt2", "<s>", "[b]")
    for text in ("a<s>", "[b]"):
        with pytest.raises(SpecialTokenError, match="at byte"):
            tok.encode(text)
        with pytest.raises(SpecialTokenError, match="at byte"):
            tok.count_tokens(text)
    with pytest.raises(SpecialTokenError, match="not a special token"):
        tok.encode("a", allowed_special={"<t>"})


@pytest.mark.parametrize("by", [-1, 0, 1])
def test_the_longest_short_text(small: Tokenizer, by: int) -> None:
    text = ("the quick fox " * 40)[: encoding.MOST_CHARS + by]
    assert small.encode(text) == small.encode_batch([text])[0].tolist()


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_MOST_KNOWN", 3)
    tok = made("gpt2", "<bounded>")
    for number in range(40):
        text = f"the fox{number} has {number}"
        assert tok.encode(text) == tok.encode_batch([text])[0].tolist()
    assert len(tok._short_texts._known) < 10


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["cl100k", "o200k"])
def test_sentences_of_all_languages(name: str, shared_data) -> None:
    tok = tokenizer.load(shared_data / "vocabs" / f"{name}_base.tiktoken", split_pattern=name)
    texts = [line for text in ntrex(shared_data).values() for line in text.splitlines()[:40]]
    expected = tok.encode_batch(texts).to_lists()
    assert [tok.encode(text) for text in texts] == expected
