"""What the automaton is made of: classes of characters, the decoder, trees, the matcher, the transducer."""

import string

import numpy as np
import pytest
import regex
from hypothesis import example, given
from hypothesis import strategies as st

from tokmill.tokenizer.kernels.split import write_cuts, write_pair_cuts
from tokmill.tokenizer.splitting import SPLIT_PATTERNS, automaton, compile_pattern, syntax
from tokmill.tokenizer.splitting.automaton import atoms_of, build_tables
from tokmill.tokenizer.splitting.fallback import compile_regex, isolate
from tokmill.tokenizer.splitting.matcher import DEAD, build_matcher
from tokmill.tokenizer.splitting.parsing import parse
from tokmill.tokenizer.splitting.syntax import (
    Choice,
    End,
    Look,
    OneOf,
    Sequence,
    Star,
    UnsupportedError,
    partition,
)
from tokmill.tokenizer.splitting.transducer import CUT_BEFORE, CUT_HERE, GAP, SLOW, START, build_transducer

ILL_FORMED = 255
EVERYTHING = np.arange(syntax.NUM_CODE_POINTS)


@pytest.fixture(scope="module")
def decoder() -> automaton.Decoder:
    """A decoder that tells planes and remainders apart, so that a wrong turn shows."""
    return automaton.build_decoder((EVERYTHING % 251 + 1).astype(np.uint8), ILL_FORMED)


def _columns(decoder: automaton.Decoder, data: bytes) -> list[int]:
    """Walk the decoder as the kernel does: of bytes that do not belong together, the first stands alone."""
    columns = []
    at, position, node = 0, 0, 0
    while at < len(data):
        ended = position == len(data)
        k = node + (0 if ended else data[position])
        column = ILL_FORMED if ended else int(decoder.column[k])
        if column == ILL_FORMED:
            columns.append(int(decoder.column[0x80]))
            at = position = at + 1
            node = 0
            continue
        position, node = position + 1, int(decoder.next_node[k])
        if column != automaton.INSIDE:
            columns.append(column)
            at = position
    return columns


def _expected(data: bytes) -> list[int]:
    lone = 0xD800 % 251 + 1
    text = data.decode("utf-8", "surrogateescape")
    return [lone if 0xD800 <= ord(c) < 0xE000 else ord(c) % 251 + 1 for c in text]


@pytest.mark.slow
def test_the_decoder_knows_every_character(decoder: automaton.Decoder) -> None:
    text = np.delete(EVERYTHING, np.s_[0xD800:0xE000]).astype("<u4").tobytes().decode("utf-32-le")
    data = np.frombuffer(text.encode(), np.uint8).tolist()
    node, columns = 0, []
    for byte in data:
        if decoder.column[node + byte]:
            columns.append(decoder.column[node + byte])
        node = int(decoder.next_node[node + byte])
    assert np.array_equal(np.array(columns) - 1, np.delete(EVERYTHING, np.s_[0xD800:0xE000]) % 251)


@given(data=st.binary(max_size=24))
@example(
    b"\xc0\x80 \xc1\xbf \xe0\x9f\xbf \xed\xa0\x80 \xed\xbf\xbf \xf0\x8f\xbf\xbf \xf4\x90\x80\x80 \xf5\xff"
)
@example(b"\xe4\xb8\xad\xe4\xb8\xe4\xb8\xad\xf0\x9f\x98\x80\xf0\x9f\x98")
def test_the_decoder_reads_damaged_bytes_as_python_does(decoder: automaton.Decoder, data: bytes) -> None:
    assert _columns(decoder, data) == _expected(data)


@pytest.mark.parametrize("atom", [r"\p{L}", r"[^\s\p{Lu}]", "(?i:s)", r"\s", ".", r"\p{Cn}", "[]a]"])
def test_code_points_are_those_that_regex_matches(atom: str) -> None:
    ranges = syntax.code_points(atom, 0)
    inside = np.zeros(syntax.NUM_CODE_POINTS, bool)
    for first, end in ranges.tolist():
        inside[first:end] = True
    compiled = regex.compile(atom)
    sampled = range(0, syntax.NUM_CODE_POINTS, 7)
    assert [bool(inside[c]) for c in sampled] == [compiled.fullmatch(chr(c)) is not None for c in sampled]


@pytest.mark.parametrize("flags", [0, regex.V1], ids=["V0", "V1"])
def test_the_short_way_to_a_letter_of_any_case_leads_to_all_its_forms(flags: int) -> None:
    for character in string.ascii_lowercase + "'":
        atom = f"(?i:{character})"
        found = syntax.code_points(atom, flags).tolist()
        assert found == [list(run) for run in syntax._runs(atom, flags, 0)], character


def test_classes_are_the_coarsest_that_tell_atoms_apart() -> None:
    alphabet = partition({"[a-f]", "[d-k]", "é"}, 0)
    assert alphabet.num_classes == 5
    assert [int(alphabet.class_of[ord(c)]) for c in "\0adghzéÿ"] == [0, 1, 2, 3, 3, 0, 4, 0]
    assert alphabet.members == {"[a-f]": {1, 2}, "[d-k]": {2, 3}, "é": {4}}


def test_too_many_classes_are_left_to_regex() -> None:
    with pytest.raises(UnsupportedError, match="classes of characters"):
        partition({chr(0x100 + 2 * i) for i in range(300)}, 0)


def test_surrogates_that_differ_are_left_to_regex() -> None:
    with pytest.raises(UnsupportedError, match="surrogates"):
        partition({"[\udc80-\udc90]"}, 0)


def test_the_unicode_version_is_known() -> None:
    assert regex.fullmatch(r"\d\d\.\d", syntax.unicode_version())


def test_trees() -> None:
    a, b = OneOf(("a",)), OneOf(("b",))
    assert parse("a|b") == OneOf(("a", "b"))
    assert parse("a(?:b|)") == Sequence((a, Choice((b, Sequence(())))))
    assert parse("a+?") == Sequence((a, Star(a, "lazy")))
    assert parse("(?>a+)") == parse("a++") == Sequence((a, Star(a, "greedy"), Look(a, negated=True)))
    assert parse("(?>a|b)*+") == Sequence(
        (Star(OneOf(("a", "b")), "greedy"), Look(OneOf(("a", "b")), negated=True))
    )
    assert parse("a{1,2}") == Sequence((a, Choice((a, Sequence(())))))
    assert parse("a{2}?") == Sequence((a, a))
    inner = Sequence((OneOf(("(?i:a)",)), b, OneOf((r"(?i:[^\]x])",))))
    assert parse(r"(?i:a(?-i:b)[^\]x])$") == Sequence((inner, End(or_newline=True)))
    assert parse(r"(?s).\z") == Sequence((OneOf(("(?s:.)",)), End(or_newline=False)))


@pytest.mark.parametrize(
    "pattern",
    [
        *[r"\b", "^a", r"\1", "(?<=a)b", "(?<!a)b", "(?=ab)", "(?#c)a", "a{e}", "(?|a|b)", "(?R)", r"\X"],
        *["a(?i)b", "(?:ab)++", "(?>ab)", "(a?)*", "(a|b*){2}", "a{999}", "(?m:a)", "(?x: a)", "{", "a{1}{"],
        r"\N{DIGIT ONE}",
    ],
)
def test_what_the_parser_does_not_know_for_certain_is_left_to_regex(pattern: str) -> None:
    with pytest.raises(UnsupportedError):
        parse(pattern)


def test_matcher_of_a_short_expression_by_hand() -> None:
    tree = parse("ab|a")
    matcher = build_matcher(tree, partition(atoms_of(tree), 0))
    # classes: 0 anything else, 1 a, 2 b; the last column is the end of the text
    assert matcher.next_state.tolist() == [
        [DEAD, 1, DEAD, DEAD],
        [DEAD, DEAD, 2, DEAD],
        [DEAD, DEAD, DEAD, DEAD],
    ]
    assert matcher.match_before.tolist() == [[False] * 4, [True] * 4, [True] * 4]


def test_matcher_drops_what_is_behind_a_match() -> None:
    tree = parse("a|ab")
    matcher = build_matcher(tree, partition(atoms_of(tree), 0))
    assert (matcher.next_state[1] == DEAD).all()


def test_transducer_of_a_short_expression_by_hand() -> None:
    tree = parse("a+")
    machine = build_transducer(build_matcher(tree, partition(atoms_of(tree), 0)))
    # classes: 0 anything else, 1 a; state 2 is within a match
    assert machine.next_state[[START, GAP]].tolist() == [[GAP, 2, START], [GAP, 2, START]]
    assert machine.flags.tolist() == [[0, 0, 0], [0, CUT_HERE, CUT_HERE], [CUT_HERE, 0, CUT_HERE]]


def test_transducer_gives_back_one_character_without_the_matcher() -> None:
    tree = parse(r"\s+(?!\S)|\S+|\s")
    machine = build_transducer(build_matcher(tree, partition(atoms_of(tree), 0)))
    assert not (machine.flags & SLOW).any()
    assert (machine.flags & CUT_BEFORE).any()


@pytest.mark.parametrize("pattern", [*SPLIT_PATTERNS.values(), r"\s+(?!\S)|\S+|\s", "a+b|a|[^ab]+"])
def test_a_pair_does_what_its_characters_do_one_after_the_other(pattern: str) -> None:
    tables = build_tables(pattern)
    width, columns = int(tables.layout[2]), tables.columns[:128].tolist()
    examples = {
        (columns[first], columns[second]): (first, second) for first in range(128) for second in range(128)
    }
    taken_back = 0
    for state in range(0, len(tables.flags), width):
        for first, second in examples.values():
            at = state + columns[first]
            middle, flag = int(tables.next_state[at]), int(tables.flags[at])
            then = middle + columns[second]
            behind, flag_behind = int(tables.next_state[then]), int(tables.flags[then])
            pair = state + int(tables.pair_of[first | second << 8])
            if (flag | flag_behind) & SLOW:
                assert tables.pair_flags[pair] & SLOW
                continue
            before, here = [0] * 6 + [1], 2  # cuts made so far, the last one just before the pair
            cuts = np.array(before + [-1] * 4)
            count = write_cuts.py_func(flag, 1, here, cuts, len(before))
            count = write_cuts.py_func(flag_behind, here, here + 1, cuts, count)
            together = np.array(before + [-1] * 4)
            found = write_pair_cuts.py_func(int(tables.pair_flags[pair]), 1, here, together, len(before))
            assert together[:found].tolist() == cuts[:count].tolist()
            assert tables.pair_next[pair] == behind
            taken_back += count < len(before)
    assert taken_back or pattern != SPLIT_PATTERNS["cl100k"]


def test_tables_too_large_for_pairs_do_without() -> None:
    pattern = "|".join(f"{letter}{{1,20}}x{letter}" for letter in string.ascii_lowercase) + "|.{2}"
    assert build_tables(pattern).layout[3] == 0
    text = "aaaxaaax" + "bxb" * 9 + "z" * 20 + "xz" + "q" * 21 + "xq"
    assert compile_pattern((pattern,)).split_text(text) == isolate(compile_regex(pattern), text)


@pytest.mark.parametrize(
    "pattern",
    [
        "|".join(f"{letter}{{1,90}}x{letter}" for letter in string.ascii_lowercase),  # tables
        "[ab]*a.{16}|b",  # states: which of the last 16 characters were an a
        "(?:a{99}b{99}){99}",  # instructions
    ],
)
def test_what_would_be_too_large_is_left_to_regex(pattern: str) -> None:
    with pytest.raises(UnsupportedError, match="more than"):
        build_tables(pattern)


@pytest.mark.parametrize("name", SPLIT_PATTERNS)
def test_named_patterns_need_no_second_look(name: str) -> None:
    tables = build_tables(SPLIT_PATTERNS[name])
    columns, _, width, has_pairs = tables.layout.tolist()
    assert has_pairs
    assert not (tables.flags.reshape(-1, width)[:, : columns - 1] & SLOW).any()
