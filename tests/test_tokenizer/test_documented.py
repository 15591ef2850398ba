"""What the documents show is so: docs/tokenizer.md, docs/tokenizers.md, and examples worked out by hand.

Examples of textbooks and lectures are also in the docstrings of `tokenizer/reference/`."""

import doctest
import importlib
import math
import pkgutil
import re
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer, TrainingOptions, reference
from tokmill.tokenizer.components.decoders import DECODERS
from tokmill.tokenizer.components.normalizer_steps import KNOWN
from tokmill.tokenizer.components.post_processors import Template
from tokmill.tokenizer.core.vocabulary import Vocabulary
from tokmill.tokenizer.pipeline.definition import Definition
from tokmill.tokenizer.pipeline.families import FAMILIES
from tokmill.tokenizer.reference import unigram as slow
from tokmill.tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS, Digits, compile_pattern
from tokmill.tokenizer.splitting.patterns import with_behavior
from tokmill.tokenizer.unigram.model import UnigramModel, n_best
from tokmill.tokenizer.wordpiece.model import WordPieceModel

BLOCKS = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return (checkout / "docs" / "tokenizer.md").read_text(encoding="utf-8")


def test_the_code_runs_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKMILL_STORE", str(tmp_path / "store"))
    scope: dict[str, object] = {}
    found = BLOCKS.findall(page)
    assert len(found) >= 7
    for block in found:
        exec(compile(block, "docs/tokenizer.md", "exec"), scope)


def test_every_option_of_a_training_is_a_key_of_a_profile_or_described(page, checkout):
    keys = (checkout / "docs" / "profiles.md").read_text(encoding="utf-8")
    section = keys.partition("**`[train]`**")[2].partition("**`[")[0]
    described = {*re.findall(r"^- `(\w+)`", section, flags=re.MULTILINE), *re.findall(r"`(\w+)`", page)}
    assert sorted(TrainingOptions.__annotations__.keys() - described) == []


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


def test_every_part_has_its_row(tables):
    assert sorted(names(tables["Normalizers"])) == sorted(KNOWN)
    patterns = {*SPLIT_PATTERNS, *SPLIT_CHAINS}
    assert patterns == patterns & set(names(tables["Split patterns"]))
    assert set(names(tables["Digits"])) == {"digits", *get_args(Digits)}
    assert sorted(names(tables["Decoders"])) == sorted(DECODERS)


def test_patterns_cut_as_the_table_shows(tables):
    text = "don't  stop-12!"
    rows = {name: row[1] for row in tables["Split patterns"] for name in re.findall(r"`([^`]+)`", row[0])}
    for name in ("gpt2", "clip", "bert", "whitespace", "whitespace_split", "punctuation", "unicode_scripts"):
        shown = [part.replace("␣", " ") for part in rows[name].split(" ")]
        assert compile_pattern(name).split_text(text) == shown
    for behavior in ("contiguous", "merged_with_previous", "merged_with_next"):
        expression = with_behavior("P", behavior).replace("|", r"\|")
        assert any(row[-1] == f"`{expression}`" for row in tables["Split patterns"])


def test_digits_are_cut_as_the_table_shows(tables):
    for digits in get_args(Digits)[1:]:
        (shown,) = [row[1] for row in tables["Digits"] if row[0] == f"`{digits}`"]
        assert compile_pattern("gpt2", digits).split_text("1234567") == shown.split(" ")


def test_templates_for_two_texts_follow_as_the_table_shows(tables):
    for row in tables["Templates"][1:]:
        single, pair = names([row])[0], re.findall(r"`([^`]+)`", row[1])[0]
        assert Template.parse(single).spelling == (single, pair)


MODELS = [module.name for module in pkgutil.iter_modules(reference.__path__)]


def test_each_family_has_one():
    together = {"word_level", "character_level", "longest_match"}  # in closed_vocabulary
    assert set(FAMILIES) - together <= set(MODELS)


@pytest.mark.parametrize("model", MODELS)
def test_its_example_gives_what_it_says(model):
    done = doctest.testmod(importlib.import_module(f"{reference.__name__}.{model}"))

    assert done.attempted
    assert not done.failed


HUGS = {b"hug": 10, b"pug": 5, b"pun": 12, b"bun": 4, b"hugs": 5}
MUGS = {b"hug": 10, b"pug": 12, b"lug": 5, b"bug": 4, b"dug": 5}


def spelled(tok: Tokenizer, ids: list[int]) -> list[str]:
    return [tok.token_bytes(token).decode() for token in ids]


def unigram(scores: dict[bytes, float]) -> Tokenizer:
    """A tokenizer of these pieces; [UNK] is 0."""
    vocabulary = Vocabulary.build(dict(enumerate(scores, 1)), {"[UNK]": 0})
    model = UnigramModel(vocabulary, np.array([0.0, *scores.values()]))
    return Tokenizer(Definition.compose(model, split_pattern=r"[\s\S]+"))


def test_bpe_joins_the_most_frequent_pair():
    tok = tokenizer.train_from_counts(HUGS, vocab_size=256 + 3)
    assert tok.merges == [(b"u", b"g"), (b"u", b"n"), (b"h", b"ug")]
    assert spelled(tok, tok.encode("bug")) == ["b", "ug"]
    assert spelled(tok, tok.encode("hugs")) == ["hug", "s"]


def test_wordpiece_joins_the_most_likely_pair():
    tok = tokenizer.train_from_counts(HUGS, family="wordpiece", vocab_size=9, special_tokens=[])
    pieces = {token.decode() for token in tok.vocab} - {"[UNK]"}
    # seven characters: b, h, p begin words, ##g, ##n, ##s, ##u continue them; (##g, ##s): 5 / (20 · 5) = 0.05
    assert pieces == {"b", "h", "p", "##g", "##n", "##s", "##u", "##gs"}


def test_unigram_probabilities_and_loss_of_five_words():
    pieces = {p: n for p, n in slow.substrings(MUGS).items() if len(p) < 3}
    assert sum(pieces.values()) == 180  # 36 words have three characters and two pairs each
    scores = {piece: math.log(number / 180) for piece, number in pieces.items()}
    tok = unigram(scores)

    found = {word: math.exp(n_best(tok.definition, word, 1)[0][1]) for word in MUGS}
    assert {word: f"{probability:.2e}" for word, probability in found.items()} == {
        b"hug": "1.11e-02",  # h ug: 10/180 · 36/180
        b"pug": "1.33e-02",
        b"lug": "5.56e-03",
        b"bug": "4.44e-03",
        b"dug": "5.56e-03",
    }
    assert f"{slow.loss(MUGS, scores):.1f}" == "170.4"
    # hu g is as probable as h ug, so that removing ug loses nothing
    without = {piece: score for piece, score in scores.items() if piece != b"ug"}
    assert slow.loss(MUGS, without) == pytest.approx(slow.loss(MUGS, scores), abs=1e-12)
    fewer = unigram(without)
    assert spelled(tok, tok.encode("hug")) == ["h", "ug"]
    assert spelled(fewer, fewer.encode("hug")) == ["hu", "g"]


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ("我 喜 欢 学 习 人 工 智 能", "我 喜 欢 学 习 人 工 智 能"),
        ("我 喜 欢 学 习 人 工 智 能 喜欢 学习 人工 智能", "我 喜欢 学习 人工 智能"),
        ("我 喜 欢 学 习 人 工 智 能 喜欢 学习 人工 智能 人工智能 我喜欢", "我喜欢 学习 人工智能"),
    ],
)
def test_a_sentence_without_spaces_under_three_vocabularies(pieces, expected):
    text, known = "我喜欢学习人工智能", [piece.encode() for piece in pieces.split()]
    # every piece is equally probable, so the fewest pieces are the most probable way
    tok = unigram(dict.fromkeys(known, math.log(1 / len(known))))
    assert spelled(tok, tok.encode(text)) == expected.split()

    begin = {piece.decode(): number for number, piece in enumerate(known, 1)}
    after = {f"##{piece}": number + len(begin) for piece, number in begin.items()}
    vocabulary = Vocabulary.build({n: p.encode() for p, n in (begin | after).items()}, {"[UNK]": 0})
    longest = Tokenizer(
        Definition.compose(WordPieceModel(vocabulary), split_pattern=r"\s+|\S+", decoder="wordpiece")
    )
    first, *rest = expected.split()
    assert spelled(longest, longest.encode(text)) == [first, *(f"##{piece}" for piece in rest)]
