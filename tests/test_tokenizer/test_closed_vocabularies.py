"""Word-level and character-level tokenizers: by hand, against the slow models, and Hugging Face's trainer."""

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import TRAINING_TEXTS, any_text
from tokmill import tokenizer
from tokmill.tokenizer import (
    Tokenizer,
)
from tokmill.tokenizer.kernels.words import MAX_SHORT
from tokmill.tokenizer.reference import closed_vocabulary as reference

FAMILIES = {"word_level": reference.whole, "character_level": reference.characters}
SPECIALS = ["<|endoftext|>", "<|end|>"]


@pytest.fixture(scope="session", params=FAMILIES)
def closed(request: pytest.FixtureRequest) -> Tokenizer:
    """A tokenizer of either family that knows a part of the training texts."""
    return tokenizer.train(
        TRAINING_TEXTS, family=request.param, vocab_size=30, special_tokens=SPECIALS, num_reserved=1
    )


def slow_ids(tok: Tokenizer, text: str) -> list[int]:
    pretokens = [piece.encode() for piece in tok.splitter.split_text(text)]
    known = {token for _, token in tok.definition.vocabulary.ordinary()}
    return [tok.vocab[token] for token in reference.encode(pretokens, known, FAMILIES[tok.family])]


def test_words_and_characters_by_hand():
    counts = {b"the": 3, b" cat": 2, b" dog": 2, b" ant": 1}
    tok = tokenizer.train_from_counts(counts, vocab_size=5, family="word_level", special_tokens=["<S>"])
    assert tok.vocab == {b"[UNK]": 0, b"the": 1, b" cat": 2, b" dog": 3, b"<S>": 4}
    assert tok.decode(tok.encode("the dog ant<S>", allowed_special="all")) == "the dog[UNK]<S>"
    assert tok.encode_with_offsets("the ant dog") == ([1, 0, 3], [(0, 3), (3, 7), (7, 11)])
    letters = tokenizer.train_from_counts({b"banana": 2, b"bad": 1}, vocab_size=4, family="character_level")
    assert letters.encode_with_offsets("äb") == ([0, 3], [(0, 1), (1, 2)])


@given(
    counts=st.dictionaries(st.binary(max_size=2 * MAX_SHORT + 3), st.integers(0, 9), max_size=12),
    number=st.integers(1, 12),
    least=st.integers(1, 3),
    longest=st.none() | st.integers(1, 20),
)
@pytest.mark.parametrize("family", FAMILIES)
def test_training_is_the_references(family, counts, number, least, longest):
    how = {"min_frequency": least, "max_token_bytes": longest}
    expected = reference.train(counts, number, cut=FAMILIES[family], forbidden=[b"[UNK]", b"<S>"], **how)

    tok = tokenizer.train_from_counts(
        counts, vocab_size=number + 2, family=family, special_tokens=["<S>"], **how
    )

    assert list(tok.vocab) == [b"[UNK]", *expected, b"<S>"]


@given(st.lists(any_text(), max_size=6))
def test_encoding_is_the_references(closed, texts):
    batch = closed.encode_batch(texts, as_text=True)

    assert batch.to_lists() == [slow_ids(closed, text) for text in texts]
    assert [closed.encode(text, as_text=True) for text in texts] == batch.to_lists()


@pytest.mark.parametrize("length", [MAX_SHORT - 1, MAX_SHORT, MAX_SHORT + 1, 2 * MAX_SHORT, 5000])
def test_words_of_every_length_are_found(length):
    words = {bytes([97 + i]) * length: 30 - i for i in range(26)}
    tok = tokenizer.train_from_counts(words, vocab_size=27, family="word_level", split_pattern=r"(.)\1*")
    others = [b"a" * (length - 1), b"a" * (length + 1), b"a" * (length - 1) + b"b"]

    assert [tok.encode(word) for word in words] == [[i + 1] for i in range(26)]
    assert [tok.encode_batch([other])[0].tolist() for other in others] == [[0], [0], [0, 0]]


@given(st.lists(st.text(alphabet="ab ßé", min_size=1, max_size=30), min_size=1, max_size=5))
def test_words_are_those_of_hugging_faces_trainer(texts):
    other = tokenizers.Tokenizer(tokenizers.models.WordLevel(unk_token="[UNK]"))
    pattern = tokenizers.Regex(tokenizer.SPLIT_PATTERNS["gpt2"])
    other.pre_tokenizer = tokenizers.pre_tokenizers.Split(pattern, "isolated")
    trainer = tokenizers.trainers.WordLevelTrainer(
        vocab_size=6, special_tokens=["[UNK]"], show_progress=False
    )
    other.train_from_iterator(texts, trainer)
    tok = tokenizer.train(texts, vocab_size=6, family="word_level")

    assert {token.decode(): i for token, i in tok.vocab.items()} == other.get_vocab()
