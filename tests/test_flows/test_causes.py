"""The first causes of what differs: between two runs, between two artifacts, and in the documents of a file.

Each case runs a profile of three sources twice, with something changed between, and compares the runs.
"""

import json
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.test_flows.commands import InThisProcess, Tokmill, clean_environment
from tests.test_flows.corpora import words
from tokmill.tasks.comparing.documents import Documents, compare
from tokmill.tasks.comparing.runs import Line, change_text, explain
from tokmill.tasks.core.stage import ArtifactRef, Outcome, Params, Request, Stage
from tokmill.tasks.store import Store

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


@pytest.fixture(scope="module")
def tokmill(tmp_path_factory: pytest.TempPathFactory) -> Tokmill:
    """A folder with the profile, its texts, and a store that the tests share."""
    folder, generator = tmp_path_factory.mktemp("causes"), random.Random(14)
    (folder / "web").mkdir()
    (folder / "profile.toml").write_text(PROFILE)
    for name in ("a", "b"):
        (folder / "web" / f"{name}.txt").write_text("".join(f"{words(generator, 12)}\n" for _ in range(20)))
    for name in ("news", "notes"):
        rows = (json.dumps({"text": words(generator, 9)}) + "\n" for _ in range(30))
        (folder / f"{name}.jsonl").write_text("".join(rows))
    return InThisProcess(folder, clean_environment())


def run(tokmill: Tokmill, settings: tuple[str, ...], until: str | None = "tokenizer", code: int = 0) -> str:
    """Run the profile; return the run's id."""
    options = [part for setting in settings for part in ("--set", setting)]
    done = tokmill("run", "profile.toml", *options, *(["--until", until] if until else []))
    assert done.code == code, done.err
    return str(tokmill("runs", "--json").document[0]["run_id"])


def why(tokmill: Tokmill, first: str, second: str) -> list[str]:
    """Why the second run differs from the first, as lines; the last says which artifacts do so."""
    done = tokmill("compare", first, second)
    assert done.code == 0, done.err
    return done.out.split("\nwhy ")[1].split("\n\n")[0].splitlines()[1:]


CUT = "sources.web.format=delimited"
SPLIT = "sources.web.files=['web/a.txt', 'web/b.one', 'web/b.two']"
MORE = ("sources.more.files=['web/b.txt']", "sources.more.format=lines")
CASES = {
    "one setting of two sources is two causes": (
        (), ("sources.news.on_error=quarantine", "sources.notes.on_error=quarantine"),
        ["ingest.sources.news.on_error fail → quarantine (corpus/causes)",
         "ingest.sources.notes.on_error fail → quarantine (corpus/causes)"]),
    "what two stages take from one section is one cause": (
        (), ("train.split_pattern=gpt2",), ["count.split_pattern o200k → gpt2 .*"]),
    "a source that came is one cause, without its settings": (
        (), MORE, ["source more: 0 → 20 documents: 20 gained; files: 1 gained (corpus/causes)",
                   "  b.txt: gained, with 20 documents"]),
    "another delimiter is the cause, and not the text that it cuts": (
        (CUT, r'sources.web.delimiter="\n"'), (CUT, 'sources.web.delimiter=" "'),
        [r'ingest.sources.web.delimiter "\n" → " " (corpus/causes)']),
    "a file that was split has the same documents": (
        (), (SPLIT,), ["source web: 40 → 39 documents: 1 lost; files: 2 gained, 1 lost (corpus/causes)"]),
    "a file of another source is told from a new one": (
        (), ("sources.web.files=['web/a.txt']", *MORE),
        ["  b.txt: lost, with 20 documents: it is now b.txt of the source more",
         "  b.txt: gained, with 20 documents: it was b.txt of the source web"]),
    "a holdout that is gone is named without the files of both": (
        ("holdout.share=0.2",), ("train.vocab_size=310",),
        ["made by ingest, not by holdout (corpus/causes)", "train.vocab_size 300 → 310 (tokenizer/causes)"]),
    "another family is no other version of the stage": (
        (), ("train.family=wordpiece", "train.vocab_size=400"), ["train.family byte_bpe → wordpiece .*"]),
    "settings of one name in two stages are two causes": (
        (), tuple(f"{stage}.weights={{web = 1, news = 2, notes = 2}}" for stage in ("balance", "mix")),
        ["balance.method .*", "balance.weights.news .*", "mix.method .*", "mix.weights.news .*"]),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_change_of_settings_is_named_where_it_enters(tokmill: Tokmill, case: str) -> None:
    before, settings, expected = CASES[case]
    lines = (tokmill.folder / "web" / "b.txt").read_text().splitlines(keepends=True)
    (tokmill.folder / "web" / "b.one").write_text("".join(lines[:7]))
    (tokmill.folder / "web" / "b.two").write_text("".join(lines[8:]))
    until = "mixture" if "in two stages" in case else "tokenizer"
    found = why(tokmill, run(tokmill, before, until), run(tokmill, settings, until))
    for line in expected:
        pattern = re.escape(f"  {line}").replace(r"\.\*", ".*")
        assert sum(bool(re.fullmatch(pattern, each)) for each in found) == 1, found
    assert not any("of version" in line for line in found)
    if case.startswith(("one setting", "a source", "another delimiter")):
        assert len(found) == len(expected) + 1


def rewritten(path: Path, change: Callable[[str], str]) -> Callable[[], None]:
    """Change a file; return what puts it back."""
    text = path.read_text()
    path.write_text(change(text))
    return lambda: bool(path.write_text(text)) or None


def test_files_that_changed_are_named_beside_a_holdout_and_not_what_follows(tokmill: Tokmill) -> None:
    news, first = tokmill.folder / "news.jsonl", run(tokmill, ())
    size = len(news.read_text())
    put_back = rewritten(news, lambda text: text.split("\n", 1)[1])
    rest = len(news.read_text())
    lines = why(tokmill, first, run(tokmill, ("holdout.share=0.2", "holdout.seed=3")))
    put_back()
    assert lines[:-2] == [
        "  source news: 30 → 29 documents: 1 lost; files: 1 changed (corpus/causes)",
        f"    news.jsonl: 30 → 29 documents (1 lost), {size:,} → {rest:,} bytes",
        "  made by holdout, not by ingest (corpus/causes.training)",
        "    share 0.2",
        "    seed 3",
    ]


def test_documents_that_came_and_changed_are_counted_for_runs_artifacts_and_pages(tokmill: Tokmill) -> None:
    news, first = tokmill.folder / "news.jsonl", run(tokmill, (), "encoded")
    more = "".join(json.dumps({"text": f"a new text {number}"}) + "\n" for number in range(8))
    put_back = rewritten(news, lambda text: more[: more.index("\n") + 1] + text.split("\n", 1)[1] + more)
    other = tokmill.folder / "web" / "b.txt"
    renamed = other.rename(other.with_name("c.txt"))
    second = run(tokmill, (), "encoded")
    renamed.rename(other)
    put_back()
    runs = tokmill("compare", first, second, "--json").document
    (web, changed) = sorted(runs["runs"][1]["causes"], key=lambda cause: cause["field"], reverse=True)
    assert (changed["sort"], changed["field"], changed["artifact"]) == ("source", "news", "corpus/causes")
    assert changed["documents"] == {"gained": 8, "lost": 0, "changed": 1, "kept": 29}
    (file,) = changed["files"]
    sizes = [file[side]["num_documents"] for side in "ab"]
    assert (file["name"], file["how"], sizes) == ("news.jsonl", "changed", [30, 38])
    assert [(file["name"], file["how"]) for file in web["files"]] == [("c.txt", "renamed")]

    said = "source news: 30 → 38 documents: 8 gained, 1 changed"
    a, b = next(each["artifacts"] for each in runs["artifacts"] if each["task"] == "train")
    between = tokmill("compare", "--artifacts", a, b, COLUMNS="200").out
    assert said in between
    assert "through corpus/causes → " in between
    for options in ((first, second), ("--artifacts", a, b)):
        page = tokmill.folder / f"{len(options)}.html"
        assert tokmill("compare", *options, "--html", page).code == 0
        assert said in page.read_text("utf-8")
        again = tokmill("compare", *options, "--html", page)
        assert (again.code, "exists; name a new file" in again.err) == (2, True)

    store = Store.open(shutil.copytree(tokmill.store, tokmill.folder / "copy"))
    corpora = next(each["artifacts"] for each in runs["artifacts"] if each["task"] == "ingest")
    store.remove(store.resolve(corpora[0]), with_dependents=True)
    (cause,) = explain(store, *(store.resolve(name, removed=True) for name in corpora)).causes
    assert (cause.sort, cause.field) == ("source", "files")  # by the record alone
    assert any(line.endswith("news.jsonl: changed") for line in cause.details)


@pytest.mark.slow
def test_an_upgrade_is_named_and_no_cause_where_it_changed_nothing(tokmill: Tokmill, tmp_path: Path) -> None:
    first = run(tokmill, (), "counts")
    (tmp_path / "regex-9999.1.dist-info").mkdir()
    (tmp_path / "regex-9999.1.dist-info" / "METADATA").write_text("Name: regex\nVersion: 9999.1\n")
    command = [sys.executable, "-m", "tokmill", "run", "profile.toml", "--until", "counts", "--no-prefect"]
    environment = clean_environment(PYTHONPATH=str(tmp_path))
    subprocess.run([*command, "--store", tokmill.store], check=True, cwd=tokmill.folder, env=environment)
    lines = why(tokmill, first, "latest")
    assert any(line.endswith("→ 9999.1; no artifact differs because of that") for line in lines), lines


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("latest",), "name at least two runs"),
        (("latest", "caused"), "there is no run"),
        (("latest", "latest"), "is named twice"),
        (("--artifacts", "corpus/causes", "counts/causes"), "name two of one kind"),
    ],
)
def test_wrong_usage_says_what_is_right(tokmill: Tokmill, arguments: tuple[str, ...], said: str) -> None:
    run(tokmill, (), "counts")
    done = tokmill("compare", *arguments)
    assert (done.code, said in done.err) == (2, True), done.err


@pytest.mark.slow
def test_a_run_that_found_all_cached_is_judged_by_its_own_files(tokmill: Tokmill) -> None:
    """The corpora of both runs have the text in other lines, and all that follows is that of a third one."""

    def in_other_lines(text: str) -> str:
        return "".join(json.dumps(json.loads(row), separators=(",", ":")) + "\n" for row in text.splitlines())

    run(tokmill, (), "encoded")  # makes what the next run finds cached, and text that can be decoded
    news = rewritten(tokmill.folder / "news.jsonl", in_other_lines)
    first = run(tokmill, ())
    notes = rewritten(tokmill.folder / "notes.jsonl", lambda text: text.split("\n", 1)[1])
    lines = why(tokmill, first, run(tokmill, ()))
    news()
    notes()
    assert lines[0].startswith("  source notes: 30 → 29 documents: 1 lost")
    assert not any("source news" in line for line in lines)


def test_a_run_that_failed_or_made_a_part_says_what_it_lacks(tokmill: Tokmill) -> None:
    first = run(tokmill, (), None)
    for second in (run(tokmill, ("train.vocab_size=200000",), None, 1), run(tokmill, (), "counts")):
        lines = why(tokmill, first, second)
        assert lines[0] == "  no artifact that both have differs"
        assert " failed: train: " in lines[1] or " is without balance, train, " in lines[1]
        assert lines[1].endswith("pack, card") or "is without" in lines[1]


def made_with(store: Store, text: str, version: int = 1, **how: Any) -> ArtifactRef:
    """Make an artifact whose content its recipe does not determine."""

    def write(params: Params, *, out: Path) -> Outcome:
        (out / "text.txt").write_text(text)
        return Outcome({"num_chars": len(text)})

    stage = Stage(verb="say", task="say", kind="said", version=version, params=Params, run=write)
    return store.realize(Request(stage, "n", Params(), {}), **how).ref


def test_another_version_of_a_stage_is_named_and_what_nothing_explains_blames_the_environment(
    tmp_path: Path,
) -> None:
    store = Store.open(tmp_path)
    first = made_with(store, "a")
    (cause,) = explain(store, first, made_with(store, "ab", 2)).causes
    assert (cause.sort, cause.field, cause.a, cause.b) == ("stage", "say.version", 1, 2)
    idle = explain(store, first, made_with(store, "a", 3))
    assert (idle.same_content, [cause.field for cause in idle.without_effect]) == (True, ["say.version"])
    said = list[str]()
    (cause,) = explain(store, first, made_with(store, "b", refresh=True, report=said.append)).causes
    assert "was made again with other content" in said[0]
    assert [path.read_text() for path in tmp_path.glob("damaged/said/*/text.txt")] == ["a"]  # set aside
    assert (cause.sort, cause.field, "not deterministic" in cause.text) == ("unknown", "content", True)


def test_documents_of_a_file_are_compared_by_content_then_by_row() -> None:
    old = {0: b"a", 1: b"b", 2: b"c", 3: b"a"}
    assert compare(old, old) == Documents(kept=4)
    assert compare(old, {0: b"a", 1: b"x", 2: b"c", 3: b"a", 4: b"y"}) == Documents(1, 0, 1, 3)
    assert compare(old, {0: b"b", 1: b"c"}) == Documents(lost=2, kept=2)
    assert compare(old, {0: b"c", 1: b"a", 2: b"a", 3: b"b"}) == Documents(kept=4)  # in another order
    assert compare({}, old) == Documents(gained=4)


def test_changes_are_of_numbers_and_never_shown_as_none() -> None:
    pairs = [(0.4001, 0.4001), (0.4001, 0.3999), (0.4001, 0.8002), (-2.0, -3.0), (0, 3)]
    assert [change_text(*pair) for pair in pairs] == ["", "-0.05 %", "+100.0 %", "-50.0 %", "+3"]
    assert [change_text(*pair) for pair in (("a", "b"), (None, 1), (True, False))] == ["", "", ""]
    # what one run loses of its text is shown beside a run that loses none
    assert Line("audit.unknown_share", [None, 0.016]).is_shared
    assert not Line("audit.num_pieces", [None, 16]).is_shared
