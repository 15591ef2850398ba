"""docs/tokenizers.md, on parts: its tables have every part, and what they show is so."""

import re
from pathlib import Path
from typing import get_args

import pytest

from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tokmill import tokenizer
from tokmill.tokenizer.components.decoders import DECODERS
from tokmill.tokenizer.components.normalizer_steps import KNOWN
from tokmill.tokenizer.components.normalizers import normalize
from tokmill.tokenizer.components.post_processors import Template
from tokmill.tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS, Digits, compile_pattern
from tokmill.tokenizer.splitting.patterns import with_behavior

Rows = list[list[str]]


@pytest.fixture(scope="module")
def tables(checkout: Path) -> dict[str, Rows]:
    """The rows of the tables by heading, without their heads."""
    page = (checkout / "docs" / "tokenizers.md").read_text(encoding="utf-8")
    parts = page.split("## Parts")[1].split("\n## ")[0].split("### ")[1:]
    rows = {part.partition("\n")[0]: re.findall(r"^\| (.*) \|$", part, re.MULTILINE) for part in parts}
    split = {name: [re.split(r" (?<!\\)\| ", row) for row in found] for name, found in rows.items()}
    return {
        name: [row for row in found if "`" in row[0] or row[0][0] != "-"] for name, found in split.items()
    }


def names(rows: Rows) -> list[str]:
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row[0])]


def test_every_part_has_its_row(tables: dict[str, Rows]) -> None:
    assert sorted(names(tables["Normalizers"])) == sorted(KNOWN)
    patterns = {*SPLIT_PATTERNS, *SPLIT_CHAINS}
    assert patterns == patterns & set(names(tables["Split patterns"]))
    assert set(names(tables["Digits"])) == {"digits", *get_args(Digits)}
    assert sorted(names(tables["Decoders"])) == sorted(DECODERS)


@pytest.mark.parametrize(
    ("name", "text", "becomes"),
    [
        ("nfkc", "ﬁ", "fi"),
        ("lowercase", "ΣΊΣ", "σίσ"),
        ("nfd+strip_accents", "é", "e"),
        ("bert_clean", "\t", " "),
        ("nmt", "a\tb", "a b"),
        ("cjk_spaces", "漢字", " 漢  字 "),
        ("strip_nonspacing", "é", "e"),
        ('prepend("▁")', "a", "▁a"),
        ("strip", " a ", "a"),
    ],
)
def test_steps_do_what_the_table_shows(name: str, text: str, becomes: str) -> None:
    assert normalize(name, text) == becomes


def test_patterns_cut_as_the_table_shows(tables: dict[str, Rows]) -> None:
    text = "don't  stop-12!"
    rows = {name: row[1] for row in tables["Split patterns"] for name in re.findall(r"`([^`]+)`", row[0])}
    for name in ("gpt2", "clip", "bert", "whitespace", "whitespace_split", "punctuation", "unicode_scripts"):
        shown = [part.replace("␣", " ") for part in rows[name].split(" ")]
        assert compile_pattern(name).split_text(text) == shown
    for behavior in ("contiguous", "merged_with_previous", "merged_with_next"):
        expression = with_behavior("P", behavior).replace("|", r"\|")
        assert any(row[-1] == f"`{expression}`" for row in tables["Split patterns"])


def test_digits_are_cut_as_the_table_shows(tables: dict[str, Rows]) -> None:
    for digits in get_args(Digits)[1:]:
        (shown,) = [row[1] for row in tables["Digits"] if row[0] == f"`{digits}`"]
        assert compile_pattern("gpt2", digits).split_text("1234567") == shown.split(" ")


def test_templates_for_two_texts_follow_as_the_table_shows(tables: dict[str, Rows]) -> None:
    for row in tables["Templates"][1:]:
        single, pair = names([row])[0], re.findall(r"`([^`]+)`", row[1])[0]
        assert Template.parse(single).spelling == (single, pair)


def test_every_family_takes_every_step() -> None:
    for family, size in (("byte_bpe", 280), ("wordpiece", 120), ("unigram", 90)):
        for step in KNOWN:
            options = {"family": family, "normalizer": step, "allow_smaller": True}
            tok = tokenizer.train(TRAINING_TEXTS, vocab_size=size, **options)
            assert tok.normalize("Straße old") == normalize(step, "Straße old")
