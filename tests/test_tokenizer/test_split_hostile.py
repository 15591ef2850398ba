"""Split patterns of strangers: none takes unbounded time or memory, none matches where there is nothing."""

import string

import pytest
import regex

from tokmill.tokenizer.core.errors import PatternError
from tokmill.tokenizer.splitting import compile_pattern, fallback, resolve
from tokmill.tokenizer.splitting.fallback import outline


def nested(inner: str, times: int, around: str) -> str:
    for _ in range(times):
        inner = around.format(inner)
    return inner


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("|".join(f"w{i}" for i in range(200_000)), "1 to 10000 characters, not of 1488889"),
        ("x" * 9_000, "is not a known name"),
        (nested("a", 300, "({})"), "300 groups in each other"),
        (nested("a", 4_000, "({})"), "4000 groups in each other"),
        (nested("a", 5, "(?:{}){{100}}"), "has 10000000000 parts"),
        (nested("a", 5, "(?:{}b){{0,100}}") + "b", "parts, repetitions spelled out"),
        ("a{" + "9" * 5000 + "}", "parts, repetitions spelled out"),
        (["a"] * 65, "a list of 1 to 64"),
        ([7], "a list of 1 to 64"),
        (7, "a list of 1 to 64"),
    ],
)
def test_patterns_that_would_take_unbounded_time_or_memory_are_refused(pattern, says):
    with pytest.raises(PatternError, match=says) as caught:
        compile_pattern(pattern)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "pattern",
    [
        "|".join(f"[{chr(0x4E00 + i)}-{chr(0x4E50 + i)}]" for i in range(900)),
        "|".join(chr(0x4E00 + i) * 3 for i in range(2400)),
        "(?:a|b)*a" + "(?:a|b)" * 20 + "c",
        "a{0,100}" * 30 + "b",
        nested("a", 100, "(?:{}b)"),
        "|".join(f"{letter}{{1,90}}x{letter}" for letter in string.ascii_lowercase),  # tables
        "[ab]*a.{16}|b",  # states: which of the last 16 characters were an a
        "(?:a{99}b{99}){99}",  # instructions
        "|".join(chr(0x100 + 2 * i) for i in range(300)),  # classes of characters
        "[\udc80-\udc90]",  # surrogates that differ
    ],
)
def test_what_would_take_the_automaton_long_is_left_to_regex(pattern):
    assert compile_pattern(pattern).engine == "regex"


def test_long_literals_are_compiled_without_looking_for_states_that_are_alike_for_ever():
    literal = "".join(chr(0x4E00 + i % 50) for i in range(300))
    splitter = compile_pattern(f"{literal}|.")
    assert splitter.engine == "automaton"
    assert splitter.split_text(f"ab{literal}c{literal[:-1]}") == ["a", "b", literal, "c", *literal[:-1]]


def test_an_expression_that_backtracks_without_end_is_stopped(monkeypatch):
    splitter = compile_pattern("(?:a|a)+$|.")
    assert splitter.engine == "regex"
    monkeypatch.setattr(fallback, "SECONDS_AT_LEAST", 0.01)
    with pytest.raises(PatternError, match="a hundred times as long as others, last for 61 characters"):
        splitter.split_text("a" * 60 + "b")


def test_texts_that_each_take_less_than_the_limit_are_stopped_too(monkeypatch):
    monkeypatch.setattr(fallback, "SECONDS_AT_LEAST", 0.05)
    splitter = compile_pattern("(?:b|b)+$|.")
    with pytest.raises(PatternError, match="a hundred times as long as others, last for 15 characters"):
        list(map(splitter.split_text, ["b" * 14 + "c"] * 3000))


NOTHING = [
    *[r"(?=xyzzy)|\w+", r"\b|x", r"(?<=a)b?", r"(a)?(?(1)b|c)", "(?x) a* # b", r"a\Kb", r"(?:(?<!q)|zz)+"],
    *[r"(b)(?=c)|(?<=q)\1", "(?>a?b?)", r"x{0}", r"(?i)(?:y|(?=Q))", r"q|(?#comment)"],
]


@pytest.mark.parametrize("pattern", NOTHING)
def test_what_may_match_nothing_is_refused_when_it_is_loaded(pattern):
    with pytest.raises(PatternError, match="can match the empty string"):
        compile_pattern(pattern)


TAKES_TEXT = [
    *[r"\bfoo|x+", r"(?P<x>a|b(?>c+d))(?!foo)|\X", r"(a)\1|b(?<=b)", r"[]a](?<=a)", r"[^]a]{2,}?(?=b)"],
    *[r"(?x) a+  # b", r"[[:alpha:]]\b", r"(?|(a)|(b))\1", r"\p{L}{1,}+(?<!z)", r"(?:ab?|c){1,2}(?<=b|c)"],
]


@pytest.mark.parametrize("pattern", TAKES_TEXT)
def test_what_takes_text_passes(pattern):
    assert outline(pattern).takes_text
    assert compile_pattern(pattern).split_text("") == []


@pytest.mark.parametrize("pattern", [*resolve("gpt2"), *resolve("deepseek_v3"), *TAKES_TEXT, *NOTHING])
def test_the_outline_is_never_wrong_about_what_takes_text(pattern):
    compiled = regex.compile(pattern)
    texts = ["", "a", "ab", "bc", "xyzzy", "foo b", "qq1", "Q zz", "\n", "abcdq"]
    empty = any(not found[0] for text in texts for found in compiled.finditer(text))
    assert not (empty and outline(pattern).takes_text)
