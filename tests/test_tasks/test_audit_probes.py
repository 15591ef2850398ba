"""`vocab_probes` on small vocabularies of every family, worked out by hand, and on published ones."""

from collections import Counter

import pytest

from tests.test_tasks.audited import FAMILIES, of_family
from tokmill import tokenizer
from tokmill.tasks.audit.probe_judgement import Encoded, begins_with, cut_at, cut_of, differs_from, no_special
from tokmill.tasks.audit.probes import SCHEMA, OwnProbe, cuts_of, probe
from tokmill.tokenizer import Tokenizer

BYTES = {bytes([byte]): byte for byte in range(256)}
GROUPS = {
    *("indentation", "code", "identifiers", "line breaks", "trailing spaces", "variants of a word", "dates"),
    *("hex", "addresses", "data", "emoji", "right to left", "long words", "combining marks", "styling"),
    *("compatibility forms", "mixed scripts", "typos", "case", "letters", "special tokens", "numbers"),
    "arithmetic",
}


def toy(*merges: tuple[bytes, bytes], **options) -> Tokenizer:
    added = {left + right: 256 + i for i, (left, right) in enumerate(merges)}
    return Tokenizer.from_vocab(BYTES | added, list(merges), **options)


def rows(tok: Tokenizer, *own: OwnProbe) -> dict[tuple[str, str], dict]:
    table = probe(tok, own)
    assert table.schema == SCHEMA
    found = {(row["group"], row["probe"]): row for row in table.to_pylist()}
    assert len(found) == table.num_rows
    return found


def test_every_group_by_single_bytes() -> None:
    found = rows(toy())
    assert {group for group, _ in found} == GROUPS
    four = found["indentation", "4 spaces"]
    assert (four["num_tokens"], four["met"]) == (12, False)
    assert four["remark"] == "12 tokens; 4 more"
    assert four["ids"] == list(b"    return x")
    assert found["letters", "spelled"]["num_tokens"] == 19
    assert found["combining marks", "é in two parts"]["remark"] == "6 tokens; 5 for 'café'"
    bold = found["styling", "bold"]
    assert (bold["expectation"], bold["met"]) == (None, None)
    assert bold["remark"] == "33 tokens; 9 for 'bold move', 3.67 times"  # 8 letters of 4 bytes, and a space
    assert found["emoji", "family of ZWJ"]["remark"] == "25 tokens; 25 bytes"
    assert found["line breaks", "CRLF against LF"]["met"] is False
    assert found["numbers", "numbers of 4 digits"]["remark"] == "digits in tokens of 9000: 1+1+1+1: 9000"
    assert found["arithmetic", "columns of a sum"]["met"]


def test_digits_line_up_from_the_right_or_do_not() -> None:
    pairs = [(bytes([a]), bytes([b])) for a in b"0123456789" for b in b"0123456789"]
    left = toy(*pairs)
    assert cut_of(left, "1234567") == ["12", "34", "56", "7"]
    found = rows(left)
    assert found["numbers", "numbers of 2 digits"]["met"]
    # 01 is merged before 10, so 101 is 1 and 01, and 123 is 12 and 3
    assert found["numbers", "numbers of 3 digits"]["met"] is False
    assert found["arithmetic", "7 digits"]["met"] is False
    assert found["arithmetic", "8 digits"]["met"]
    assert found["arithmetic", "columns of a sum"]["met"] is False
    threes = [(left + right, third) for left, right in pairs for third in map(bytes, zip(b"0123456789"))]
    right = rows(toy(*pairs, *threes, digits="groups_of_three_from_right"))
    assert right["arithmetic", "7 digits"]["remark"].endswith(": 1|234|567")
    assert all(right["arithmetic", f"{number} digits"]["met"] for number in (7, 8, 9))
    assert right["arithmetic", "columns of a sum"]["remark"].endswith(": 12|345 6|789 19|134")
    assert right["arithmetic", "columns of a sum"]["met"]


def test_tokens_begin_where_words_do() -> None:
    tok = toy((b"t", b"U"), (b"2", b"0"), (b"-", b"0"), (b"4", b"-0"), split_pattern=r"[\s\S]+")
    judge = cut_at(["get", "User"])
    met, remark = judge(tok, Encoded.of(tok, "getUser"))
    assert (met, remark) == (False, "6 tokens: g|e|tU|s|e|r; within a token: User")
    assert judge(toy(), Encoded.of(toy(), "getUser")).met
    date = cut_at(["2024", "02", "29"])
    assert date(toy(), Encoded.of(toy(), "2024-02-29")).met
    # "-0" alone would do, but "4-0" runs from the year into the month
    assert date(tok, Encoded.of(tok, "2024-02-29")) == (
        False,
        "7 tokens: 20|2|4-0|2|-|2|9; within a token: 02",
    )


def test_what_trailing_spaces_change() -> None:
    plain, merged = toy(), toy((b"d", b" "), split_pattern=r"[\s\S]+")
    assert begins_with("the end")(plain, Encoded.of(plain, "the end ")).met
    assert begins_with("the end")(merged, Encoded.of(merged, "the end ")).met is False


def test_look_alikes_and_special_tokens() -> None:
    tok = toy(special_tokens={"<|end|>": 256})
    found = rows(tok)
    assert found["special tokens", "<|end|>"]["met"]
    assert found["special tokens", "</s>"]["met"]
    assert no_special(tok, Encoded("<|end|>", [256], "<|end|>")).met is False
    assert differs_from("a")(tok, Encoded.of(tok, "a")).met is False


def test_own_probes() -> None:
    tok = toy((b"a", b"b"))
    found = rows(
        tok,
        OwnProbe(name="one", text="ab", single_token=True, unchanged=True),
        OwnProbe(name="few", text="abc", max_tokens=1),
        OwnProbe(name="same", text="ab", same_as="ba"),
        OwnProbe(name="only look", text="abab"),
    )
    one, few, same, look = (found["own", name] for name in ("one", "few", "same", "only look"))
    assert (one["expectation"], one["met"]) == ("1 token; comes back unchanged", True)
    assert (few["expectation"], few["met"], few["remark"]) == ("at most 1 tokens", False, "2 tokens")
    assert (same["met"], same["remark"]) == (False, "1 token; 2 for 'ba'")
    assert (look["expectation"], look["met"], look["remark"]) == (None, None, "2 tokens")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family(family: str) -> None:
    tok, own = of_family(family), [OwnProbe(name="cat", text="the cat", unchanged=True)]
    table = probe(tok, own)
    assert table.equals(probe(tok, own))
    for row in table.to_pylist():
        assert (row["met"] is None) == (row["expectation"] is None)
        assert row["num_tokens"] == len(row["ids"]) == len(row["tokens"])
        assert row["remark"].isprintable()
        assert row["ids"] == tok.encode(row["text"], as_text=True)
    assert table.to_pylist()[-1]["met"]


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["gpt2_vocab.json", "cl100k_base.tiktoken", "o200k_base.tiktoken"])
def test_cuts_of_numbers_are_those_of_single_encodings(shared_data, name: str) -> None:
    pattern = name.split("_", maxsplit=1)[0]
    tok = tokenizer.load(shared_data / "vocabs" / name, split_pattern=pattern)
    one_by_one = Counter(
        tuple(len(tok.token_bytes(token)) for token in tok.encode(str(number)))
        for number in range(1000, 10_000)
    )
    assert cuts_of(tok, range(1000, 10_000)) == one_by_one
