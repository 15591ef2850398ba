"""What a plan says of the text before anything runs."""

import json
from pathlib import Path

import pytest

from tokmill.flows.profile import load_profile
from tokmill.flows.run.planning import remarks_on
from tokmill.flows.run.sources import resolve_sources
from tokmill.tasks.store import Store

TAMIL = "எல்லா மனிதர்களும் சுதந்திரமாகவே பிறக்கின்றனர்; அவர்கள் மதிப்பிலும் உரிமைகளிலும் சமமானவர்கள். "
PROFILE = """
name = "marks"
[sources.plain]
files = ["plain.txt"]
[sources.tamil]
files = ["tamil/*.jsonl"]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A source whose words have marks in one long document, and one without."""
    (tmp_path / "tamil").mkdir()
    (tmp_path / "tamil" / "a.jsonl").write_text(json.dumps({"text": TAMIL * 4000}), "utf-8")
    (tmp_path / "tamil" / "b.jsonl").write_text("broken", "utf-8")
    (tmp_path / "plain.txt").write_text("plain text. " * 100, "utf-8")
    (tmp_path / "marks.toml").write_text(PROFILE, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def remarks(folder: Path, *overrides: str) -> list[str]:
    """The remarks on the profile."""
    profile = load_profile(folder / "marks.toml", overrides)
    return remarks_on(profile, resolve_sources(profile, Store.open(folder / "store")))


def test_marks_that_the_pattern_cuts_off_are_named_with_their_source(folder: Path) -> None:
    (remark,) = remarks(folder, "train.split_pattern=gpt2")
    assert remark.startswith("source tamil: split_pattern='gpt2' cuts vowel signs")
    assert "in Tamil (" in remark


@pytest.mark.parametrize("override", ["train.split_pattern=o200k", "tokenizer.use=some/file"])
def test_nothing_is_said_where_none_is_cut_or_nothing_trained(folder: Path, override: str) -> None:
    if override.startswith("tokenizer"):
        (folder / "some").mkdir()
        (folder / "some" / "file").write_text("x", "utf-8")
    assert remarks(folder, override) == []


def test_a_file_that_cannot_be_read_is_left_to_the_run(folder: Path) -> None:
    (folder / "tamil" / "a.jsonl").write_bytes(b"\xff\xfe not json")
    assert remarks(folder, "train.split_pattern=gpt2") == []
