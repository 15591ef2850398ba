"""Sums that are rounded to 32 bits: remembered parts of a text have the ids that the slow model finds."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.reference import unigram as slow
from tokmill.tokenizer.unigram.model import UnigramModel

PIECES = ["▁", "▁a", "▁b", "a", "b", "ab", "ba", "aab", "abb", "▁ab", "▁▁", "今", "今日", "日", "b▁", "é"]
ALPHABET = ["a", "b", "▁", "今", "日", "c", "ab▁", "▁abba", "é"]


def rounded(score: float) -> float:
    """A sum in 32 bits."""
    return float(np.float32(score))


def made(scores: dict[str, float], *, with_bytes: bool) -> Tokenizer:
    """A tokenizer of these pieces, whose sums are rounded; [UNK] is 0."""
    tokens = dict(enumerate((piece.encode() for piece in scores), 1))
    values = [0.0, *scores.values()]
    standing_in = range(len(values), len(values) + 256) if with_bytes else range(0)
    tokens |= {i: bytes([byte]) for byte, i in enumerate(standing_in)}
    vocabulary = Vocabulary.build(tokens, {"[UNK]": 0}, 0, list(standing_in))
    scores_32 = np.array([*values, *[0.0] * len(standing_in)], np.float32).astype(np.float64)
    model = UnigramModel(vocabulary, scores_32, precision="single")
    return Tokenizer(Definition.compose(model, split_pattern=r"[\s\S]+"))


def expected(tok: Tokenizer, text: str) -> list[int]:
    """The ids that the slow model finds."""
    model = tok.definition.model
    assert isinstance(model, UnigramModel)
    known = {t: i for i, t in model.vocabulary.ordinary() if i not in model.vocabulary.byte_ids}
    scores = {token: float(model.scores[i]) for token, i in known.items()}
    return [
        known.get(piece, 0) for piece in slow.best(text.encode(), scores, model.unknown_score, rounded, -1e5)
    ]


def by_kernel(tok: Tokenizer, text: str, times: int = 2) -> list[list[int]]:
    """Encode a text several times, which remembers its parts, after much else of it."""
    return tok.encode_batch([text[: len(text) // 2], *[text] * times], as_text=True).to_lists()[1:]


def near_ties(seed: int) -> dict[str, float]:
    """Scores that add up to almost the same in many ways."""
    random_ = random.Random(seed)
    return {
        piece: -len(piece) * random_.choice([1.1, 3.7]) * (1 + random_.choice([0, 1e-7, 1e-6, 1e-4]))
        for piece in PIECES
    }


@pytest.mark.parametrize("seed", range(12))
@settings(max_examples=30)
@given(text=st.lists(st.sampled_from(ALPHABET), max_size=60).map("".join))
def test_short_texts_have_the_ids_of_the_slow_model(seed: int, text: str) -> None:
    tok = _MADE.setdefault(seed, made(near_ties(seed), with_bytes=False))
    assert by_kernel(tok, text) == [expected(tok, text)] * 2


_MADE: dict[int, Tokenizer] = {}


@pytest.mark.parametrize("seed", range(6))
def test_long_texts_have_the_ids_of_the_slow_model(seed: int) -> None:
    random_ = random.Random(seed)
    words = ["".join(random_.choices(ALPHABET, k=random_.randint(1, 9))) for _ in range(80)]
    text = "".join(random_.choices(words, k=3000))
    tok = made(near_ties(seed), with_bytes=False)
    assert by_kernel(tok, text) == [expected(tok, text)] * 2


def test_rounding_decides_in_long_texts() -> None:
    scores = {"a": -1.0, "b": -1.0, "ab": -2.0 - 3e-6, "▁": -1.0, "x": -9.0}
    tok = made(scores, with_bytes=False)
    text = "▁ab" * 4 + "x" * 3000 + "▁ab" * 4
    ids = expected(tok, text)
    assert by_kernel(tok, text) == [ids] * 2
    assert ids[:3] == [4, 1, 2]
    assert ids[-2:] == [4, 3]


def test_unknown_characters_become_their_bytes_and_neighbours_one_token() -> None:
    scores = {"a": -1.0, "▁a": -1.5}
    assert by_kernel(made(scores, with_bytes=False), "ccc▁▁a▁ca") == [[0, 2, 0, 1]] * 2
    ids = by_kernel(made(scores, with_bytes=True), "c▁a")
    assert ids == [[3 + ord("c"), 2]] * 2


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [30, 3_000, 60_000])
def test_adding_begins_again_where_a_sum_is_low(seed: int, size: int) -> None:
    """Once in a long text, in every second word, or at every character."""
    random_ = random.Random(seed)
    words = ["".join(random_.choices(ALPHABET, k=random_.randint(1, 9))) for _ in range(40)]
    text = "".join(random_.choices(words, k=400))
    tok = made({piece: score * size for piece, score in near_ties(seed).items()}, with_bytes=False)
    assert by_kernel(tok, text) == [expected(tok, text)] * 2
