"""BPE-dropout against its definition, and the one function that draws segmentations of any family."""

import math
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer, TokenizerError
from tokmill.tokenizer.char_bpe.model import CharacterPairModel
from tokmill.tokenizer.core.text import BYTE_ORDER
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.reference.byte_bpe import dropout_chances, encode_pretoken
from tokmill.tokenizer.reference.word_bpe import letters_of
from tokmill.tokenizer.sampling import sample_batch
from tokmill.tokenizer.word_bpe.model import WordPairModel

Merges = list[tuple[bytes, bytes]]

MERGES = [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"a", b"bc"), (b"abc", b"ab"), (b"a", b"a")]
RANKS = {pair: rank for rank, pair in enumerate(MERGES)}


def made(merges: Merges, split_pattern: str = r"[\s\S]+", **how: bool) -> Tokenizer:
    """A tokenizer of these merges."""
    joined = dict.fromkeys(left + right for left, right in merges)
    tokens = [*(bytes([byte]) for byte in BYTE_ORDER), *joined]
    vocab = {token: i for i, token in enumerate(tokens)}
    return Tokenizer.from_vocab(vocab, merges, split_pattern=split_pattern, **how)


def spelled(tok: Tokenizer, ids: object) -> tuple[bytes, ...]:
    """The tokens of ids."""
    return tuple(tok.token_bytes(int(i)) for i in ids)


@pytest.fixture(scope="module")
def trained() -> Tokenizer:
    return tokenizer.train(TRAINING_TEXTS, vocab_size=370)


def assert_as_frequent(drawn: Counter, chances: Mapping[tuple[bytes, ...], float]) -> None:
    """Chi-square: five standard deviations above its mean are less than one chance in a hundred thousand.

    Segmentations that are expected less than five times are one cell.
    """
    number, cells = drawn.total(), Counter[object]()
    seen = Counter[object]()
    for cut, chance in chances.items():
        cell = cut if number * chance >= 5 else "rare"
        cells[cell] += number * chance
        seen[cell] += drawn[cut]
    assert set(drawn) <= set(chances)
    square = sum((seen[cell] - expected) ** 2 / expected for cell, expected in cells.items())
    freedom = len(cells) - 1
    assert freedom >= 3
    assert square < freedom + 5 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("word", [b"abc", b"abcab", b"aabcaab", b"aaaab"])
@pytest.mark.parametrize("dropout", [0.1, 0.5, 0.8])
def test_draws_are_as_frequent_as_they_are_probable(word: bytes, dropout: float) -> None:
    tok, number = made(MERGES), 4000
    chances = dropout_chances(word, RANKS, dropout)
    assert sum(chances.values()) == pytest.approx(1)

    seeds = Counter(
        spelled(tok, sample_batch(tok.definition, [word], dropout=dropout, seed=seed).ids)
        for seed in range(number)
    )
    if len(chances) > 3:
        assert_as_frequent(seeds, chances)
    assert set(seeds) <= set(chances)


def test_the_same_pretoken_is_drawn_anew_at_each_place_of_a_text() -> None:
    tok, number = made(MERGES, r" ?[^ ]+"), 4000
    word = b" aabcaab"
    ids = sample_batch(tok.definition, [word * number], dropout=0.5, seed=3).ids
    drawn, cut = Counter[tuple[bytes, ...]](), list[bytes]()
    for token in spelled(tok, ids):
        cut.append(token)
        if b"".join(cut) == word:
            drawn[tuple(cut)] += 1
            cut = []

    assert drawn.total() == number
    assert_as_frequent(drawn, dropout_chances(word, RANKS, 0.5))


def mixed(word: int) -> int:
    """Mix 64 bits as splitmix64 does."""
    word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) % 2**64
    word = ((word ^ word >> 27) * 0x94D049BB133111EB) % 2**64
    return word ^ word >> 31


def hashed(word: bytes) -> int:
    """Hash a string, eight bytes at a time."""
    found = len(word) * 0xC2B2AE3D27D4EB4F % 2**64
    for i in range(0, len(word), 8):
        found = (found ^ int.from_bytes(word[i : i + 8], "little")) * 0x9E3779B97F4A7C15 % 2**64
        found ^= found >> 32
    return found * 0xD6E8FEB86659FD93 % 2**64


def drawn_by_integers(word: bytes, dropout: float, seed: int, number: int = 0) -> tuple[bytes, ...]:
    """Draw as the definition says, with Python's integers."""
    state = mixed(seed ^ mixed((hashed(word) + number) % 2**64))
    symbols, kept = [word[i : i + 1] for i in range(len(word))], True
    while kept:
        kept = False
        for _, i in sorted((RANKS[pair], i) for i, pair in enumerate(pairwise(symbols)) if pair in RANKS):
            state = (state + 0x9E3779B97F4A7C15) % 2**64
            kept = (mixed(state) >> 11) / 2**53 >= dropout
            if kept:
                symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]
                break
    return tuple(symbols)


@given(
    word=st.text(alphabet="abc", min_size=1, max_size=40).map(str.encode),
    dropout=st.floats(0, 1),
    seed=st.integers(0, 2**64 - 1),
)
def test_draws_are_those_of_plain_integers(word: bytes, dropout: float, seed: int) -> None:
    tok = made(MERGES, r" ?[^ ]+")
    drawn = sample_batch(tok.definition, [word + b" " + word], dropout=dropout, seed=seed).ids
    first, second = drawn_by_integers(word, dropout, seed), drawn_by_integers(b" " + word, dropout, seed, 1)
    assert spelled(tok, drawn) == first + second


def test_draws_written_down() -> None:
    # these must never change, so that a seed gives the same for good
    tok = made(MERGES, r" ?[^ ]+")
    drawn = [
        b"|".join(spelled(tok, sample_batch(tok.definition, ["abcab abcab"], dropout=0.5, seed=seed).ids))
        for seed in (0, 1, 2, 2**64 - 1)
    ]
    assert drawn == [
        b"ab|c|ab| |abc|ab",
        b"a|b|c|a|b| |abc|a|b",
        b"ab|c|a|b| |abc|a|b",
        b"abc|ab| |abc|a|b",
    ]


@given(
    merges=st.lists(st.sampled_from([b"a", b"b", b"ab", b"ba", b"aa", b"aab", b"abab"]), max_size=12),
    word=st.text(alphabet="ab", max_size=40).map(str.encode),
)
def test_nothing_left_out_is_the_encoding_by_merges(merges: list[bytes], word: bytes) -> None:
    known, pairs = {b"a", b"b"}, []
    for left, right in zip(merges[::2], merges[1::2], strict=False):
        if left in known and right in known and (left, right) not in pairs:
            pairs.append((left, right))
            known.add(left + right)
    tok = made(pairs)
    ids = sample_batch(tok.definition, [word], dropout=0, seed=1).ids
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    assert list(spelled(tok, ids)) == encode_pretoken(word, ranks)
    assert ids.tolist() == tok.encode(word)


@given(
    texts=st.lists(st.text(max_size=60), max_size=5), dropout=st.floats(0, 1), seed=st.integers(0, 2**64 - 1)
)
def test_laws(trained: Tokenizer, texts: list[str], dropout: float, seed: int) -> None:
    drawn = sample_batch(trained.definition, texts, dropout=dropout, seed=seed)
    assert trained.decode_batch(drawn) == texts
    whole = trained.encode_batch(texts).to_lists()
    assert sample_batch(trained.definition, texts, dropout=0, seed=seed).to_lists() == whole
    single = sample_batch(trained.definition, texts, dropout=1, seed=seed).to_lists()
    assert single == [[trained.vocab[bytes([byte])] for byte in text.encode()] for text in texts]


def test_batches_change_no_draw_and_seeds_do(trained: Tokenizer) -> None:
    together = sample_batch(trained.definition, TRAINING_TEXTS, dropout=0.3, seed=7)

    alone = [sample_batch(trained.definition, [text], dropout=0.3, seed=7)[0] for text in TRAINING_TEXTS]
    assert together.to_lists() == [ids.tolist() for ids in alone]
    other = sample_batch(trained.definition, TRAINING_TEXTS, dropout=0.3, seed=8)
    assert together.to_lists() != other.to_lists()
    assert together.ids.shape[0] > trained.encode_batch(TRAINING_TEXTS).ids.shape[0]
    assert together.ids.dtype == np.uint16


def test_a_token_that_merging_does_not_give_is_taken_whole_only_if_nothing_is_left_out() -> None:
    vocab = {bytes([byte]): i for i, byte in enumerate(BYTE_ORDER)} | {b"ab": 256, b"xyz": 257}
    tok = Tokenizer.from_vocab(vocab, [(b"a", b"b")], split_pattern=r"[\s\S]+", ignore_merges=True)
    assert sample_batch(tok.definition, ["xyz"], dropout=0).to_lists() == [tok.encode("xyz")] == [[257]]
    assert spelled(tok, sample_batch(tok.definition, ["xyz"], dropout=0.01).ids) == (b"x", b"y", b"z")


def test_a_long_pretoken_is_drawn_like_a_short_one() -> None:
    tok = made(MERGES)
    text = "abcab" * 20_000
    for dropout in (0.0, 0.1, 0.9):
        drawn = sample_batch(tok.definition, [text], dropout=dropout)
        assert tok.decode_batch(drawn) == [text]
    assert sample_batch(tok.definition, [text], dropout=0)[0].tolist() == tok.encode(text)


def test_what_cannot_be_drawn_is_refused(trained: Tokenizer) -> None:
    unigram = tokenizer.train(TRAINING_TEXTS, family="unigram", vocab_size=90)
    words = tokenizer.train(["a b"], family="word_level", vocab_size=3)

    for dropout in (-0.1, 1.1, math.nan, "0.1", True):
        with pytest.raises(TokenizerError, match="dropout="):
            sample_batch(trained.definition, ["a"], dropout=dropout)
    with pytest.raises(TokenizerError, match="seed=-1"):
        sample_batch(trained.definition, ["a"], dropout=0.1, seed=-1)
    with pytest.raises(TokenizerError, match="needs dropout, and was given nothing"):
        sample_batch(trained.definition, ["a"])
    with pytest.raises(TokenizerError, match="needs dropout, and was given alpha"):
        sample_batch(trained.definition, ["a"], alpha=0.1)
    with pytest.raises(TokenizerError, match="needs alpha, and was given dropout, alpha"):
        sample_batch(unigram.definition, ["a"], alpha=0.1, dropout=0.1)
    with pytest.raises(TokenizerError, match="word_level tokenizer has one segmentation"):
        sample_batch(words.definition, ["a"], dropout=0.1)


def test_one_function_draws_from_both_families() -> None:
    unigram = tokenizer.train(TRAINING_TEXTS, family="unigram", vocab_size=90)
    drawn = sample_batch(unigram.definition, TRAINING_TEXTS, alpha=0.1, seed=3)
    assert unigram.decode_batch(drawn) == list(TRAINING_TEXTS)


@pytest.mark.parametrize("end_of_word", ["attached", "apart"])
@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_words_are_drawn_as_often_as_they_are_probable(end_of_word: str, dropout: float) -> None:
    apart, word, number = end_of_word == "apart", "aabéab".encode(), 4000
    last = (b"a", b"b") if apart else (b"a", b"b</w>")
    pairs = [("é".encode(), b"a"), (b"a", "bé".encode()), (b"b", "é".encode()), last, (b"a", b"a")]
    pairs += [(b"ab", b"</w>"), ("bé".encode(), b"ab</w>")] if apart else [("bé".encode(), b"ab</w>")]
    letters = [b"a", b"b", "é".encode(), *([b"</w>"] if apart else [b"b</w>"])]
    tokens = dict.fromkeys([*letters, *(left + right for left, right in pairs)])
    vocabulary = Vocabulary.build(dict(enumerate(tokens, start=1)), {"[UNK]": 0})
    model = WordPairModel.build(vocabulary, pairs, end_of_word=end_of_word)
    tok = Tokenizer(Definition.compose(model, split_pattern="bert", decoder="end_of_word"))
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    chances = dropout_chances(letters_of(word, apart=apart), ranks, dropout)

    drawn, cut = Counter[tuple[bytes, ...]](), list[bytes]()
    for token in spelled(
        tok, sample_batch(tok.definition, [b" ".join([word] * number)], dropout=dropout).ids
    ):
        cut.append(token)
        if token.endswith(b"</w>"):
            drawn[tuple(cut)] += 1
            cut = []
    assert drawn.total() == number
    assert_as_frequent(drawn, chances)


@pytest.mark.parametrize("dropout", [0.1, 0.5])
def test_pieces_with_scores_are_drawn_as_often_as_they_are_probable(dropout: float) -> None:
    """Equal scores are one rank, of which the leftmost place comes first, whichever piece it makes."""
    scores = {"a": 0.0, "b": 0.0, "é": 0.0, "ab": -1.0, "ba": -1.0, "aba": -1.0, "éa": -2.0, "abé": -3.0}
    vocabulary = Vocabulary.build({i: text.encode() for i, text in enumerate(scores, start=1)}, {"[UNK]": 0})
    model = CharacterPairModel(vocabulary, np.array([0.0, *scores.values()]))
    tok = Tokenizer(Definition.compose(model, split_pattern="[^ ]+|[ ]"))
    ranks = {
        (text[:cut].encode(), text[cut:].encode()): -int(score)
        for text, score in scores.items()
        for cut in range(1, len(text))
        if text[:cut] in scores and text[cut:] in scores
    }
    word, number = "ababéab", 4000
    chances = dropout_chances([letter.encode() for letter in word], ranks, dropout)

    ids = sample_batch(tok.definition, [" ".join([word] * number)], dropout=dropout).ids
    drawn, cut_so_far = Counter[tuple[bytes, ...]](), list[bytes]()
    for token in [*spelled(tok, ids), b"[UNK]"]:
        if token == b"[UNK]":  # the blanks
            drawn[tuple(cut_so_far)] += 1
            cut_so_far = []
        else:
            cut_so_far.append(token)
    assert drawn.total() == number
    assert_as_frequent(drawn, chances)


def test_laws_of_pieces_with_scores() -> None:
    tok = tokenizer.train(TRAINING_TEXTS, family="char_bpe", vocab_size=140)
    texts = [*TRAINING_TEXTS, "", "ж the\U000f0000 fox"]
    together = sample_batch(tok.definition, texts, dropout=0.3, seed=7)

    assert together.to_lists() == [
        sample_batch(tok.definition, [text], dropout=0.3, seed=7)[0].tolist() for text in texts
    ]
    assert tok.decode_batch(together) == tok.decode_batch(tok.encode_batch(texts))
    assert sample_batch(tok.definition, texts, dropout=0).to_lists() == tok.encode_batch(texts).to_lists()
    single = sample_batch(tok.definition, ["the fox"], dropout=1).ids
    assert spelled(tok, single) == tuple(letter.encode() for letter in "the fox")


def test_laws_of_words() -> None:
    tok = tokenizer.train(TRAINING_TEXTS, family="word_bpe", vocab_size=115)
    texts = [*TRAINING_TEXTS, "", " \n", "ж the\U000f0000 fox"]
    together = sample_batch(tok.definition, texts, dropout=0.3, seed=7)

    assert together.to_lists() == [
        sample_batch(tok.definition, [text], dropout=0.3, seed=7)[0].tolist() for text in texts
    ]
    assert tok.decode_batch(together) == tok.decode_batch(tok.encode_batch(texts))
    assert sample_batch(tok.definition, texts, dropout=0).to_lists() == tok.encode_batch(texts).to_lists()
    letters = sample_batch(tok.definition, ["the fox"], dropout=1).ids
    assert spelled(tok, letters) == (b"t", b"h", b"e</w>", b"f", b"o", b"x</w>")
    longest = tokenizer.train(TRAINING_TEXTS, family="word_bpe", vocab_size=115, segmentation="longest_first")
    with pytest.raises(TokenizerError, match="encodes without merges"):
        sample_batch(longest.definition, texts, dropout=0.1)


@pytest.mark.slow
def test_plain_python_draws_the_same() -> None:
    code = (
        "from tokmill import tokenizer; from tokmill.tokenizer.sampling import sample_batch\n"
        "for how in ({'vocab_size': 264}, {'vocab_size': 18, 'family': 'word_bpe'}, "
        "            {'vocab_size': 20, 'family': 'char_bpe'}):\n"
        "    tok = tokenizer.train(['the cat sat on the mat ' * 3], **how)\n"
        "    print(sample_batch(tok.definition, ['the mat sat'], dropout=0.4, seed=5).to_lists())"
    )
    printed = {
        subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"NUMBA_DISABLE_JIT": flag})
        for flag in ("0", "1")
    }
    assert len(printed) == 1
