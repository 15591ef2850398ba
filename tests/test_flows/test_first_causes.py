"""The first causes of what differs, where a change comes with others, adds a stage, or takes none away.

Each test runs a profile of three sources twice, with something changed between, and compares the runs.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.test_flows.corpora import words
from tokmill.flows.commands.main import main

PROFILE = """
name = "causes"
[sources.web]
files = ["web/*.txt"]
format = "lines"
[sources.news]
files = ["news.jsonl"]
[sources.notes]
files = ["notes.jsonl"]
[train]
vocab_size = 300
[pack]
sequence_length = 32
"""
Why = Callable[..., list[str]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the profile, its texts, and a store that the tests share."""
    folder, generator = tmp_path_factory.mktemp("causes"), random.Random(14)
    (folder / "web").mkdir()
    (folder / "profile.toml").write_text(PROFILE)
    for name in ("a", "b"):
        lines = (f"{words(generator, 12)}\n" for _ in range(20))
        (folder / "web" / f"{name}.txt").write_text("".join(lines))
    for name in ("news", "notes"):
        rows = (json.dumps({"text": words(generator, 9)}) + "\n" for _ in range(30))
        (folder / f"{name}.jsonl").write_text("".join(rows))
    return folder


@pytest.fixture
def why(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Why:
    """Run the profile twice; gives why the second run differs from the first, as lines."""
    monkeypatch.chdir(folder)

    def run(settings: tuple[str, ...], code: int, until: str | None = None) -> str:
        options = [part for setting in settings for part in ("--set", setting)]
        options += ["--until", until] if until else []
        assert main(["run", "profile.toml", "--no-prefect", *options]) == code
        capsys.readouterr()
        assert main(["runs", "--json"]) == 0
        return str(json.loads(capsys.readouterr().out)[0]["run_id"])

    def compared(
        *settings: str,
        before: tuple[str, ...] = (),
        between: Callable[[], object] = lambda: None,
        code: int = 0,
        until: str | None = "tokenizer",
    ) -> list[str]:
        first = run(before, 0, "tokenizer" if until == "tokenizer" else None)
        between()
        second = run(settings, code, until)
        assert main(["compare", first, second]) == 0
        return capsys.readouterr().out.split("\nwhy ")[1].split("\n\n")[0].splitlines()[1:]

    return compared


def test_one_setting_of_two_sources_is_two_causes(why: Why) -> None:
    lines = why("sources.news.on_error=quarantine", "sources.notes.on_error=quarantine")

    assert lines[:-1] == [
        "  ingest.sources.news.on_error fail → quarantine (corpus/causes)",
        "  ingest.sources.notes.on_error fail → quarantine (corpus/causes)",
    ]


def test_settings_of_one_name_in_two_stages_are_two_causes(why: Why) -> None:
    weights = "{web = 1, news = 2, notes = 2}"
    lines = why(f"balance.weights={weights}", f"mix.weights={weights}", until="mixture")

    for name in ("balance.method", "balance.weights.news", "mix.method", "mix.weights.news"):
        assert sum(line.startswith(f"  {name} ") for line in lines) == 1


def test_a_setting_that_two_stages_take_from_one_section_is_one_cause(why: Why) -> None:
    assert [line.partition(" (")[0] for line in why("train.split_pattern=gpt2")[:-1]] == [
        "  count.split_pattern o200k → gpt2"
    ]


def test_a_source_that_came_is_one_cause_without_its_settings(why: Why) -> None:
    assert why("sources.more.files=['web/b.txt']", "sources.more.format=lines")[:-1] == [
        "  source more: 0 → 20 documents: 20 gained; files: 1 gained (corpus/causes)",
        "    b.txt: gained, with 20 documents",
    ]


def test_another_delimiter_is_the_cause_and_not_the_text_that_it_cuts(why: Why) -> None:
    cut = "sources.web.format=delimited"
    lines = why(cut, 'sources.web.delimiter=" "', before=(cut, r'sources.web.delimiter="\n"'))

    assert lines[:-1] == [r'  ingest.sources.web.delimiter "\n" → " " (corpus/causes)']


def test_a_holdout_is_named_beside_files_that_changed_and_not_what_follows(why: Why, folder: Path) -> None:
    news = folder / "news.jsonl"
    text = news.read_text()
    rest = text.split("\n", 1)[1]
    try:
        lines = why("holdout.share=0.2", "holdout.seed=3", between=lambda: news.write_text(rest))
    finally:
        news.write_text(text)
    assert lines[:-2] == [
        "  source news: 30 → 29 documents: 1 lost; files: 1 changed (corpus/causes)",
        f"    news.jsonl: 30 → 29 documents (1 lost), {len(text):,} → {len(rest):,} bytes",
        "  made by holdout, not by ingest (corpus/causes.training)",
        "    share 0.2",
        "    seed 3",
    ]


@pytest.mark.slow
def test_a_holdout_that_is_gone_is_named_without_the_files_of_both(why: Why) -> None:
    assert why("train.vocab_size=310", before=("holdout.share=0.2",))[:-2] == [
        "  made by ingest, not by holdout (corpus/causes)",
        "  train.vocab_size 300 → 310 (tokenizer/causes)",
    ]


@pytest.mark.slow
def test_an_adopted_tokenizer_is_named_with_its_file(why: Why, folder: Path) -> None:
    why()
    found = next((folder / "tokmill-store" / "tokenizer").glob("*/exports/huggingface/tokenizer.json"))
    lines = why(f"tokenizer.use={found}", until="encoded")

    assert lines[0] == "  made by adopt, not by train (tokenizer/causes)"
    assert f"    file {found}" in lines
    assert not any("only the first was made with" in line for line in lines)


def test_a_renamed_file_is_no_other_order(why: Why, folder: Path) -> None:
    one, other = folder / "web" / "b.txt", folder / "web" / "c.txt"
    try:
        lines = why(between=lambda: one.rename(other))
    finally:
        other.rename(one)
    assert lines[:-1] == [
        "  source web: 40 → 40 documents: the same documents; files: 1 renamed (corpus/causes)",
        "    b.txt → c.txt: the same content",
    ]


@pytest.mark.slow
def test_a_run_that_found_all_cached_is_judged_by_its_own_files(why: Why, folder: Path) -> None:
    """The corpora of both runs have the text in other lines, and all that follows is that of a third one."""
    news = folder / "news.jsonl"
    text = news.read_text()
    why("train.vocab_size=290")  # makes what the next run finds cached
    rows = [json.loads(line) for line in text.splitlines()]
    news.write_text("".join(json.dumps(row, indent=None, separators=(",", ":")) + "\n" for row in rows))
    notes = folder / "notes.jsonl"
    whole = notes.read_text()
    try:
        lines = why(between=lambda: notes.write_text(whole.split("\n", 1)[1]))
    finally:
        news.write_text(text)
        notes.write_text(whole)
    assert lines[0].startswith("  source notes: 30 → 29 documents: 1 lost")
    assert not any("source news" in line for line in lines)


def test_a_run_that_failed_says_of_what_and_what_it_lacks(why: Why) -> None:
    lines = why("train.vocab_size=200000", code=1, until=None)

    assert lines[0] == "  no artifact that both have differs"
    assert " failed: train: " in lines[1]
    assert lines[1].endswith("pack, card")


def test_a_run_of_some_stages_says_what_it_lacks(why: Why) -> None:
    lines = why(until="counts")

    assert lines[0] == "  no artifact that both have differs"
    assert " is without balance, train, " in lines[1]


@pytest.mark.slow
def test_another_family_is_no_other_version_of_the_stage(why: Why) -> None:
    lines = why("train.family=wordpiece", "train.vocab_size=400")

    assert any(line.startswith("  train.family byte_bpe → wordpiece") for line in lines)
    assert not any("of version" in line for line in lines)


def test_a_file_that_was_split_has_the_same_documents(why: Why, folder: Path) -> None:
    lines = (folder / "web" / "b.txt").read_text().splitlines(keepends=True)
    (folder / "web" / "b.one").write_text("".join(lines[:7]))
    (folder / "web" / "b.two").write_text("".join(lines[8:]))
    files = "sources.web.files=['web/a.txt', 'web/b.one', 'web/b.two']"

    assert why(files)[0] == (
        "  source web: 40 → 39 documents: 1 lost; files: 2 gained, 1 lost (corpus/causes)"
    )


def test_a_file_of_another_source_is_told_from_a_new_one(why: Why) -> None:
    lines = why(
        "sources.web.files=['web/a.txt']", "sources.more.files=['web/b.txt']", "sources.more.format=lines"
    )

    assert "    b.txt: lost, with 20 documents: it is now b.txt of the source more" in lines
    assert "    b.txt: gained, with 20 documents: it was b.txt of the source web" in lines
