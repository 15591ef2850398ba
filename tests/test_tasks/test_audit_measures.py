"""Figures of the audit: of text, of every family by hand, and by other formulas on real text."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from tokmill import tokenizer
from tokmill.tasks.audit import entropy
from tokmill.tasks.audit.entropy import entropies, fit_trigrams, shannon_bits
from tokmill.tasks.audit.gates import Comparison, compare, not_passed, verdict
from tokmill.tasks.audit.measurement import Measured, measure, measure_texts
from tokmill.tasks.audit.params import AuditParams
from tokmill.tasks.audit.parity import check_parallel, parity, read_parallel
from tokmill.tasks.audit.sources import ALL, SOURCES, source_tables
from tokmill.tasks.core.errors import AuditError
from tokmill.tasks.formats.text.documents import DocumentBatch
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.buffers import pack

BYTES = {bytes([byte]): byte for byte in range(256)}
VOCAB = BYTES | {b"ab": 256, b" a": 257, b" ab": 258}
MERGES = [(b"a", b"b"), (b" ", b"a"), (b" ", b"ab")]
TOK = Tokenizer.from_vocab(VOCAB, MERGES)
DOCUMENTS = ["ab ab c", "", "é a", "don't"]
LOSSY = tokenizer.train(["the cat", "a hat"], family="word_level", vocab_size=10, special_tokens=["[UNK]"])


def rows(table) -> list[dict]:
    return table.to_pylist()


def test_a_row_of_vocab_sources_by_hand() -> None:
    measured = measure_texts(TOK, *pack(DOCUMENTS))
    (row,) = rows(source_tables(TOK, "corpus", {"one": measured})["vocab_sources"])
    assert (row["bytes_per_token"], row["chars_per_token"]) == (round(16 / 12, 6), round(15 / 12, 6))
    # 7, 0, 4 and 5 bytes are 4, 0, 3 and 5 tokens, where 16/12 a token would be 5/3 less, 0, 0 and 5/3 more
    assert row["bytes_per_token_error"] == round(1.96 * math.sqrt(50 / 9 * 4 / 3) / 12, 6)
    assert (row["fertility"], row["whole_share"], row["num_continued_words"]) == (2.0, round(4 / 6, 6), 2)
    assert (row["num_fallback"], row["num_unknown"], row["unknown_share"]) == (2, None, None)
    assert (row["num_used"], row["unused_share"]) == (12, round(247 / 259, 6))
    assert (row["tokens_50"], row["tokens_90"], row["tokens_99"]) == (6, 11, 12)


def test_a_text_that_is_lost_is_counted() -> None:
    measured = measure_texts(LOSSY, *pack(["the cat", "the dog"]))
    tables = source_tables(LOSSY, "held_out", {"one": measured})
    (trip,), (row,) = rows(tables["vocab_roundtrip"]), rows(tables["vocab_sources"])
    assert (trip["num_changed"], trip["changed_share"], trip["num_unstable"]) == (1, 0.5, 1)
    assert "'the dog' becomes 'the[UNK]'" in trip["example"]
    assert (row["num_unknown"], row["num_whole_words"], row["num_continued_words"]) == (1, 3, 1)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_the_sample_does_not_depend_on_batches(size: int) -> None:
    texts = [f"document {k}" for k in range(10)]
    data, offsets = pack(texts)
    whole = [DocumentBatch(data, offsets, np.arange(10))]
    parts = [
        DocumentBatch(*pack(texts[k : k + size]), np.arange(k, min(10, k + size))) for k in range(0, 10, size)
    ]
    for limit in (1, 10, 11, 35, 1000):
        one, other = measure(TOK, whole, limit), measure(TOK, parts, limit)
        assert one.amounts == other.amounts
        assert np.array_equal(one.halves, other.halves)
        assert one.amounts.num_documents == min(10, -(-limit // 10))


def test_what_shards_give_adds_up() -> None:
    texts = [f"document {k}" for k in range(9)]
    whole, *shards = (fit_trigrams(measure_texts(TOK, *pack(part))) for part in (texts, texts[:3], texts[3:]))
    both = Measured.none(TOK.vocab_size)
    for shard in shards:
        both.add(shard)
    assert both.amounts == whole.amounts
    (row,), (of_whole,) = (rows(entropies(TOK, "corpus", {"one": one})) for one in (both, whole))
    assert row["unigram_bits_per_byte"] == of_whole["unigram_bits_per_byte"]
    bits = sum(shard.modelled_bits for shard in shards)
    assert row["trigram_bits_per_byte"] == round(bits / both.amounts.num_bytes, 6) > 0


def test_of_much_text_every_nth_document_is_modelled(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"document {k} of {k % 3}" for k in range(40)]
    few = fit_trigrams(measure_texts(TOK, *pack(texts[::4])))
    monkeypatch.setattr(entropy, "_TRIGRAM_BYTES", -(-sum(map(len, texts)) // 4))
    every = fit_trigrams(measure_texts(TOK, *pack(texts)))
    expected = few.modelled_bits * every.amounts.num_tokens / few.amounts.num_tokens
    assert every.modelled_bits == pytest.approx(expected, abs=0.01)
    assert every.modelled_bytes == every.amounts.num_bytes


def test_sources_agree_with_the_ids() -> None:
    texts = {"one": DOCUMENTS * 3, "two": ["ab" * 9, "x y"], "none": []}
    measured = {name: measure_texts(TOK, *pack(part)) for name, part in texts.items()}
    tables = source_tables(TOK, "corpus", measured)
    ids = {name: [token for text in part for token in TOK.encode(text)] for name, part in texts.items()}
    found = {row["source"]: row for row in rows(tables["vocab_sources"])}
    assert {name: (found[name]["num_tokens"], found[name]["num_used"]) for name in ids} == {
        name: (len(its), len(set(its))) for name, its in ids.items()
    }
    ratios = ("bytes_per_token", "fertility", "whole_share", "tokens_90")
    assert {found["none"][name] for name in ratios} == {None}
    lengths = [row["num_occurrences"] for row in rows(tables["vocab_lengths"]) if row["source"] == "two"]
    assert sum(lengths) == len(ids["two"])


LINES = {"eng": ["ab ab", "ab"], "deu": ["c c c", "d"], "empty": ["", ""]}


def test_premiums_by_hand() -> None:
    # eng: 2 and 1 tokens. deu: "c| |c| |c" are 5, and 1.
    found = {row["language"]: row for row in rows(parity(TOK, LINES, "eng"))}
    assert [found[name]["num_tokens"] for name in ("eng", "deu", "empty", "*")] == [3, 6, 0, 9]
    assert (found["deu"]["premium"], found["deu"]["premium_median"]) == (2.0, 1.75)
    assert (found["eng"]["premium_low"], found["eng"]["premium_high"]) == (1.0, 1.0)
    # both lines alike: 5/2, 6/3, or 1/1
    assert (found["deu"]["premium_low"], found["deu"]["premium_high"]) == (1.0, 2.5)
    assert (found["empty"]["premium"], found["empty"]["premium_median"]) == (0.0, None)
    assert found["*"]["gini"] == round(2 * (0 * 1 + 3 * 2 + 6 * 3) / (3 * 9) - 4 / 3, 6)


@pytest.mark.parametrize(
    ("num_lines", "reference", "says"),
    [
        ({"eng": 2}, "deu", "'deu' is not a language of audit.parallel: eng"),
        ({"eng": 2, "deu": 3}, "eng", "deu has 3 lines and eng 2"),
        ({"eng": 0}, "eng", "at least one"),
        ({"eng": 1, "*": 1}, "eng", "names no language"),
        ({"": 1}, "", "names no language"),
        ({"a\0": 1}, "a\0", "names no language"),
    ],
)
def test_texts_that_are_not_parallel_are_refused(num_lines, reference, says) -> None:
    with pytest.raises(AuditError, match=says):
        check_parallel(num_lines, reference)


def test_parallel_text_has_the_same_lines_whatever_ends_them(tmp_path: Path) -> None:
    lines = ["one\u2028line\x85", "\x1cand another\x0b"]
    for end in ("\n", "\r\n"):
        (tmp_path / "text").write_bytes(("\ufeff" + "".join(line + end for line in lines)).encode())
        assert read_parallel({"eng": tmp_path / "text"}) == {"eng": lines}


def test_entropy_by_hand() -> None:
    assert shannon_bits(np.array([4, 4, 0, 8], np.uint64)) == 1.5
    assert shannon_bits(np.zeros(3, np.uint64)) is None
    texts = ["ab", "abab", "abab"]  # ab; ab ab; ab ab
    (row,) = rows(entropies(TOK, "corpus", {"one": measure_texts(TOK, *pack(texts))}))
    assert (row["shannon_bits"], row["shannon_efficiency"], row["num_tokens"]) == (0.0, 0.0, 5)
    # the first and third document (3 tokens) train the model of the second, and the other way round
    chances = [(3.5, 3 + 259 / 2, 2), (2.5, 2 + 259 / 2, 3)]
    bits = sum(-times * math.log2(count / total) for count, total, times in chances)
    assert row["unigram_bits_per_byte"] == round(bits / 10, 6)


def test_bits_of_all_sources_are_the_sum_of_theirs() -> None:
    texts = {"one": ["ab", "abab", "abab"], "two": ["c", "cc", "don't"], "short": ["a"]}
    every = {name: fit_trigrams(measure_texts(TOK, *pack(documents))) for name, documents in texts.items()}
    one, two, short, both = rows(entropies(TOK, "corpus", every))
    for name in ("unigram_bits_per_byte", "trigram_bits_per_byte"):
        assert short[name] is None
        assert both[name] == pytest.approx((one[name] * 10 + two[name] * 8) / 18, abs=2e-6)
    assert (both["source"], both["num_tokens"]) == (ALL, 5 + 8 + 1)


def test_a_text_that_is_lost_in_part_has_no_bits_per_byte() -> None:
    for text, has_bits in (("a hat", True), ("a dog", False)):
        measured = fit_trigrams(measure_texts(LOSSY, *pack(["the cat", text])))
        (row,) = rows(entropies(LOSSY, "held_out", {"one": measured}))
        assert (row["unigram_bits_per_byte"] is not None) is has_bits
        assert (row["trigram_bits_per_byte"] is not None) is has_bits


PASSED = Comparison("max_fertility", "deu", 1.5, 2.0, True)
FAILED = Comparison("max_premium", "hin", 3.0, 2.0, False)
UNMEASURED = Comparison("max_premium", "deu", None, 2.0, None, "no text")


@pytest.mark.parametrize(
    ("comparisons", "says"),
    [
        ([], "none"),
        ([PASSED], "passed"),
        ([PASSED, FAILED, UNMEASURED], "failed: 'hin': premium=3 is above 2"),
        ([PASSED, UNMEASURED], "not measured: 'deu': max_premium: no text"),
    ],
)
def test_what_was_not_measured_has_not_passed(comparisons: list[Comparison], says: str) -> None:
    assert verdict(comparisons) == says
    assert not_passed(says) is (says not in ("none", "passed"))


def test_a_vocabulary_that_knows_all_text_has_no_unknown_tokens() -> None:
    params = AuditParams(max_unknown_share=0.1)
    row = {**dict.fromkeys(SOURCES.names), "source": "a"}
    nothing = {"premiums": [], "regressions": {}, "unused_share": 0.0, "num_unreachable": 0}
    (byte_level,) = compare(params, sources=[row], **nothing)
    (empty,) = compare(params, sources=[row | {"num_unknown": 0}], **nothing, held_out=True)
    assert (byte_level.value, byte_level.passed) == (0.0, True)
    assert (empty.value, empty.passed) == (None, None)
    assert "raise holdout.share" in str(empty.missing)


TOY_DOCUMENTS = ["ab abc d", "ba"]
"""Ten bytes, ten characters, four words; none of the vocabularies knows `d` but for those of bytes."""


class Expected(NamedTuple):
    """What a toy vocabulary gives."""

    ids: list[list[int]]  # of the two documents
    num_ordinary: int  # tokens that are not special
    num_unknown: int | None  # unknown tokens; None if there is no such token
    num_whole_words: int  # words that are one token
    num_changed: int  # documents that do not come back
    times: list[int]  # how often each ordinary token occurs that does


# Tokens by id, from 0: what was trained on "ab ab abc" three times, as the comment beside each says.
FAMILIES: dict[str, tuple[dict[str, Any], Expected]] = {
    # [UNK] a b Ġ c ab Ġab Ġabc: ab|Ġabc|Ġ|[UNK], b|a
    "char_bpe": ({}, Expected([[5, 7, 3, 0], [2, 1]], 7, 1, 2, 1, [1] * 5)),
    # [UNK] a b</w> b c</w> ab</w> bc</w> abc</w>: ab|abc|[UNK], b|[UNK]
    "word_bpe": ({"split_pattern": "whitespace"}, Expected([[5, 7, 0], [3, 0]], 7, 2, 2, 2, [1] * 3)),
    # [UNK] ##b a ##c ab abc: no word begins with b, so ba is unknown
    "wordpiece": ({"split_pattern": "bert"}, Expected([[4, 5, 0], [0]], 5, 2, 2, 2, [1] * 2)),
    # [UNK] ab Ġab Ġabc Ġ a b c: as char_bpe, by probability
    "unigram": ({}, Expected([[1, 3, 4, 0], [6, 5]], 7, 1, 2, 1, [1] * 5)),
    # [UNK] Ġab Ġabc ab: abc without its space is unknown, as Ġd and ba are
    "word_level": ({}, Expected([[3, 2, 0], [0]], 3, 2, 2, 2, [1] * 2)),
    # [UNK] a b Ġ c: every character
    "character_level": ({}, Expected([[1, 2, 3, 1, 2, 4, 3, 0], [2, 1]], 4, 1, 0, 1, [3, 3, 2, 1])),
    # the bytes, then ab and Ġab: ab|Ġab|c|Ġ|d, b|a
    "longest_match": (
        {"vocab_size": 258, "special_tokens": []},
        Expected([[256, 257, 66, 220, 67], [65, 64]], 258, None, 2, 0, [1] * 7),
    ),
    # <unk> <s> </s> ▁ab ▁abc a b c ▁: ▁ab|▁abc|▁|<unk>, ▁|b|a
    "sentencepiece": (
        {"family": "unigram", "mode": "sentencepiece", "special_tokens": []},
        Expected([[3, 4, 8, 0], [8, 6, 5]], 6, 1, 2, 1, [1, 1, 2, 1, 1]),
    ),
}


def only(table: pa.Table) -> dict[str, Any]:
    (row,) = table.to_pylist()
    return dict(row)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_by_hand(family: str) -> None:
    options, expected = FAMILIES[family]
    given = {"family": family, "vocab_size": 12, "special_tokens": ["[UNK]"], "allow_smaller": True}
    tok = tokenizer.train(["ab ab abc"] * 3, **(given | options))
    measured = measure_texts(tok, *pack(TOY_DOCUMENTS))
    assert [document.tolist() for document in measured.documents(1)] == expected.ids
    tables = source_tables(tok, "corpus", {"one": measured})
    row, trip = only(tables["vocab_sources"]), only(tables["vocab_roundtrip"])
    num_tokens = sum(map(len, expected.ids))
    counts = [row[f"num_{what}"] for what in ("bytes", "chars", "words", "tokens")]
    assert counts == [10, 10, 4, num_tokens]
    assert row["bytes_per_token"] == row["chars_per_token"] == round(10 / num_tokens, 6)
    assert row["fertility"] == round(num_tokens / 4, 6)
    whole = expected.num_whole_words
    assert (row["num_whole_words"], row["whole_share"]) == (whole, whole / 4)
    assert row["num_unknown"] == expected.num_unknown
    unknown = None if expected.num_unknown is None else round(expected.num_unknown / num_tokens, 6)
    assert row["unknown_share"] == unknown
    assert trip["num_changed"] == expected.num_changed
    # sentencepiece's <unk> is written as a character that is unknown, too, so the ids come back
    assert trip["num_unstable"] == (0 if family == "sentencepiece" else expected.num_changed)
    entropy = only(entropies(tok, "corpus", {"one": measured}))
    shares = [one / sum(expected.times) for one in expected.times]
    bits = -sum(share * math.log2(share) for share in shares)
    renyi = math.log2(sum(share**2.5 for share in shares)) / (1 - 2.5)
    most = math.log2(expected.num_ordinary)
    assert entropy["shannon_bits"] == pytest.approx(bits, abs=1e-6)
    assert entropy["shannon_efficiency"] == pytest.approx(bits / most, abs=1e-6)
    assert entropy["renyi_efficiency"] == pytest.approx(renyi / most, abs=1e-6)
