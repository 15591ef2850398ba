"""The named patterns: golden cuts worked out by hand, laws, and the engines that they were published for."""

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from tokmill.tokenizer.core.errors import PatternError, TokenizerError
from tokmill.tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS, compile_pattern, resolve
from tokmill.tokenizer.splitting.fallback import compile_regex, isolate

NAMES = [*SPLIT_PATTERNS, *SPLIT_CHAINS]

# What tiktoken 0.14's `openai_public.py` says; `regex` reads it as Rust's engine does, as $ follows \s++.
TIKTOKEN = {
    "gpt2": r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
    "cl100k": r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
}

TEXT = "Hello,  world's 12345\n\n  x_y = 'TIS\t日本語ですCamelCase! \n  "
GOLDEN = {
    "gpt2": [
        *["Hello", ",", " ", " world", "'s", " 12345", "\n\n ", " x", "_", "y", " =", " '", "TIS"],
        *["\t", "日本語ですCamelCase", "!", " \n  "],
    ],
    "cl100k": [
        *["Hello", ",", " ", " world", "'s", " ", "123", "45", "\n\n", " ", " x", "_y", " =", " '", "TIS"],
        *["\t日本語ですCamelCase", "!", " \n  "],
    ],
    "o200k": [
        *["Hello", ",", " ", " world's", " ", "123", "45", "\n\n", " ", " x", "_y", " =", " '", "TIS"],
        *["\t日本語ですCamel", "Case", "!", " \n", "  "],
    ],
    "qwen2": [
        *["Hello", ",", " ", " world", "'s", " ", "1", "2", "3", "4", "5", "\n\n", " ", " x", "_y", " ="],
        *[" '", "TIS", "\t日本語ですCamelCase", "!", " \n", "  "],
    ],
    "starcoder": [
        *["Hello", ",", " ", " world", "'s", " ", "1", "2", "3", "4", "5", "\n\n ", " x", "_", "y", " ="],
        *[" '", "TIS", "\t", "日本語ですCamelCase", "!", " \n  "],
    ],
    "deepseek_v3": [
        *["Hello", ",", " ", " world", "'s", " ", "123", "45", "\n\n", " ", " x", "_y", " =", " '", "TIS"],
        *["\t", "日本語です", "CamelCase", "!", " \n", "  "],
    ],
    "bert": [
        *["Hello", ",", "  ", "world", "'", "s", " ", "12345", "\n\n  ", "x", "_", "y", " ", "=", " ", "'"],
        *["TIS", "\t", "日本語ですCamelCase", "!", " \n  "],
    ],
    "clip": [
        *["Hello", ",", "  ", "world", "'s", " ", "1", "2", "3", "4", "5", "\n\n  ", "x", "_", "y", " ", "="],
        *[" ", "'", "TIS", "\t", "日本語ですCamelCase", "!", " \n  "],
    ],
    "whitespace": [
        *[
            "Hello",
            ",",
            "  ",
            "world",
            "'",
            "s",
            " ",
            "12345",
            "\n\n  ",
            "x_y",
            " ",
            "=",
            " ",
            "'",
            "TIS",
            "\t",
        ],
        *["日本語ですCamelCase", "!", " \n  "],
    ],
    "whitespace_split": [
        *["Hello,", "  ", "world's", " ", "12345", "\n\n  ", "x_y", " ", "=", " ", "'TIS", "\t"],
        *["日本語ですCamelCase!", " \n  "],
    ],
    "punctuation": [
        *["Hello", ",", "  world", "'", "s 12345\n\n  x", "_", "y ", "=", " ", "'"],
        *["TIS\t日本語ですCamelCase", "!", " \n  "],
    ],
    "unicode_scripts": [
        *["Hello", ",  ", "world", "'", "s ", "12345\n\n  ", "x", "_", "y ", "= '", "TIS", "\t"],
        *["日本語です", "CamelCase", "! \n  "],
    ],
}
GOLDEN["cs336"] = GOLDEN["gpt2"]
GOLDEN["llama3"] = [*GOLDEN["cl100k"][:-1], " \n", "  "]

# Where patterns differ: contractions, white space of every kind, digits that are not ASCII, marks, case.
HARD = "'’sStTdDmMlLvVeErRſK aAzZéßǅʰ中あア\u0301\u0e31 09²Ⅻ٣_-/.!😀\x00\u0378"
HARD += "\t\n\r\v\f\x1c\x85\xa0\u2028\u3000\u200b"
texts = st.one_of(
    st.text(st.one_of(st.sampled_from(HARD), st.characters()), max_size=60),
    st.text(st.sampled_from(" \n\t'sSlLaA1.-/"), max_size=100),
)


@pytest.mark.parametrize("name", NAMES)
def test_golden(name: str) -> None:
    assert compile_pattern(name).split_text(TEXT) == GOLDEN[name]


@pytest.mark.parametrize("name", NAMES)
def test_runs_on_the_automaton(name: str) -> None:
    assert compile_pattern(name, "single").engine == "automaton"


@pytest.mark.parametrize("name", NAMES)
@given(text=texts)
@example("a  \r\n \n  b")
@example("I'LL we'Re it'ſ ''s 's'")
def test_equals_regex(name: str, text: str) -> None:
    pieces = [text.encode("utf-8", "replace").decode()]  # hypothesis may draw lone surrogates
    for expression in resolve(name):
        pieces = [part for piece in pieces for part in isolate(compile_regex(expression), piece)]
    assert compile_pattern(name).split_text("".join(pieces)) == pieces


@pytest.mark.parametrize("name", TIKTOKEN)
@given(text=texts)
def test_says_what_tiktoken_says(name: str, text: str) -> None:
    ours = isolate(compile_regex(SPLIT_PATTERNS[name]), text)
    assert ours == isolate(compile_regex(TIKTOKEN[name]), text)


# Its engine does not know scripts by these names; test_split_parts.py compares them with `UnicodeScripts`.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "unicode_scripts"])
@pytest.mark.parametrize("digits", ["pattern", "single", "groups_of_three"])
def test_equals_isolated_splits_of_tokenizers(name: str, digits: str) -> None:
    chain = [
        pre_tokenizers.Split(tokenizers.Regex(expression), "isolated") for expression in resolve(name, digits)
    ]
    text = TEXT + " a1b22 c333  4444 5\n6 \x00\x01 12 ½ x² 漢字1かな 'll 'VE\r\n\r\n\t\tend"
    expected = [piece for piece, _ in pre_tokenizers.Sequence(chain).pre_tokenize_str(text)]
    assert compile_pattern(name, digits).split_text(text) == expected


def test_what_nothing_matches_is_kept_in_one_stretch() -> None:
    assert compile_pattern(r"\p{L}+").split_text("--ab, c12") == ["--", "ab", ", ", "c", "12"]


def test_digits_are_cut_out_before_the_pattern_runs() -> None:
    assert compile_pattern("gpt2", "single").split_text("a  123") == ["a", "  ", "1", "2", "3"]
    assert compile_pattern("gpt2", "groups_of_three").split_text("1234567 8") == ["123", "456", "7", " ", "8"]


def test_no_match_looks_over_the_edge_of_a_document() -> None:
    data = np.frombuffer(b"ab  cd'll", np.uint8)
    found = compile_pattern("gpt2").split(data, np.array([0, 1, 3, 3, 4, 7, 9], np.int64))
    assert found.starts.tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert found.ends.tolist() == [1, 2, 3, 4, 6, 7, 9]
    assert found.offsets.tolist() == [0, 1, 3, 3, 4, 6, 7]


def test_segments_need_not_touch() -> None:
    data = np.frombuffer(b"one two<sep>three four", np.uint8)
    starts, ends = np.array([12, 0, 3, 3], np.int64), np.array([22, 7, 3, 7], np.int64)
    found = compile_pattern("gpt2").split_segments(data, starts, ends)
    assert found.starts.tolist() == [12, 17, 0, 3, 3]
    assert found.ends.tolist() == [17, 22, 3, 7, 7]
    assert found.offsets.tolist() == [0, 2, 4, 4, 5]


def test_no_documents() -> None:
    found = compile_pattern("deepseek_v3").split(np.zeros(0, np.uint8), np.zeros(1, np.int64))
    assert (found.starts.tolist(), found.ends.tolist(), found.offsets.tolist()) == ([], [], [0])


@pytest.mark.parametrize(("starts", "ends"), [([0], [5]), ([-1], [2]), ([3], [2])])
def test_a_segment_outside_of_the_data_is_refused(starts: list[int], ends: list[int]) -> None:
    with pytest.raises(TokenizerError, match="segment 0 is"):
        compile_pattern("gpt2").split_segments(
            np.zeros(4, np.uint8), np.array(starts, np.int64), np.array(ends, np.int64)
        )


def test_the_same_request_gives_the_same_splitter() -> None:
    assert compile_pattern("gpt2") is compile_pattern("gpt2", "pattern")
    assert compile_pattern([r"\d", r"\s"]) is compile_pattern((r"\d", r"\s"))


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("gtp2", "did you mean gpt2"),
        ("", "must hold a regular expression"),
        ([], "must hold a regular expression"),
        ("(ab", "is not a regular expression"),
        ("(?V1)(?V0)a", "is not a regular expression"),
        (r"\s*", "can match the empty string"),
        (r"a|(?!\S)", "can match the empty string"),
        (r"\b", "can match the empty string"),
    ],
)
def test_patterns_that_cannot_be_used(pattern: str, message: str) -> None:
    with pytest.raises(PatternError, match=message):
        compile_pattern(pattern)


def test_an_unknown_digit_handling_is_refused() -> None:
    with pytest.raises(PatternError, match="digits='thirds' is not known"):
        compile_pattern("gpt2", "thirds")  # type: ignore[arg-type]
