"""The automaton against the `regex` package: random expressions of the grammar, random bytes, real text."""

import logging
import string
from itertools import pairwise

import numpy as np
import pytest
import regex
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.test_tokenizer.conftest import by_regex, corpus, ntrex
from tokmill.tokenizer.core.buffers import pack_bytes
from tokmill.tokenizer.core.errors import PatternError
from tokmill.tokenizer.splitting import (
    SPLIT_CHAINS,
    SPLIT_PATTERNS,
    compile_pattern,
    fallback,
)
from tokmill.tokenizer.splitting.automaton import build_tables
from tokmill.tokenizer.splitting.fallback import compile_regex, isolate
from tokmill.tokenizer.splitting.splitter import compile_expression
from tokmill.tokenizer.splitting.syntax import code_points

ATOMS = [
    *"aAsSkK1- é中,😀\u0301'",
    *[r"\n", r"\r", r"\t", r"\s", r"\S", r"\d", r"\D", r"\w", r"\W", r"\x61", r"\u00e9", r"\-", r"\."],
    *[r"\p{L}", r"\p{Lu}", r"\pN", r"\p{M}", r"\P{L}", r"\p{Han}", r"(?i:\p{Lu})", r"\p{^Zs}"],
    *[".", "(?s:.)", "(?i:s)", "(?i:k)", "(?i:[a-s])", "[a-c]", "[^a]", "[]a]", "[^]a]", r"[\]\-a]"],
    *[r"[^\s\p{L}\p{N}]", r"[\r\n]", r"[^\r\n\p{L}\p{N}]", r"[\p{Han}\p{Hiragana}]", "[[:alpha:]]"],
    *[r"[\p{L}&&[^a-z]]", r"[\w--[a]]", "[\\U00010000-\\U0010ffff]"],
]
QUANTIFIERS = ["*", "+", "?", "{2}", "{1,3}", "{,2}", "{2,}", "{0}", "{0,1}"]
atoms = st.sampled_from(ATOMS)
quantifiers = st.builds(str.__add__, st.sampled_from(QUANTIFIERS), st.sampled_from(["", "", "", "+", "?"]))
looks = st.builds("({}{})".format, st.sampled_from(["?!", "?="]), atoms)
leaves = st.one_of(
    atoms,
    st.builds(str.__add__, atoms, quantifiers),
    looks,
    st.sampled_from(["$", r"\Z", "(?>a+)", r"(?>\s*)", "(?-i:a)", "(?i:ab|c)", "(?<name>a)"]),
)


def _alternatives(pieces: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    sequences = st.lists(pieces, min_size=1, max_size=4).map("".join)
    return st.lists(sequences, min_size=1, max_size=4).map("|".join)


flat = _alternatives(leaves)
groups = st.builds("({}{})".format, st.sampled_from(["", "?:", "?i:", "?s:"]), flat)
nested = _alternatives(st.one_of(leaves, groups, st.builds(str.__add__, groups, quantifiers)))
patterns = st.one_of(
    flat,
    nested,
    flat.map(r"{}|\s+(?!\S)|\s+".format),
    flat.map(r"{}|\s*[\r\n]+|\s+(?!\S)|\s+".format),
    flat.map("(?i){}".format),
)
common = st.sampled_from([*"aAbBsSkK1 \n\r\t-'.", "  ", "\r\n", "aaa", "\n  \n", " a", "\n    b"])
characters = st.one_of(
    common,
    common,
    st.sampled_from("é中ſK\u0301\xa0²\u2028\u3000\u0378😀\U000e0001\U0010ffff"),
    st.characters(exclude_categories=["Cs"]),
)
texts = st.one_of(
    st.lists(characters, max_size=20).map(lambda parts: "".join(parts).encode()),
    st.text(st.sampled_from("aAb1 \n-"), max_size=40).map(str.encode),
)
damaged = st.builds(
    lambda text, at, byte: text[:at] + byte + text[at + 1 :], texts, st.integers(0, 40), st.binary()
)
documents = st.lists(st.one_of(texts, damaged, st.binary(max_size=12)), min_size=1, max_size=4)


def _through_regex(pattern: str, parts: list[bytes]) -> list[list[bytes]]:
    return [by_regex([pattern], part) for part in parts]


def _split(pattern: str, parts: list[bytes]) -> list[list[bytes]]:
    found = compile_pattern((pattern,)).split(*pack_bytes(parts))
    whole = b"".join(parts)
    pieces = [whole[i:j] for i, j in zip(found.starts.tolist(), found.ends.tolist(), strict=True)]
    cuts = found.offsets.tolist()
    return [pieces[i:j] for i, j in pairwise(cuts)]


@settings(max_examples=150)
@given(pattern=patterns, parts=documents)
@example(r"\s*[\r\n]+|\s+(?!\S)|\s+|x", [b"\n \n  x\n   ", b"\n\t \n\n  x", b"\n  "])
@example(r"ab*c|a", [b"abbbbbbbbbbb", b"abbbbbbbbbbbbbbbbcabb"])
@example(r"(?:ab)+c|a|b", [b"ababababababababx", b"ababababababababc"])
@example(r"a+b|a", [b"aaaaaaaaaaaaaaaaaaaaa", b"aaaaaaaaaaaaaaaaaaaab"])
@example(r"\p{L}{3}|1", ["ab1é中1中1中中中中1".encode(), b"\xe4\xb8", b"ab\xe4\xb8\xad1\xad"])
@example(r"a{2,}?|b??c", [b"aaaaa", b"bcbbc"])
def test_equals_regex(pattern, parts):
    try:
        tables = compile_expression(pattern)
    except PatternError:
        assume(False)
    assume(tables is not None)
    assert _split(pattern, parts) == _through_regex(pattern, parts)


@settings(max_examples=200)
@given(
    pattern=st.sampled_from(
        [r"\p{L}+|\s+(?!\S)|\s", r"[^\s\p{L}]+[\r\n]*|\s*[\r\n]+| ?\p{L}++", r"a.|\P{L}b"]
    ),
    parts=st.lists(st.binary(max_size=80), min_size=1, max_size=4),
)
@example(
    r"\p{L}+|\s+(?!\S)|\s", [bytes(range(256)), bytes(reversed(range(256))), b"\xf4\x90\x80\x80\xed\xa0\x80"]
)
def test_any_bytes_are_cut_as_surrogateescape_reads_them(pattern, parts):
    assert _split(pattern, parts) == _through_regex(pattern, parts)


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("a|ab", "abab", ["a", "b", "a", "b"]),  # the first option wins, not the longest
        ("ab|a", "abab", ["ab", "ab"]),
        ("(?:a|ab)(?:c|bcd)", "abcd", ["abcd"]),
        (r"a+?b?", "aab", ["a", "ab"]),  # lazy: as few as will do
        (r"\d{1,3}", "1234567", ["123", "456", "7"]),
        (r"\d{1,3}+\d|\d", "1234567", ["1234", "5", "6", "7"]),  # possessive: 567 keeps all and then fails
        (r"\d{1,3}\d|\d", "1234567", ["1234", "567"]),
        (r"a?+a", "aaa", ["aa", "a"]),  # the last a is taken, not given back, so nothing matches it
        (r"\s+(?!\S)|\s+", "   x", ["  ", " ", "x"]),
        (r"\s+(?!\S)|\s+", "x   ", ["x", "   "]),
        (r"a(?=b)|b", "aab", ["a", "a", "b"]),
        (r"(?i:k)+", "kKK-", ["kKK", "-"]),  # U+212A folds to k
        (r"[^\W\d_]+", "ab_1é", ["ab", "_1", "é"]),
        (r"\s++$|\s", "a \n", ["a", " \n"]),
        (r"x+\z|x", "axx", ["a", "xx"]),
        (r"[\p{L}&&[^\p{Han}]]+", "ab中c", ["ab", "中", "c"]),
        ("[^]a]+", "b]cba", ["b", "]", "cb", "a"]),
    ],
)
def test_golden(pattern, text, expected):
    splitter = compile_pattern((pattern,))
    assert splitter.engine == "automaton"
    assert splitter.split_text(text) == expected


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"\bx|y+", "x yy", ["x", " ", "yy"]),
        (r"(a|b)\1", "aabab", ["aa", "bab"]),
        (r"(?<=a)b+", "abbb", ["a", "bbb"]),
        (r"(?!ab)a|b", "aab", ["a", "a", "b"]),
        (r"(?:ab)++b|a", "abab", ["a", "b", "a", "b"]),
        (r"a$|\n", "a\n", ["a", "\n"]),  # in `regex`, $ also holds before a newline that ends the text
        (r"^a|b", "ab", ["a", "b"]),
        (r"(?:a?){2}b", "aab", ["aab"]),
        (r"(?:a|b){101}|c", "cab", ["c", "ab"]),
        (r"(?i:\p{Lu})|-", "\u0281-", ["\u0281", "-"]),  # `regex` has two minds about U+0281
        (r"[a&&]]|b", "ab", ["a", "b"]),  # after an operation, ] is a character
    ],
)
def test_what_the_automaton_does_not_do_runs_through_regex(pattern, text, expected, caplog):
    compile_expression.cache_clear()
    with caplog.at_level(logging.WARNING):
        splitter = compile_pattern((pattern, r"\n"))
        again = compile_pattern((pattern,))
    assert splitter.engine == "regex"
    assert splitter.split_text(text) == again.split_text(text) == expected
    assert len(caplog.records) == 1
    assert pattern in caplog.records[0].getMessage().replace("\\\\", "\\")


def test_a_match_of_nothing_that_only_the_text_shows_is_refused():
    with pytest.raises(PatternError, match="can match the empty string"):
        compile_pattern((r"\b(?=q)|z",)).split_text("a q")


@pytest.mark.parametrize("pattern", [r"\p{L}+|\p{N}|\s", r"(?i:[a-s])|[^\s\p{Lu}]+", r"\p{Cn}+|\p{M}"])
def test_every_character_is_of_the_class_that_regex_says(pattern):
    points = np.delete(np.arange(0x110000), np.s_[0xD800:0xE000]).astype("<u4")
    every = points.tobytes().decode("utf-32-le").encode()
    assert _split(pattern, [every]) == _through_regex(pattern, [every])


PARTS = [*"aZ中:&|~.$( \n\x00\U0010ffff\ud800", "b^", "a-z", "À-ÿ", "一-龥", "\x00-\x1f", r"\--/", r"\[-\`"]
PARTS += [r"\s", r"\S", r"\w", r"\W", r"\n", r"\p{L}", r"\P{L}", r"\p{^Zs}", r"\p{sc=Hani}", r"\^", r"\é"]


@settings(max_examples=30)
@given(st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map("".join), st.sampled_from(["", "^"]))
@example(r"\s\S", "^")  # for which `regex` finds every character
@example(r"a-zb-yz-~\[-\`", "")
def test_the_short_way_to_a_set_leads_to_what_regex_finds(parts, negation):
    every = "".join(map(chr, range(0x110000)))
    runs = regex.finditer(f"(?:[{negation}{parts}])++", every)
    assert code_points(f"[{negation}{parts}]", 0).tolist() == [[*run.span()] for run in runs]


def test_the_short_way_to_a_letter_of_any_case_leads_to_all_its_forms():
    text = "".join(map(chr, [*range(0x250), *range(0x2000, 0x2200), *range(0xFF00, 0xFF60)])).encode()
    for letter in string.ascii_lowercase + "'":
        for pattern in (f"(?i:{letter})+", f"(?i){letter}[a-z]?"):
            assert _split(pattern, [text]) == _through_regex(pattern, [text])


def test_tables_too_large_for_pairs_do_without():
    pattern = "|".join(f"{letter}{{1,20}}x{letter}" for letter in string.ascii_lowercase) + "|.{2}"
    assert build_tables(pattern).layout[3] == 0
    text = "aaaxaaax" + "bxb" * 9 + "z" * 20 + "xz" + "q" * 21 + "xq"
    assert compile_pattern((pattern,)).split_text(text) == isolate(compile_regex(pattern), text)


CORPORA = ["chinese_poetry", "code", "english_docs", "japanese_literature", "multilingual_docs"]


@pytest.fixture(scope="module")
def real_text(shared_data):
    """The beginning of every corpus and of every language; documents may be cut anywhere."""
    texts = [text.encode()[:200_000] for name in CORPORA for text in corpus(shared_data, name, 200_000)]
    for text in ntrex(shared_data).values():
        texts += text.encode()[:20_000].splitlines(keepends=True)
    return pack_bytes(texts)


@pytest.mark.shared_data
@pytest.mark.slow
@pytest.mark.parametrize("name", [*SPLIT_PATTERNS, *SPLIT_CHAINS])
def test_real_text_is_cut_as_regex_cuts_it(name, real_text):
    data, offsets = real_text
    splitter = compile_pattern(name)
    starts, ends = offsets[:-1], offsets[1:]
    cuts = np.arange(len(offsets))
    for expression in splitter.chain:
        starts, ends, within = fallback.split_segments(expression, data, starts, ends)
        cuts = within[cuts]
    found = splitter.split(data, offsets)
    for ours, theirs in zip((found.ends, found.starts, found.offsets), (ends, starts, cuts), strict=True):
        assert np.array_equal(ours, theirs)
