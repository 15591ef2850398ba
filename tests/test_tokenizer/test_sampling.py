"""Segmentations drawn at random, and the best few: as frequent as they are probable, in every family."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tests.test_tokenizer.test_families import trained
from tests.test_tokenizer.test_unigram import made as made_unigram
from tests.test_tokenizer.test_unigram import strings
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer, TokenizerError
from tokmill.tokenizer.char_bpe.model import CharacterPairModel
from tokmill.tokenizer.core.text import BYTE_ORDER
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.reference import unigram as slow
from tokmill.tokenizer.reference.byte_bpe import dropout_chances
from tokmill.tokenizer.reference.word_bpe import letters_of
from tokmill.tokenizer.sampling import sample_batch
from tokmill.tokenizer.unigram.model import n_best
from tokmill.tokenizer.word_bpe.model import WordPairModel

LAWS: dict[str, dict[str, Any]] = {
    "byte_bpe": {"dropout": 0.3},
    "char_bpe": {"dropout": 0.3},
    "word_bpe": {"dropout": 0.3},
    "unigram": {"alpha": 0.2},
}
TEXTS = [*TRAINING_TEXTS[:3], "", " \n", "ж the\U000f0000 fox"]


@pytest.mark.parametrize("family", LAWS)
def test_batches_change_no_draw_seeds_do_and_no_text_is_lost(family):
    definition, how = trained(family).definition, LAWS[family]
    together = sample_batch(definition, TEXTS, seed=7, **how)
    whole = trained(family).encode_batch(TEXTS)

    assert together.to_lists() == [
        sample_batch(definition, [text], seed=7, **how)[0].tolist() for text in TEXTS
    ]
    assert together.to_lists() != sample_batch(definition, TEXTS, seed=8, **how).to_lists()
    assert together.ids.shape[0] > whole.ids.shape[0]
    assert together.ids.dtype == np.uint16
    assert trained(family).decode_batch(together) == trained(family).decode_batch(whole)
    surest = {"alpha": 1e5} if family == "unigram" else {"dropout": 0}
    assert sample_batch(definition, TEXTS, **surest).to_lists() == whole.to_lists()


Merges = list[tuple[bytes, bytes]]
MERGES = [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"a", b"bc"), (b"abc", b"ab"), (b"a", b"a")]
RANKS = {pair: rank for rank, pair in enumerate(MERGES)}


def made(merges: Merges, split_pattern: str = r"[\s\S]+", **how: bool) -> Tokenizer:
    joined = dict.fromkeys(left + right for left, right in merges)
    tokens = [*(bytes([byte]) for byte in BYTE_ORDER), *joined]
    vocab = {token: i for i, token in enumerate(tokens)}
    return Tokenizer.from_vocab(vocab, merges, split_pattern=split_pattern, **how)


def spelled(tok: Tokenizer, ids: object) -> tuple[bytes, ...]:
    return tuple(tok.token_bytes(int(i)) for i in ids)


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


Drawn = tuple[Tokenizer, str, list[bytes], dict[tuple[bytes, bytes], int]]


def drawn_words(apart: bool) -> Drawn:
    """Words whose mark stands at the last letter, or apart."""
    last = (b"a", b"b") if apart else (b"a", b"b</w>")
    pairs = [("é".encode(), b"a"), (b"a", "bé".encode()), (b"b", "é".encode()), last, (b"a", b"a")]
    pairs += [(b"ab", b"</w>"), ("bé".encode(), b"ab</w>")] if apart else [("bé".encode(), b"ab</w>")]
    letters = [b"a", b"b", "é".encode(), *([b"</w>"] if apart else [b"b</w>"])]
    tokens = dict.fromkeys([*letters, *(left + right for left, right in pairs)])
    vocabulary = Vocabulary.build(dict(enumerate(tokens, start=1)), {"[UNK]": 0})
    model = WordPairModel.build(vocabulary, pairs, end_of_word="apart" if apart else "attached")
    tok = Tokenizer(Definition.compose(model, split_pattern="bert", decoder="end_of_word"))
    return (
        tok,
        "aabéab",
        letters_of("aabéab".encode(), apart=apart),
        {pair: i for i, pair in enumerate(pairs)},
    )


def drawn_pieces() -> Drawn:
    """Equal scores are one rank, of which the leftmost place comes first, whichever piece it makes."""
    scores = {"a": 0.0, "b": 0.0, "é": 0.0, "ab": -1.0, "ba": -1.0, "aba": -1.0, "éa": -2.0, "abé": -3.0}
    vocabulary = Vocabulary.build({i: text.encode() for i, text in enumerate(scores, start=1)}, {"[UNK]": 0})
    model = CharacterPairModel(vocabulary, np.array([0.0, *scores.values()]))
    ranks = {
        (text[:cut].encode(), text[cut:].encode()): -int(score)
        for text, score in scores.items()
        for cut in range(1, len(text))
        if text[:cut] in scores and text[cut:] in scores
    }
    tok = Tokenizer(Definition.compose(model, split_pattern="[^ ]+|[ ]"))
    return tok, "ababéab", [letter.encode() for letter in "ababéab"], ranks


DRAWN: dict[str, Drawn] = {
    "bytes": (made(MERGES, "[^ ]+|[ ]"), "aabcaab", [bytes([byte]) for byte in b"aabcaab"], RANKS),
    "words": drawn_words(apart=False),
    "words, mark apart": drawn_words(apart=True),
    "pieces with scores": drawn_pieces(),
}


@pytest.mark.parametrize("dropout", [0.1, 0.5])
@pytest.mark.parametrize("name", DRAWN)
def test_a_pretoken_is_drawn_anew_at_each_place_of_a_text(name, dropout):
    tok, word, letters, ranks = DRAWN[name]
    ids = sample_batch(tok.definition, [" ".join([word] * 4000)], dropout=dropout, seed=3).ids
    drawn, cut = Counter[tuple[bytes, ...]](), list[bytes]()
    for token in spelled(tok, ids):
        if token not in {b"[UNK]", b" "}:
            cut.append(token)
        if b"".join(cut) == b"".join(letters):
            drawn[tuple(cut)] += 1
            cut = []
    assert drawn.total() == 4000
    assert_as_frequent(
        drawn, dropout_chances(b"".join(letters) if name == "bytes" else letters, ranks, dropout)
    )


def test_draws_written_down():
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


def test_a_token_that_merging_does_not_give_is_taken_whole_only_if_nothing_is_left_out():
    vocab = {bytes([byte]): i for i, byte in enumerate(BYTE_ORDER)} | {b"ab": 256, b"xyz": 257}
    tok = Tokenizer.from_vocab(vocab, [(b"a", b"b")], split_pattern=r"[\s\S]+", ignore_merges=True)
    assert sample_batch(tok.definition, ["xyz"], dropout=0).to_lists() == [tok.encode("xyz")] == [[257]]
    assert spelled(tok, sample_batch(tok.definition, ["xyz"], dropout=0.01).ids) == (b"x", b"y", b"z")


def test_a_long_pretoken_is_drawn_like_a_short_one():
    tok = made(MERGES)
    text = "abcab" * 20_000
    for dropout in (0.0, 0.1, 0.9):
        drawn = sample_batch(tok.definition, [text], dropout=dropout)
        assert tok.decode_batch(drawn) == [text]
    assert sample_batch(tok.definition, [text], dropout=0)[0].tolist() == tok.encode(text)


@pytest.mark.parametrize(
    ("family", "letters"), [("char_bpe", ["t", "h", "e", "f"]), ("word_bpe", ["t", "h", "e</w>", "f"])]
)
def test_all_left_out_are_letters(family, letters):
    tok = trained(family)
    ids = sample_batch(tok.definition, ["the f" if family == "char_bpe" else "the fox"], dropout=1).ids
    shown = [token.decode() for token in spelled(tok, ids) if token != b" "]
    assert shown[:4] == letters


@pytest.mark.parametrize(
    ("family", "how", "says"),
    [
        *(("byte_bpe", {"dropout": each}, "dropout=") for each in (-0.1, 1.1, math.nan, "0.1", True)),
        ("byte_bpe", {"dropout": 0.1, "seed": -1}, "seed=-1"),
        ("byte_bpe", {}, "needs dropout, and was given nothing"),
        ("byte_bpe", {"alpha": 0.1}, "needs dropout, and was given alpha"),
        ("unigram", {"alpha": 0.1, "dropout": 0.1}, "needs alpha, and was given dropout, alpha"),
        *(("unigram", {"alpha": each}, "alpha") for each in (-1.0, math.nan, math.inf, 1e9)),
        ("unigram", {"alpha": 1, "seed": -1}, "seed=-1"),
        ("word_level", {"dropout": 0.1}, "word_level tokenizer has one segmentation"),
    ],
)
def test_what_cannot_be_drawn_is_refused(family, how, says):
    with pytest.raises(TokenizerError, match=says):
        sample_batch(trained(family).definition, ["a"], **how)
    longest = tokenizer.train(TRAINING_TEXTS, family="word_bpe", vocab_size=115, segmentation="longest_first")
    with pytest.raises(TokenizerError, match="encodes without merges"):
        sample_batch(longest.definition, ["a"], dropout=0.1)


PIECES = {b"a": -2.0, b"b": -1.5, b"c": -2.5, b"ab": -2.2, b"bc": -3.0, b"abc": -4.5}


@given(
    scores=st.dictionaries(strings(3), st.floats(-9, -1), min_size=1, max_size=9),
    word=strings(7),
    k=st.integers(1, 6),
)
def test_the_best_few_are_those_of_all(scores, word, k):
    known = scores | {letter: -3.0 for letter in slow.characters(word) if letter not in scores}
    tok = made_unigram(known)
    found = n_best(tok.definition, word, k)
    expected = slow.best_cuts(word, known, k)

    assert [score for _, score in found] == pytest.approx([slow.total(cut, known) for cut in expected])
    assert [slow.total(spelled(tok, ids), known) for ids, _ in found] == [score for _, score in found]
    assert len({tuple(ids) for ids, _ in found}) == len(expected)
    assert found[0][0] == tok.encode_batch([word])[0].tolist()


def test_pretokens_and_unknown_characters_are_kept_apart():
    tok = made_unigram(PIECES, r"\S+|\s")

    found = n_best(tok.definition, "xyab cx", 3)
    assert spelled(tok, found[0][0])[1:] == (b"ab", b"[UNK]", b"c", b"[UNK]")
    assert [len(ids) for ids, _ in found] == [5, 6]
    assert n_best(tok.definition, "", 3) == [([], 0.0)]
    with pytest.raises(TokenizerError, match="k=0"):
        n_best(tok.definition, "a", 0)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_paths_are_drawn_as_often_as_they_are_probable(alpha):
    tok, number = made_unigram(PIECES), 4000
    drawn = Counter(
        spelled(tok, sample_batch(tok.definition, [b"abcab"], alpha=alpha, seed=seed).ids)
        for seed in range(number)
    )

    for cut, chance in slow.chances(b"abcab", PIECES, alpha):
        assert drawn[tuple(cut)] == pytest.approx(number * chance, abs=5 * math.sqrt(number * chance) + 1)
