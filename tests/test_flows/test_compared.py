"""`tokmill compare` and `diff`: the first causes by which runs and artifacts come to differ.

Runs of one experiment: first a source gains documents and another changes, then the temperature changes, and
then a package. That is upgraded here by metadata of another version on the path: its bytes are the same, and
so are the artifacts that are made again with it.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.test_flows.commands import clean_environment
from tests.test_flows.corpora import words
from tokmill.flows.commands.main import main
from tokmill.flows.run import api
from tokmill.tasks.comparing.documents import Documents, compare
from tokmill.tasks.comparing.explaining import explain
from tokmill.tasks.comparing.runs import Comparison, change
from tokmill.tasks.core.stage import ArtifactRef, Outcome, Params, Request, Stage
from tokmill.tasks.store import Run, Store
from tokmill.tasks.store.runs import read_run, run_path

PROFILE = """
name = "story"
[sources.web]
files = ["web/*.jsonl"]
[sources.few]
files = ["few/*.txt"]
[balance]
method = "temperature"
temperature = 2.0
[train]
vocab_size = 400
[pack]
sequence_length = 64
[experiment]
name = "story"
"""
UPGRADED = "9999.1"
Command = Callable[..., tuple[int, str, str]]


class Story(NamedTuple):
    """A store with the runs of the story, by name, and their profile."""

    store: Store
    profile: Path
    ids: dict[str, str]

    def run(self, name: str) -> Run:
        """Return the record of a run."""
        return read_run(run_path(self.store.layout.runs, self.ids[name]))

    def compared(self, *names: str) -> Comparison:
        """Compare some runs."""
        return Comparison(self.store, [self.run(name) for name in names])


def write_lines(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def upgrade(folder: Path, package: str) -> str:
    """Make a folder for the path in which a package has another version; return the folder."""
    info = folder / f"{package}-{UPGRADED}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: {UPGRADED}\n")
    return str(folder)


def run_elsewhere(profile: Path, store: Path, *options: str, path: str = "") -> None:
    """Run a profile in another process, whose path begins with a folder."""
    command = [sys.executable, "-m", "tokmill", "run", str(profile), "--no-prefect", "--store", str(store)]
    environment = clean_environment(PYTHONPATH=path, NUMBA_CACHE_DIR=os.environ.get("NUMBA_CACHE_DIR", ""))
    done = subprocess.run(
        [*command, *options], env=environment, capture_output=True, text=True, check=False, cwd=profile.parent
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder, generator = tmp_path_factory.mktemp("story"), random.Random(3)
    texts = [words(generator, 60) for _ in range(40)]
    write_lines(folder / "web" / "a.jsonl", texts[:30])
    write_lines(folder / "web" / "b.jsonl", texts[30:])
    (folder / "few").mkdir()
    for number in range(3):
        (folder / "few" / f"{number}.txt").write_text(words(generator, 200), encoding="utf-8")
    profile, store, ids = folder / "story.toml", folder / "store", {}
    profile.write_text(PROFILE, encoding="utf-8")

    def run(name: str, **overrides: Any) -> None:
        ids[name] = api.run(profile, store=store, prefect=False, overrides=overrides).run_id

    run("first")
    more = [words(generator, 60) for _ in range(7)]
    write_lines(folder / "web" / "a.jsonl", [*texts[:3], "another text in its place", *texts[4:30], *more])
    (folder / "few" / "2.txt").rename(folder / "few" / "two.txt")
    (folder / "few" / "1.txt").unlink()
    (folder / "few" / "new.txt").write_text("a new text " * 50, encoding="utf-8")
    run("grown")
    run("flatter", **{"balance.temperature": 5})
    upgraded = upgrade(folder / "upgraded", "orjson")
    run_elsewhere(profile, store, "--set", "balance.temperature=5", "--refresh", "train", path=upgraded)
    opened = Store.open(store)
    (latest, *_) = opened.catalog.query("SELECT run_id FROM runs ORDER BY started DESC")
    ids["upgraded"] = latest["run_id"]
    return Story(opened, profile, ids)


@pytest.fixture
def tokmill(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, story: Story) -> Command:
    """Run a command on the store; gives exit code, standard output and standard error."""
    monkeypatch.setenv("TOKMILL_STORE", str(story.store.root))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_documents_that_a_source_gained_are_named_as_the_cause(story: Story) -> None:
    few, web = story.compared("first", "grown").causes(1)

    assert (web.sort, web.field, web.artifact, web.a, web.b) == ("source", "web", "corpus/story", 40, 47)
    assert web.data["documents"] == {"gained": 7, "lost": 0, "changed": 1, "kept": 39 - 10}
    (file,) = web.data["files"]
    assert (file["name"], file["how"], file["a"]["num_documents"], file["b"]["num_documents"]) == (
        *("a.jsonl", "changed"),
        *(30, 37),
    )
    assert [(file["name"], file["how"]) for file in few.data["files"]] == [
        ("two.txt", "renamed"),
        ("new.txt", "gained"),
        ("1.txt", "lost"),
    ]
    assert few.data["documents"]["gained"] == few.data["documents"]["lost"] == 1


def test_a_parameter_is_named_where_it_enters_and_nothing_upstream(story: Story) -> None:
    comparison = story.compared("grown", "flatter")
    (cause,) = comparison.causes(1)

    assert (cause.sort, cause.field, cause.a, cause.b) == ("parameter", "balance.temperature", 2, 5)
    assert cause.artifact == "balance/story"
    assert [line.name for line in comparison.parameters] == ["balance.temperature"]
    same = {line.task for line in comparison.artifacts if not line.differs}
    assert {"ingest", "count"} <= same
    assert {line.task for line in comparison.artifacts if line.causes[1]} >= {"balance", "train", "pack"}


def test_two_causes_are_both_named_each_where_it_enters(story: Story) -> None:
    causes = story.compared("first", "grown", "flatter").causes(2)

    assert [(cause.sort, cause.field) for cause in causes] == [
        ("source", "few"),
        ("source", "web"),
        ("parameter", "balance.temperature"),
    ]


def test_an_upgrade_that_changed_no_byte_is_said_to_have_changed_nothing(
    story: Story, tokmill: Command
) -> None:
    run = story.run("upgraded")
    comparison = story.compared("flatter", "upgraded")

    assert run.packages["orjson"] == run.provenance.packages["orjson"] == UPGRADED
    assert {each.task for each in run.artifacts if each.how == "made"} == {"train"}
    assert comparison.causes(1) == []
    changed = [(each.sort, each.name, each.b) for each in comparison.environments[1]]
    assert changed == [("package", "orjson", UPGRADED)]
    out = tokmill("compare", story.ids["flatter"], story.ids["upgraded"])[1]
    assert "no artifact differs" in out
    assert f"→ {UPGRADED}; no artifact differs because of that" in out


def test_the_best_by_a_metric_is_found_tagged_and_compared(story: Story, tokmill: Command) -> None:
    listed = json.loads(
        tokmill("runs", "--experiment", "story", "--sort", "audit.bytes_per_token", "--best", "1", "--json")[
            1
        ]
    )
    values = {
        name: story.run(name).metrics["audit.bytes_per_token"] for name in ("first", "grown", "flatter")
    }
    best = max(values, key=lambda name: values[name])
    assert listed[0]["values"]["audit.bytes_per_token"] == values[best]

    assert tokmill("runs", "tag", listed[0]["run_id"], "winner")[0] == 0
    (winner,) = json.loads(tokmill("runs", "--tag", "winner", "--json")[1])
    assert winner["run_id"] == listed[0]["run_id"]
    document = json.loads(tokmill("compare", story.ids["first"], story.ids["grown"], "--json")[1])
    assert [cause["field"] for cause in document["runs"][1]["causes"]] == ["few", "web"]
    assert document["metrics"]["corpus.num_documents"] == [43, 50]


def test_for_people_each_cause_has_its_files_and_what_it_reached(story: Story, tokmill: Command) -> None:
    code, out, _ = tokmill("compare", story.ids["first"], story.ids["grown"])

    assert code == 0
    assert "source web: 40 → 47 documents: 7 gained, 1 changed" in out
    assert "a.jsonl: 30 → 37 documents (7 gained, 1 changed)" in out
    assert "2.txt → two.txt: the same content" in out
    assert "so 12 artifacts differ: ingest, count" in out
    assert "+16.3 %" in out  # 43 → 50 documents


def test_a_page_is_written_into_a_new_file(story: Story, tokmill: Command, tmp_path: Path) -> None:
    page = tmp_path / "comparison.html"
    asked = ("compare", story.ids["first"], story.ids["flatter"], "--html", str(page))

    assert tokmill(*asked)[0] == 0
    text = page.read_text("utf-8")
    assert "source web: 40 → 47 documents: 7 gained, 1 changed" in text
    assert "balance.temperature 2 → 5" in text
    code, _, err = tokmill(*asked)
    assert code == 2
    assert "exists; name a new file" in err


def test_any_two_artifacts_are_explained_by_the_same_causes(story: Story, tokmill: Command) -> None:
    code, out, _ = tokmill("diff", "packed/story@v1", "packed/story@v2")
    assert code == 0
    assert "a.jsonl: 30 → 37 documents" in out
    assert "through corpus/story → " in out
    assert " → packed/story" in out
    shard = tokmill("diff", "encoded_shard/story.web/0@v1", "encoded_shard/story.web/0@v2")[1]
    assert "source web: 40 → 47 documents" in shard
    found = json.loads(tokmill("diff", "tokenizer/story@v2", "tokenizer/story@v3", "--json")[1])
    assert [(cause["field"], cause["a"], cause["b"]) for cause in found["causes"]] == [
        ("balance.temperature", 2.0, 5.0)
    ]
    fields = tokmill("diff", "tokenizer/story@v2", "tokenizer/story@v3", "--fields")[1]
    assert "inputs.balance" in fields
    same = tokmill("diff", "counts/story", "counts/story")[1]
    assert "have the same content" in same


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("compare", "latest"), "name at least two runs"),
        (("compare", "latest", "stry"), "did you mean"),
        (("compare", "latest", "latest"), "is named twice"),
        (("diff", "corpus/story", "packed/story"), "name two of one kind"),
    ],
)
def test_wrong_usage_says_what_is_right(tokmill: Command, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = tokmill(*arguments)
    assert code == 2
    assert said in err


def test_what_was_removed_is_still_explained_by_its_record(story: Story, tmp_path: Path) -> None:
    store = Store.open(shutil.copytree(story.store.root, tmp_path / "store"))
    old = store.resolve("corpus/story@v1")
    store.remove(old, with_dependents=True)

    comparison = Comparison(store, [story.run("first"), story.run("grown")])

    (cause,) = comparison.causes(1)
    assert (cause.sort, cause.field) == ("source", "files")
    assert any(line.endswith("new.txt: gained") for line in cause.details)


@pytest.mark.slow
@pytest.mark.skipif("TOKMILL_EVERYTHING" not in os.environ, reason="installs another version of a package")
def test_a_real_upgrade_of_a_package_is_named_where_it_changed_something(tmp_path: Path) -> None:
    """An earlier `regex` knows fewer letters: those of Beria Erfe, new in Unicode 17, were none yet."""
    earlier, letters = tmp_path / "earlier", [chr(0x16EA0 + place) for place in range(20)]
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(earlier)]
    subprocess.run([*install, "regex==2024.11.6"], check=True, capture_output=True)
    write_lines(tmp_path / "web" / "a.jsonl", [f"alpha{a}{b} beta{b}" for a in letters for b in letters])
    profile, store = tmp_path / "story.toml", tmp_path / "store"
    profile.write_text(PROFILE.replace('[sources.few]\nfiles = ["few/*.txt"]\n', ""), encoding="utf-8")

    run_elsewhere(profile, store, path=str(earlier))
    run_elsewhere(profile, store, "--refresh", "count")

    opened = Store.open(store)
    rows = opened.catalog.query("SELECT run_id FROM runs ORDER BY started")
    before, after = (read_run(run_path(opened.layout.runs, row["run_id"])) for row in rows)
    comparison = Comparison(opened, [before, after])
    (cause,) = comparison.causes(1)
    assert (cause.sort, cause.field, cause.a) == ("package", "regex", "2024.11.6")
    assert cause.artifact == "counts_shard/story.web/0"
    assert {line.task for line in comparison.artifacts if line.causes[1]} >= {"count", "train", "pack"}
    assert not next(line for line in comparison.artifacts if line.task == "ingest").differs


class Nothing(Params):
    """No parameters."""


def made_with(store: Store, text: str, version: int = 1, *, refresh: bool = False) -> ArtifactRef:
    """Make an artifact whose content its recipe does not determine."""

    def run(params: Nothing, *, out: Path) -> Outcome:
        (out / "text.txt").write_text(text)
        return Outcome({"num_chars": len(text)})

    stage = Stage(verb="say", task="say", kind="said", version=version, params=Nothing, run=run)
    return store.realize(Request(stage, "n", Nothing(), {}), refresh=refresh).ref


def test_an_artifact_that_was_made_again_with_other_content_blames_the_environment(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    first = made_with(store, "a")
    again = made_with(store, "b", refresh=True)

    found = explain(store, first, again)

    (cause,) = found.causes
    assert (cause.sort, cause.field) == ("unknown", "content")
    assert "not deterministic" in cause.text


def test_another_version_of_a_stage_is_named(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    (cause,) = explain(store, made_with(store, "a"), made_with(store, "ab", 2)).causes

    assert (cause.sort, cause.field, cause.a, cause.b) == ("stage", "say.version", 1, 2)
    idle = explain(store, made_with(store, "a"), made_with(store, "a", 3))
    assert idle.same_content
    assert [cause.field for cause in idle.without_effect] == ["say.version"]


def test_documents_of_a_file_are_compared_by_content_then_by_row() -> None:
    old = {0: b"a", 1: b"b", 2: b"c", 3: b"a"}

    assert compare(old, old) == Documents(kept=4)
    assert compare(old, {0: b"a", 1: b"x", 2: b"c", 3: b"a", 4: b"y"}) == Documents(1, 0, 1, 3)
    assert compare(old, {0: b"b", 1: b"c"}) == Documents(lost=2, kept=2)
    assert compare(old, {0: b"c", 1: b"a", 2: b"a", 3: b"b"}) == Documents(kept=4)  # in another order
    assert compare({}, old) == Documents(gained=4)


def test_changes_are_of_numbers_only() -> None:
    assert change(2, 3) == (1, 0.5)
    assert change(0, 3) == (3, None)
    assert change(-2.0, -3.0) == (-1.0, -0.5)
    assert change("a", "b") is None
    assert change(True, False) is None
    assert change(None, 1) is None
