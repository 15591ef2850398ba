"""Digits in groups of three from the right: by hand, as `regex` and tokenizers cut them, in every step."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import TRAINING_TEXTS, ntrex
from tokmill import tokenizer
from tokmill.tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS, compile_pattern, resolve
from tokmill.tokenizer.splitting.fallback import compile_regex, isolate
from tokmill.tokenizer.splitting.patterns import from_right, groups_of
from tokmill.tokenizer.streaming import certain_pretokens

FROM_RIGHT = "groups_of_three_from_right"
NUMBERS = "1234567 + 89,012.3456 = ٣٤٥٦ ½½½½ Ⅻ¹²³4 1" + "0" * 300 + "x7890\ud7ff"

numbers = st.lists(
    st.one_of(st.text("0123456789", max_size=12), st.text("٣½Ⅻ1\u0301𝟙", max_size=7), st.text(max_size=3))
).map("".join)


@pytest.mark.parametrize(
    ("text", "cut"),
    [
        ("1234567", ["1", "234", "567"]),
        ("12 123 1234", ["12", " ", "123", " ", "1", "234"]),
        ("1,234.5678x", ["1", ",", "234", ".", "5", "678", "x"]),
        ("a٣٤٥٦", ["a", "٣", "٤٥٦"]),
    ],
)
def test_by_hand(text: str, cut: list[str]) -> None:
    splitter = compile_pattern("gpt2", FROM_RIGHT)
    assert splitter.engine == "automaton"
    assert splitter.split_text(text) == cut


def by_regex(chain: tuple[str, ...], text: str) -> list[str]:
    pieces = [text]
    for expression in chain:
        pieces = [part for piece in pieces for part in isolate(compile_regex(expression), piece)]
    return pieces


@given(text=numbers)
@example(NUMBERS)
def test_equals_regex(text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    for pattern in ("gpt2", "o200k"):
        expected = by_regex(resolve(pattern, FROM_RIGHT), text)
        assert compile_pattern(pattern, FROM_RIGHT).split_text(text) == [piece for piece in expected if piece]


@pytest.mark.parametrize("one", [r"\p{N}", r"\p{Nd}", r"\d", "[0-9]", "[a-f]"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 99])
def test_groups_of_any_size_and_characters_equal_regex(one: str, size: int) -> None:
    expression = from_right(one, size)
    text = NUMBERS + "abcdefab " + "7" * 250
    splitter = compile_pattern(expression)
    assert splitter.engine == "automaton"
    assert splitter.split_text(text) == isolate(compile_regex(expression), text)


def test_only_expressions_of_this_form_are_taken_for_it() -> None:
    whole = from_right(r"\p{N}", 3)
    assert groups_of(whole) == (r"\p{N}+", 3)
    for other in (
        whole.replace("3}(", "4}("),
        whole.replace("(?!", "(?="),
        whole.replace(r"!\p{N}", r"!\p{L}"),
        whole.replace(")*", ")+"),
        f"{whole}|x",
        from_right("ab", 3),
        from_right("[^a-b]", 3),
    ):
        assert groups_of(other) is None


@pytest.mark.parametrize("name", [*sorted({*SPLIT_PATTERNS} - {"unicode_scripts"}), *SPLIT_CHAINS])
def test_equals_isolated_splits_of_tokenizers(name: str) -> None:
    steps = [
        tokenizers.pre_tokenizers.Split(tokenizers.Regex(part), "isolated")
        for part in resolve(name, FROM_RIGHT)
    ]
    expected = tokenizers.pre_tokenizers.Sequence(steps).pre_tokenize_str(NUMBERS)
    assert compile_pattern(name, FROM_RIGHT).split_text(NUMBERS) == [piece for piece, _ in expected]


@given(numbers, numbers)
def test_what_is_certain_of_a_growing_text_stays(text: str, more: str) -> None:
    splitter = compile_pattern("gpt2", FROM_RIGHT)
    begun, whole = text.encode("utf-8", "replace"), (text + more).encode("utf-8", "replace")
    starts, ends = certain_pretokens(splitter, np.frombuffer(begun, np.uint8))
    found = splitter.split(np.frombuffer(whole, np.uint8), np.array([0, len(whole)]))
    assert found.starts[: len(starts)].tolist() == starts.tolist()
    assert found.ends[: len(ends)].tolist() == ends.tolist()


def test_a_run_that_may_grow_is_held_back_and_what_is_before_it_is_not() -> None:
    splitter = compile_pattern("gpt2", FROM_RIGHT)
    assert certain_pretokens(splitter, np.frombuffer(b"12345 67", np.uint8))[1].tolist() == [2, 5, 6]


FAMILIES = {
    "byte_bpe": 300,
    "char_bpe": 90,
    "unigram": 90,
    "word_bpe": 120,
    "wordpiece": 120,
    "word_level": 40,
    "character_level": 40,
}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_trained_with_it_and_comes_back(family: str, tmp_path: Path) -> None:
    texts = [*TRAINING_TEXTS, "1234567 7654321 234567 567"] * 2
    split = "bert" if family in {"wordpiece", "word_bpe"} else "gpt2"
    options = {"family": family, "split_pattern": split, "digits": FROM_RIGHT, "allow_smaller": True}
    tok = tokenizer.train(texts, vocab_size=FAMILIES[family], **options)
    assert b"23456" not in b" ".join(tok.vocab)
    again = tokenizer.load(*tok.save(tmp_path / "own"))
    assert again.spec() == tok.spec()
    assert again.definition.pre_tokenizer.digits == FROM_RIGHT
    text = "the 1234567 fox 12 1234"
    assert list(again.encode_iterable([*text])) == tok.encode(text)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family != "char_bpe"])
def test_tokenizers_gives_our_ids(family: str, tmp_path: Path) -> None:
    texts = [*TRAINING_TEXTS, "1234567 7654321 234567 567"] * 2
    split = "bert" if family in {"wordpiece", "word_bpe"} else "gpt2"
    options = {"family": family, "split_pattern": split, "digits": FROM_RIGHT, "allow_smaller": True}
    tok = tokenizer.train(texts, vocab_size=FAMILIES[family], **options)
    tok.save(tmp_path, "huggingface")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    again = tokenizer.load(tmp_path)
    for text in [*TRAINING_TEXTS, "1234567 and 12,345.6789", "٣٤٥٦", "1" + "0" * 50]:
        assert theirs.encode(text, add_special_tokens=False).ids == tok.encode(text) == again.encode(text)


@pytest.mark.shared_data
def test_real_text_is_cut_as_tokenizers_cuts_it(shared_data: Path) -> None:
    step = tokenizers.pre_tokenizers.Split(tokenizers.Regex(from_right(r"\p{N}", 3)), "isolated")
    splitter = compile_pattern(from_right(r"\p{N}", 3))
    for text in ntrex(shared_data).values():
        assert splitter.split_text(text) == [piece for piece, _ in step.pre_tokenize_str(text)]


def test_the_kernels_run_as_plain_python() -> None:
    code = (
        "import json; from tokmill.tokenizer.splitting import compile_pattern\n"
        f"print(json.dumps(compile_pattern('gpt2', '{FROM_RIGHT}').split_text('a1234567 ٣٤٥٦')))"
    )
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    said = subprocess.check_output([sys.executable, "-c", code], env=environment)
    assert json.loads(said) == compile_pattern("gpt2", FROM_RIGHT).split_text("a1234567 ٣٤٥٦")
