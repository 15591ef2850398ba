"""The figures of the audit for each family: by hand on a few tokens, and by other formulas on real text."""

import math
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from tests.test_tokenizer.conftest import ntrex
from tokmill import tokenizer
from tokmill.tasks.audit.entropy import entropies
from tokmill.tasks.audit.measurement import measure_texts
from tokmill.tasks.audit.parity import parity
from tokmill.tasks.audit.sources import source_tables
from tokmill.tokenizer import Tokenizer
from tokmill.tokenizer.core.buffers import pack

DOCUMENTS = ["ab abc d", "ba"]
"""Ten bytes, ten characters, four words; none of the vocabularies knows `d` but for those of bytes."""
LINES = {"eng": ["ab abc", "ab"], "deu": ["abc d ab", "ba"]}


class Expected(NamedTuple):
    """What a toy vocabulary gives.

    Attributes:
        ids: of the two documents.
        num_ordinary: tokens that are not special.
        num_unknown: unknown tokens; None if there is no such token.
        num_whole_words: words that are one token.
        num_changed: documents that do not come back.
        line_tokens: of the lines of `eng` and of `deu`.
    """

    ids: list[list[int]]
    num_ordinary: int
    num_unknown: int | None
    num_whole_words: int
    num_changed: int
    line_tokens: tuple[int, int]


# Tokens by id, from 0: what was trained on "ab ab abc" three times, as the comment beside each says.
FAMILIES: dict[str, tuple[dict[str, Any], Expected]] = {
    # [UNK] a b Ġ c ab Ġab Ġabc: ab|Ġabc|Ġ|[UNK], b|a; the lines ab|Ġabc, ab and ab|c|Ġ|[UNK]|Ġab, b|a
    "char_bpe": ({}, Expected([[5, 7, 3, 0], [2, 1]], 7, 1, 2, 1, (3, 7))),
    # [UNK] a b</w> b c</w> ab</w> bc</w> abc</w>: ab|abc|[UNK], b|[UNK]; abc|[UNK]|ab is three tokens
    "word_bpe": ({"split_pattern": "whitespace"}, Expected([[5, 7, 0], [3, 0]], 7, 2, 2, 2, (3, 5))),
    # [UNK] ##b a ##c ab abc: no word begins with b, so ba is unknown
    "wordpiece": ({"split_pattern": "bert"}, Expected([[4, 5, 0], [0]], 5, 2, 2, 2, (3, 4))),
    # [UNK] ab Ġab Ġabc Ġ a b c: as char_bpe, by probability
    "unigram": ({}, Expected([[1, 3, 4, 0], [6, 5]], 7, 1, 2, 1, (3, 7))),
    # [UNK] Ġab Ġabc ab: abc without its space is unknown, as Ġd and ba are
    "word_level": ({}, Expected([[3, 2, 0], [0]], 3, 2, 2, 2, (3, 4))),
    # [UNK] a b Ġ c: every character
    "character_level": ({}, Expected([[1, 2, 3, 1, 2, 4, 3, 0], [2, 1]], 4, 1, 0, 1, (8, 10))),
    # the bytes, then ab and Ġab: ab|Ġab|c|Ġ|d, b|a
    "longest_match": (
        {"vocab_size": 258, "special_tokens": []},
        Expected([[256, 257, 66, 220, 67], [65, 64]], 258, None, 2, 0, (4, 7)),
    ),
    # <unk> <s> </s> ▁ab ▁abc a b c ▁: ▁ab|▁abc|▁|<unk>, ▁|b|a; abc at the beginning of a line is one piece
    "sentencepiece": (
        {"family": "unigram", "mode": "sentencepiece", "special_tokens": []},
        Expected([[3, 4, 8, 0], [8, 6, 5]], 6, 1, 2, 1, (3, 7)),
    ),
}


def made(family: str, options: dict[str, Any]) -> Tokenizer:
    given = {"family": family, "vocab_size": 12, "special_tokens": ["[UNK]"], "allow_smaller": True}
    return tokenizer.train(["ab ab abc"] * 3, **(given | options))


def only(table: pa.Table) -> dict[str, Any]:
    (row,) = table.to_pylist()
    return dict(row)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_by_hand(family: str) -> None:
    options, expected = FAMILIES[family]
    tok = made(family, options)
    measured = measure_texts(tok, *pack(DOCUMENTS))
    assert [document.tolist() for document in measured.documents] == expected.ids
    tables = source_tables(tok, "corpus", {"one": measured})
    row, trip = only(tables["vocab_sources"]), only(tables["vocab_roundtrip"])
    num_tokens = sum(map(len, expected.ids))
    assert (row["num_bytes"], row["num_chars"], row["num_words"], row["num_tokens"]) == (
        10,
        10,
        4,
        num_tokens,
    )
    assert row["bytes_per_token"] == row["chars_per_token"] == round(10 / num_tokens, 6)
    assert row["fertility"] == round(num_tokens / 4, 6)
    assert (row["num_whole_words"], row["whole_share"]) == (
        expected.num_whole_words,
        expected.num_whole_words / 4,
    )
    assert row["num_unknown"] == expected.num_unknown
    unknown = None if expected.num_unknown is None else round(expected.num_unknown / num_tokens, 6)
    assert row["unknown_share"] == unknown
    assert trip["num_changed"] == expected.num_changed
    # sentencepiece's <unk> is written as a character that is unknown, too, so the ids come back
    assert trip["num_unstable"] == (0 if family == "sentencepiece" else expected.num_changed)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_entropy_of_a_family_by_hand(family: str) -> None:
    options, expected = FAMILIES[family]
    tok = made(family, options)
    row = only(entropies(tok, "corpus", {"one": measure_texts(tok, *pack(DOCUMENTS))}))
    times = {
        "word_bpe": [1, 1, 1],
        "wordpiece": [1, 1],
        "word_level": [1, 1],
        "character_level": [3, 3, 2, 1],
        "longest_match": [1] * 7,
        "sentencepiece": [1, 1, 2, 1, 1],
    }.get(family, [1] * 5)  # of each ordinary token that occurs
    shares = [one / sum(times) for one in times]
    bits = -sum(share * math.log2(share) for share in shares)
    renyi = math.log2(sum(share**2.5 for share in shares)) / (1 - 2.5)
    assert row["shannon_bits"] == pytest.approx(bits, abs=1e-6)
    assert row["shannon_efficiency"] == pytest.approx(bits / math.log2(expected.num_ordinary), abs=1e-6)
    assert row["renyi_efficiency"] == pytest.approx(renyi / math.log2(expected.num_ordinary), abs=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_premium_of_a_family_by_hand(family: str) -> None:
    options, expected = FAMILIES[family]
    rows = {row["language"]: row for row in parity(made(family, options), LINES, "eng").to_pylist()}
    english, german = expected.line_tokens
    assert (rows["eng"]["num_tokens"], rows["deu"]["num_tokens"]) == (english, german)
    assert rows["deu"]["premium"] == round(german / english, 6)
    # of two values, Gini's coefficient is half of what they differ by, over their sum
    assert rows["*"]["gini"] == pytest.approx((german - english) / 2 / (german + english), abs=1e-6)


PUBLISHED = ["gpt2_vocab.json", "bert_vocab.txt", "seqio_sp.model"]


@pytest.mark.shared_data
@pytest.mark.parametrize("name", PUBLISHED)
def test_real_text_agrees_with_sql_and_numpy(shared_data, name: str) -> None:
    tok = tokenizer.load(shared_data / "vocabs" / name)
    texts = {language: text[:40_000].splitlines() for language, text in ntrex(shared_data).items()}
    chosen = {language: texts[language] for language in list(texts)[:6]}
    measured = {language: measure_texts(tok, *pack(lines)) for language, lines in chosen.items()}
    rows = {
        row["source"]: row for row in source_tables(tok, "parallel", measured)["vocab_sources"].to_pylist()
    }
    entropy = {row["source"]: row for row in entropies(tok, "parallel", measured).to_pylist()}
    kinds = tok.definition.model.kinds()
    ordinary = np.array([kind not in {"special", "reserved", "unknown"} for kind in kinds])
    for language, lines in chosen.items():
        ids = pa.array(np.concatenate([tok.encode_batch([line], as_text=True).ids for line in lines]))
        of_ids = pa.table({"token": ids})  # noqa: F841, which the queries name
        with duckdb.connect() as database:
            counts = database.sql(
                "SELECT token, count(*) n FROM of_ids GROUP BY token ORDER BY n DESC"
            ).fetchnumpy()
        row, n = rows[language], counts["n"]
        assert (row["num_tokens"], row["num_bytes"]) == (n.sum(), sum(len(line.encode()) for line in lines))
        running = np.cumsum(np.sort(n)[::-1]) / n.sum()
        for share in (50, 90, 99):
            assert row[f"tokens_{share}"] == int((running < share / 100).sum()) + 1
        known = n[ordinary[counts["token"]]]
        p = known / known.sum()
        size = np.log2(ordinary.sum())
        assert entropy[language]["shannon_bits"] == pytest.approx(-(p * np.log2(p)).sum(), abs=1e-5)
        assert entropy[language]["renyi_efficiency"] == pytest.approx(
            np.log2((p**2.5).sum()) / -1.5 / size, abs=1e-5
        )
