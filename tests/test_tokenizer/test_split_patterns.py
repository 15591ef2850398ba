"""The named patterns and digits: golden cuts by hand, laws, engines that they were published for, tables."""

import json
import logging
from collections import Counter
from collections.abc import Iterable
from typing import get_args

import numpy as np
import pytest
import regex
import tokenizers
import unicodedata2 as unicodedata
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from tests.test_tokenizer.conftest import TRAINING_TEXTS, by_regex
from tokmill import tokenizer
from tokmill.tokenizer import TokenizerError
from tokmill.tokenizer.core.errors import PatternError
from tokmill.tokenizer.formats import files
from tokmill.tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS, Digits, compile_pattern, resolve, syntax
from tokmill.tokenizer.splitting.automaton import tables_digest
from tokmill.tokenizer.splitting.fallback import compile_regex, isolate
from tokmill.tokenizer.splitting.marks import (
    cut_marks,
    describe,
    firsts_of_counts,
    marks_apart,
)
from tokmill.tokenizer.splitting.patterns import from_right
from tokmill.tokenizer.splitting.splitter import Splitter
from tokmill.tokenizer.splitting.syntax import code_points

NAMES = [*SPLIT_PATTERNS, *SPLIT_CHAINS]
# What tiktoken 0.14's `openai_public.py` says; `regex` reads it as Rust's engine does, as $ follows \s++.
TIKTOKEN = {
    "gpt2": r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s""",
    "cl100k": r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s""",
}
TEXT = "Hello,  world's 12345\n\n  x_y = 'TIS\t日本語ですCamelCase! \n  "
GOLDEN = {  # with a bar at each cut
    "gpt2": "Hello|,| | world|'s| 12345|\n\n | x|_|y| =| '|TIS|\t|日本語ですCamelCase|!| \n  ",
    "cl100k": "Hello|,| | world|'s| |123|45|\n\n| | x|_y| =| '|TIS|\t日本語ですCamelCase|!| \n  ",
    "llama3": "Hello|,| | world|'s| |123|45|\n\n| | x|_y| =| '|TIS|\t日本語ですCamelCase|!| \n|  ",
    "o200k": "Hello|,| | world's| |123|45|\n\n| | x|_y| =| '|TIS|\t日本語ですCamel|Case|!| \n|  ",
    "qwen2": "Hello|,| | world|'s| |1|2|3|4|5|\n\n| | x|_y| =| '|TIS|\t日本語ですCamelCase|!| \n|  ",
    "starcoder": "Hello|,| | world|'s| |1|2|3|4|5|\n\n | x|_|y| =| '|TIS|\t|日本語ですCamelCase|!| \n  ",
    "deepseek_v3": "Hello|,| | world|'s| |123|45|\n\n| | x|_y| =| '|TIS|\t|日本語です|CamelCase|!| \n|  ",
    "bert": "Hello|,|  |world|'|s| |12345|\n\n  |x|_|y| |=| |'|TIS|\t|日本語ですCamelCase|!| \n  ",
    "clip": "Hello|,|  |world|'s| |1|2|3|4|5|\n\n  |x|_|y| |=| |'|TIS|\t|日本語ですCamelCase|!| \n  ",
    "whitespace": "Hello|,|  |world|'|s| |12345|\n\n  |x_y| |=| |'|TIS|\t|日本語ですCamelCase|!| \n  ",
    "whitespace_split": "Hello,|  |world's| |12345|\n\n  |x_y| |=| |'TIS|\t|日本語ですCamelCase!| \n  ",
    "punctuation": "Hello|,|  world|'|s 12345\n\n  x|_|y |=| |'|TIS\t日本語ですCamelCase|!| \n  ",
    "unicode_scripts": "Hello|,  |world|'|s |12345\n\n  |x|_|y |= '|TIS|\t|日本語です|CamelCase|! \n  ",
}
GOLDEN["cs336"] = GOLDEN["gpt2"]
# Where patterns differ: contractions, white space of every kind, digits that are not ASCII, marks, case.
HARD = "'’sStTdDmMlLvVeErRſK aAzZéßǅʰ中あア\u0301\u0e31 09²Ⅻ٣_-/.!😀\x00\u0378"
HARD += "\t\n\r\v\f\x1c\x85\xa0\u2028\u3000\u200b"
texts = st.one_of(
    st.text(st.one_of(st.sampled_from(HARD), st.characters()), max_size=60),
    st.text(st.sampled_from(" \n\t'sSlLaA1.-/"), max_size=100),
)


@pytest.mark.parametrize("name", NAMES)
def test_golden(name):
    assert compile_pattern(name).split_text(TEXT) == GOLDEN[name].split("|")
    assert compile_pattern(name, "single").engine == "automaton"


def check(chain: Iterable[str], splitter: Splitter, text: str) -> None:
    document = text.encode("utf-8", "replace")  # hypothesis may draw lone surrogates
    assert [piece.encode() for piece in splitter.split_text(document.decode())] == by_regex(chain, document)


@pytest.mark.parametrize("name", NAMES)
@given(text=texts)
@example("a  \r\n \n  b")
@example("I'LL we'Re it'ſ ''s 's'")
def test_equals_regex(name, text):
    check(resolve(name), compile_pattern(name), text)


@pytest.mark.parametrize("name", TIKTOKEN)
@given(text=texts)
def test_says_what_tiktoken_says(name, text):
    ours = isolate(compile_regex(SPLIT_PATTERNS[name]), text)
    assert ours == isolate(compile_regex(TIKTOKEN[name]), text)


# Its engine does not know scripts by these names; test_split_steps.py compares them with `UnicodeScripts`.
@pytest.mark.parametrize("name", [name for name in NAMES if name != "unicode_scripts"])
@pytest.mark.parametrize("digits", get_args(Digits))
def test_equals_isolated_splits_of_tokenizers(name, digits):
    chain = [pre_tokenizers.Split(tokenizers.Regex(each), "isolated") for each in resolve(name, digits)]
    text = TEXT + " a1b22 c333  4444 5\n6 \x00\x01 12 ½ x² 漢字1かな 'll 'VE\r\n\r\n\t\tend" + NUMBERS
    expected = [piece for piece, _ in pre_tokenizers.Sequence(chain).pre_tokenize_str(text)]
    assert compile_pattern(name, digits).split_text(text) == expected


def test_no_match_looks_over_the_edge_of_a_document():
    data = np.frombuffer(b"ab  cd'll", np.uint8)
    found = compile_pattern("gpt2").split(data, np.array([0, 1, 3, 3, 4, 7, 9], np.int64))
    assert found.starts.tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert found.ends.tolist() == [1, 2, 3, 4, 6, 7, 9]
    assert found.offsets.tolist() == [0, 1, 3, 3, 4, 6, 7]


def test_segments_need_not_touch():
    data = np.frombuffer(b"one two<sep>three four", np.uint8)
    starts, ends = np.array([12, 0, 3, 3], np.int64), np.array([22, 7, 3, 7], np.int64)
    found = compile_pattern("gpt2").split_segments(data, starts, ends)
    assert found.starts.tolist() == [12, 17, 0, 3, 3]
    assert found.ends.tolist() == [17, 22, 3, 7, 7]
    assert found.offsets.tolist() == [0, 2, 4, 4, 5]


@pytest.mark.parametrize(("starts", "ends"), [([0], [5]), ([-1], [2]), ([3], [2])])
def test_a_segment_outside_of_the_data_is_refused(starts, ends):
    with pytest.raises(TokenizerError, match="segment 0 is"):
        compile_pattern("gpt2").split_segments(
            np.zeros(4, np.uint8), np.array(starts, np.int64), np.array(ends, np.int64)
        )


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
def test_patterns_that_cannot_be_used(pattern, message):
    with pytest.raises(PatternError, match=message):
        compile_pattern(pattern)
    with pytest.raises(PatternError, match="digits='thirds' is not known"):
        compile_pattern("gpt2", "thirds")  # type: ignore[arg-type]


FROM_RIGHT = "groups_of_three_from_right"
NUMBERS = "1234567 + 89,012.3456 = ٣٤٥٦ ½½½½ Ⅻ¹²³4 1" + "0" * 300 + "x7890\ud7ff"
numbers = st.lists(
    st.one_of(st.text("0123456789", max_size=12), st.text("٣½Ⅻ1\u0301𝟙", max_size=7), st.text(max_size=3))
).map("".join)


@given(text=numbers)
@example(NUMBERS)
def test_digits_from_the_right_equal_regex(text):
    for pattern in ("gpt2", "o200k"):
        check(resolve(pattern, FROM_RIGHT), compile_pattern(pattern, FROM_RIGHT), text)


@pytest.mark.parametrize("one", [r"\p{N}", r"\p{Nd}", r"\d", "[0-9]", "[a-f]"])
@pytest.mark.parametrize("size", [1, 2, 3, 4, 99])
def test_groups_of_any_size_and_characters_equal_regex(one, size):
    splitter = compile_pattern(from_right(one, size))
    assert splitter.engine == "automaton"
    check(splitter.chain, splitter, NUMBERS + "abcdefab " + "7" * 250)


@pytest.mark.parametrize(
    ("old", "new"),
    [("3}(", "4}("), ("(?!", "(?="), (r"!\p{N}", r"!\p{L}"), (")*", ")+"), ("", "x|"), ("N", "L")],
)
def test_expressions_that_only_look_like_it_equal_regex(old, new):
    expression = from_right(r"\p{N}", 3).replace(old, new) if old else f"{new}{from_right('[0-9]', 3)}"
    check([expression], compile_pattern(expression), NUMBERS + "x12ab3456 1 22 333 4444")


# Characters that were new in a version, of blocks that were new
NEW_IN = {"18.0": "\U0003d123", "17.0": "\U00010941", "16.0": "\U000105c1"}


def test_no_letter_is_newer_than_the_version_that_is_named():
    version = syntax.unicode_version()
    known = {name for name, character in NEW_IN.items() if regex.match(r"\P{Cn}", character)}
    assert version == max(known, default=version) or version.startswith("newer than ")
    assigned = int((code_points(r"\P{Cn}", 0) @ [-1, 1]).sum())
    assert version.startswith("newer than ") == (assigned > syntax._ASSIGNED_IN_NEWEST)


def test_the_digest_is_of_the_classes_that_patterns_tell_apart():
    digests = {name: compile_pattern(name).unicode["tables"] for name in [*SPLIT_PATTERNS, *SPLIT_CHAINS]}
    assert digests["gpt2"] == digests["cs336"]
    assert digests["llama3"] == digests["qwen2"]
    assert len({digests[name] for name in ("gpt2", "cl100k", "o200k", "deepseek_v3")}) == 4
    assert tables_digest([r"\p{L}+"]) != tables_digest([r"[^\W\d_]+"])
    assert len(tables_digest([r"(\w)\1|."])) == 16


@pytest.mark.parametrize("name", ["tokmill", "tiktoken"])
def test_other_tables_than_in_training_are_said_when_a_tokenizer_is_loaded(name, tmp_path, caplog):
    tok = tokenizer.train(TRAINING_TEXTS, vocab_size=300)
    assert tok.definition.unicode == tok.splitter.unicode
    saying = tok.save(tmp_path, name)[-1]
    with caplog.at_level(logging.WARNING):
        assert tokenizer.load(tmp_path) == tok
        assert not caplog.records
        content = json.loads(saying.read_bytes())
        files.write_json(saying, content | {"unicode": {"version": "9.0", "tables": "0" * 16}})
        loaded = tokenizer.load(tmp_path)
    assert "was trained with the tables of Unicode 9.0 (0000000000000000)" in caplog.text
    assert tok.splitter.unicode["version"] in caplog.text
    assert loaded.definition.unicode == {"version": "9.0", "tables": "0" * 16}
    for broken in ("18.0", {"version": 18.0, "tables": "a"}, {"version": "18.0"}, ["a", "b"]):
        files.write_json(saying, content | {"unicode": broken})
        with pytest.raises(TokenizerError, match="'version' and 'tables'"):
            tokenizer.load(tmp_path)


TAMIL = "எல்லா மனிதர்களும் சுதந்திரமாகவே பிறக்கின்றனர் " * 20
HINDI = "सभी मनुष्य जन्म से स्वतन्त्र हैं " * 20
ACCENTS = unicodedata.normalize("NFD", "à é î õ ü ") * 50
KEEP = {"o200k", "deepseek_v3", "bert", "whitespace", "whitespace_split", "punctuation"}


def firsts(text: str, pattern: str) -> Counter[str]:
    counts = tokenizer.count_pretokens([text], split_pattern=pattern)
    return firsts_of_counts(counts.data, counts.offsets, counts.counts)


@pytest.mark.parametrize("pattern", [*SPLIT_PATTERNS, *SPLIT_CHAINS])
def test_patterns_whose_words_are_letters_alone_cut_marks(pattern):
    found = cut_marks(firsts(TAMIL + HINDI + ACCENTS, pattern))

    cut = {"unicode_scripts": {"Combining"}}.get(pattern, {"Combining", "Devanagari", "Tamil"})
    assert set(found) == (set() if pattern in KEEP else cut)
    assert all(0.1 < share < 0.9 for share in found.values())


@pytest.mark.parametrize("text", ["", "plain text, no marks", "❤️ ✔️ " * 100, "किताब", "\u0301" * 3])
def test_nothing_is_said_where_nothing_or_little_is_cut(text):
    assert describe("gpt2", firsts(text, "gpt2")) is None


def test_the_sentence_names_pattern_script_and_cure():
    said = describe("gpt2", firsts(TAMIL, "gpt2"))

    assert said is not None
    for fact in ("split_pattern='gpt2'", "Tamil", "%", "'o200k'"):
        assert fact in said


def tokens_of(text: str, **options: object) -> list[tuple[str, int]]:
    """The tokens of a text, and how often each occurs, by a tokenizer that was trained on it."""
    tok = tokenizer.train([text], **options)
    counts = Counter(tok.encode(text))
    return [(tok.token_bytes(token).decode("utf-8", "replace"), number) for token, number in counts.items()]


@pytest.mark.parametrize(("pattern", "apart"), [("gpt2", {"Tamil"}), ("llama3", {"Tamil"}), ("o200k", set())])
def test_tokens_show_marks_that_were_cut_off(pattern, apart):
    tokens = tokens_of(TAMIL, vocab_size=288, split_pattern=pattern)
    assert set(marks_apart(tokens)) == apart


def test_single_characters_and_accents_beside_others_are_no_cut():
    assert marks_apart(tokens_of(TAMIL, vocab_size=60, family="character_level")) == {}
    assert marks_apart([("மர", 50), ("ம்", 50), ("ி", 50)]) == {}  # one token holds both
    assert marks_apart([("மர", 50), ("ம", 50), ("ி", 100)]) == {"Tamil": 0.5}
    assert marks_apart([("மர", 50), ("ம", 50), ("ி", 5)]) == {}  # now and then
