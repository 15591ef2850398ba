"""Encoding by WordPiece: by hand, against the reference, and against Hugging Face's tokenizers."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import BertWordPieceTokenizer

from tests.test_tokenizer.conftest import corpus, ntrex
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer, attestation
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.reference import wordpiece as reference
from tokmill.tokenizer.wordpiece.model import WordPieceModel

CASED = "bert_clean+cjk_spaces"
UNCASED = f"{CASED}+strip_nonspacing+lowercase"
NASTY = [
    "abcdefghij unrunning##[]  \t\n\r\x00\x01\x1c\x1f\x7f\x85\xa0\u200b\u200d\ufeff\ufffd\u2028",
    "日本語한국어नमस्तेกำ\u0301\u0323é😀👍🏽\U000e0041\U0010ffff\ue000$+<=>^`|~«»—₹\u0378ß İΣς",
]


def made(pieces: set[str], unknown: str = "word", most: int = 100) -> Tokenizer:
    """A tokenizer of these pieces, which splits text at white space."""
    tokens = {i: piece.encode() for i, piece in enumerate(sorted(pieces), start=1)}
    model = WordPieceModel(Vocabulary.build(tokens, {"[UNK]": 0}), "[UNK]", most, unknown)  # type: ignore[arg-type]
    return Tokenizer(Definition.compose(model, split_pattern=r"\s+|\S+", decoder="wordpiece"))


def texts_of(tok: Tokenizer, ids: list[int]) -> list[str]:
    """The tokens of ids, as text."""
    return [tok.definition.vocabulary.tokens[i].decode() for i in ids]


@pytest.mark.parametrize(
    ("word", "unknown", "expected"),
    [
        ("unhappiness", "word", ["un", "##happi", "##ness"]),
        ("playing", "word", ["play", "##ing"]),
        ("unrunning", "word", ["[UNK]"]),
        ("unrunning", "part", ["un", "run", "[UNK]", "##ing"]),
        ("鞲韫", "word", ["[UNK]"]),
        ("play 鞲韫 un", "word", ["play", "[UNK]", "un"]),
    ],
)
def test_words_by_hand(word: str, unknown: str, expected: list[str]) -> None:
    tok = made({"un", "##happi", "##happ", "##ness", "play", "##ing", "run"}, unknown)

    assert texts_of(tok, tok.encode(word)) == expected


def test_tokens_are_located_without_white_space() -> None:
    tok = made({"un", "##ti", "##l", "é"})

    assert tok.encode_with_offsets(" until \té zz") == (
        [*tok.encode("until é"), 0],
        [(1, 3), (3, 5), (5, 6), (8, 9), (10, 12)],
    )
    assert tok.decode(tok.encode(" until \té zz")) == "until é [UNK]"


@given(
    pieces=st.sets(st.text("ab#é", min_size=1, max_size=5).filter(lambda piece: piece != "##"), max_size=30),
    words=st.lists(st.text("ab#éz", min_size=1, max_size=40), max_size=12),
    most=st.integers(1, 45),
    unknown=st.sampled_from(["word", "part"]),
)
def test_encoding_is_the_references(pieces: set[str], words: list[str], most: int, unknown: str) -> None:
    tok = made(pieces, unknown, most)
    text = "\t ".join(words)
    expected = [
        p for word in words for p in reference.encode(word, pieces, by_part=unknown == "part", max_chars=most)
    ]
    ids = tok.encode_batch([text, text], as_text=True).to_lists()
    located, spans = tok.encode_with_offsets(text, as_text=True)

    assert [texts_of(tok, found) for found in ids] == [expected, expected]
    assert list(tok.encode_iterable([text[:5], text[5:]], as_text=True)) == ids[0] == located
    for token, (start, end) in zip(expected, spans, strict=True):
        assert token == "[UNK]" or token in {text[start:end], f"##{text[start:end]}"}
    attestation.check(tok, attestation.make(tok))


@given(st.lists(st.binary(max_size=50), max_size=5))
def test_bytes_that_are_no_text_are_accounted_for(texts: list[bytes]) -> None:
    tok = made({"a", "##a", "aa", "##b"}, "part")

    for text, ids in zip(texts, tok.encode_batch(texts, as_text=True), strict=True):
        assert tok.encode_with_offsets(text, as_text=True)[0] == ids.tolist()


def test_a_word_that_fits_but_for_its_end_is_located() -> None:
    """Such a word has more pieces before it turns out to be unknown than ids in the end."""
    tok = made({"a", "##a"})

    assert tok.encode_with_offsets("a" * 99 + "b") == ([0], [(0, 100)])
    assert tok.encode_with_offsets("aa " + "a" * 99 + "b aa") == (
        [1 + 1, 1, 0, 2, 1],
        [(0, 1), (1, 2), (3, 103), (104, 105), (105, 106)],
    )


@pytest.mark.parametrize("length", [15, 16, 31, 32, 99, 100, 101, 5000])
def test_words_of_every_length_are_found(length: int) -> None:
    word, most = "é" * length, 5000
    assert texts_of(made({word}, most=most), made({word}, most=most).encode(word)) == [word]
    assert made({word}).encode(word) == [1 if length <= 100 else 0]


def library(vocabulary: Path, *, lower: bool) -> BertWordPieceTokenizer:
    """The same tokenizer of the library."""
    return BertWordPieceTokenizer(str(vocabulary), lowercase=lower, strip_accents=lower)


def nasty(number: int) -> list[str]:
    """Texts of characters that need care, and very long words."""
    dice = random.Random(number)
    texts = ["".join(dice.choices("".join(NASTY), k=dice.randrange(1, 80))) for _ in range(number)]
    return [*texts, *(f"{'a' * k} {'é' * k} {'日' * k}" for k in (99, 100, 101, 5000))]


def assert_equal(vocabulary: Path, texts: list[str]) -> None:
    """Assert that both give the same ids, cased and uncased."""
    for normalizer in (UNCASED, CASED):
        tok = tokenizer.load(vocabulary, normalizer=normalizer)
        other = library(vocabulary, lower=normalizer == UNCASED)
        found = tok.encode_batch(texts, as_text=True).to_lists()
        for text, ids in zip(texts, found, strict=True):
            assert other.encode(text, add_special_tokens=False).ids == ids, text[:200]


def test_ids_are_those_of_tokenizers(tmp_path: Path) -> None:
    pieces = [
        "[UNK]",
        "[PAD]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "un",
        "run",
        "##n",
        "##ning",
        "##a",
        "a",
        "b",
        "##b",
        "##c",
        "é",
        "日",
        "##",
        "#",
        "$",
        "i",
        "B",
    ]
    file = tmp_path / "vocab.txt"
    file.write_text("".join(f"{piece}\n" for piece in pieces), encoding="utf-8")

    assert_equal(file, ["unrunning runn ab日b, Éa aé", *nasty(300)])


@pytest.mark.shared_data
def test_ids_are_those_of_tokenizers_on_real_text(shared_data: Path, tmp_path: Path) -> None:
    file = Path(shutil.copy(shared_data / "vocabs" / "bert_vocab.txt", tmp_path / "vocab.txt"))
    texts = [line for text in ntrex(shared_data).values() for line in text.split("\n")[:150]]
    for source in sorted((shared_data / "corpora").glob("*.jsonl.zst")):
        texts += corpus(shared_data, source.name.removesuffix(".jsonl.zst"), 200_000)

    assert_equal(file, [*texts, *nasty(1000)])


def test_kernels_give_the_same_as_plain_python() -> None:
    code = """
from tokmill import tokenizer
tok = tokenizer.train(["the cat, unhappily the dog"], family="wordpiece", vocab_size=30, unknown="part")
texts = ["the dogs unhappy caté", "[UNK] x", ""]
print(list(tok.vocab), tok.encode_batch(texts, as_text=True).to_lists(), tok.encode_with_offsets(texts[0]))
"""
    plain, compiled = (
        subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"NUMBA_DISABLE_JIT": flag})
        for flag in ("1", "0")
    )
    assert plain == compiled
