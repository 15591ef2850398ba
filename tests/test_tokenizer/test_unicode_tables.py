"""Which Unicode tables decide: what is said of them is true, and other tables are noticed."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest
import regex

from tests.test_tokenizer.conftest import TRAINING_TEXTS
from tokmill import tokenizer
from tokmill.tokenizer import Tokenizer, TokenizerError, VocabularyError
from tokmill.tokenizer.formats import files
from tokmill.tokenizer.splitting import SPLIT_CHAINS, SPLIT_PATTERNS, compile_pattern, syntax
from tokmill.tokenizer.splitting.automaton import tables_digest
from tokmill.tokenizer.splitting.syntax import code_points

# Characters that were new in a version, of blocks that were new
NEW_IN = {"18.0": "\U0003d123", "17.0": "\U00010941", "16.0": "\U000105c1"}


def test_no_letter_is_newer_than_the_version_that_is_named() -> None:
    version = syntax.unicode_version()
    known = {name for name, character in NEW_IN.items() if regex.match(r"\P{Cn}", character)}
    assert version == max(known, default=version) or version.startswith("newer than ")
    assigned = int((code_points(r"\P{Cn}", 0) @ [-1, 1]).sum())
    assert version.startswith("newer than ") == (assigned > syntax._ASSIGNED_IN_NEWEST)


def test_what_is_newer_than_we_know_is_said_to_be_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(syntax, "_ASSIGNED_IN_NEWEST", 200_000)
    assert syntax.unicode_version.__wrapped__() == "newer than 18.0"


def test_the_digest_is_of_the_classes_that_patterns_tell_apart() -> None:
    digests = {name: compile_pattern(name).unicode["tables"] for name in [*SPLIT_PATTERNS, *SPLIT_CHAINS]}
    assert digests["gpt2"] == digests["cs336"]
    assert digests["llama3"] == digests["qwen2"]
    assert len({digests[name] for name in ("gpt2", "cl100k", "o200k", "deepseek_v3")}) == 4
    assert tables_digest([r"\p{L}+"]) != tables_digest([r"[^\W\d_]+"])
    assert len(tables_digest([r"(\w)\1|."])) == 16


@pytest.mark.parametrize("name", ["tokmill", "gpt2", "tiktoken"])
def test_other_tables_than_in_training_are_said_when_a_tokenizer_is_loaded(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
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


@pytest.mark.parametrize("version", ["\ud800", "x" * 100, "1\n2", 17.0, None])
def test_a_version_that_no_log_could_hold_is_refused(small: Tokenizer, version: object) -> None:
    with pytest.raises(VocabularyError, match=r"unicode=.* must hold the texts"):
        replace(small.definition, unicode={"version": version, "tables": "0" * 16})
