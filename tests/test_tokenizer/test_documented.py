"""What the documents show is so: docs/tokenizer.md, docs/tokenizers.md, and examples worked out by hand.

Examples of textbooks and lectures are also in the docstrings of `tokenizer/reference/`."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path
from typing import get_args

import pytest

from tokmill.tokenizer import TrainingOptions, reference
from tokmill.tokenizer.components.decoders import DECODERS
from tokmill.tokenizer.components.normalizer_steps import KNOWN
from tokmill.tokenizer.components.post_processors import Template
from tokmill.tokenizer.pipeline.families import FAMILIES
from tokmill.tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS, Digits, compile_pattern
from tokmill.tokenizer.splitting.patterns import with_behavior

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
