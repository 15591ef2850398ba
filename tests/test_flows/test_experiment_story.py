"""One experiment, from its first run to a bundle from which the winner is made again elsewhere, offline.

A run; then a source gains documents and another changes; then the temperature changes; then a package is
upgraded. Each run is compared with the one before and the cause is named; the best by a metric is found and
tagged; it is made again in another folder, from texts archived under other names, and from a bundle.

By default the upgrade of `regex` is metadata of another version on the path: its bytes are the same, and so
is what is made with it. With TOKMILL_EVERYTHING an earlier version is installed for the first runs, which
knows fewer letters: those of Beria Erfe, new in Unicode 17, were none yet. The winner is made again by this
Python in a new process, and by those that TOKMILL_PYTHONS names.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.test_flows.commands import clean_environment
from tests.test_flows.corpora import words
from tokmill.flows.commands.main import main
from tokmill.tasks.comparing.runs import Comparison
from tokmill.tasks.store import Run, Store
from tokmill.tasks.store.runs import read_run, run_path

PROFILE = """
name = "story"
[sources.web]
files = ["texts/web/*.jsonl"]
[sources.few]
files = ["texts/few/*.txt"]
[balance]
method = "temperature"
temperature = 2.0
[train]
vocab_size = 400
special_tokens = ["<|endoftext|>"]
[encode]
end_of_document = "<|endoftext|>"
[pack]
sequence_length = 64
formats = ["memmap", "parquet", "arrow"]
[experiment]
name = "story"
"""
EXPERIMENT = ("--experiment", "story")
METRIC = "audit.bytes_per_token"
UPGRADED = "9999.1"
EARLIER = "2024.11.6"
EVERYTHING = "TOKMILL_EVERYTHING" in os.environ
PYTHONS = [sys.executable, *filter(None, os.environ.get("TOKMILL_PYTHONS", "").split(os.pathsep))]
Command = Callable[..., tuple[int, str, str]]


@dataclass
class Story:
    """A folder with texts, a profile, a store, and the ids of its runs by name.

    Attributes:
        before: put before the path of Python until the upgrade, and
        after: from then on.
    """

    folder: Path
    before: str
    after: str
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return Store.open(self.folder / "store")

    def make(self, name: str, *options: str, path: str = "") -> None:
        """Run the profile, in a process of its own if it needs another path."""
        arguments = ["run", "story.toml", "--no-prefect", "--store", "store", *options]
        if path:
            elsewhere(self.folder, sys.executable, *arguments, PYTHONPATH=path)
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.chdir(self.folder)
                assert main(arguments) == 0
        (latest, *_) = self.store.catalog.query("SELECT run_id FROM runs ORDER BY started DESC")
        self.ids[name] = latest["run_id"]

    def run(self, name: str) -> Run:
        """Return the record of a run."""
        return read_run(run_path(self.store.layout.runs, self.ids[name]))

    def compared(self, *names: str) -> Comparison:
        """Compare some runs."""
        return Comparison(self.store, [self.run(name) for name in names])


def elsewhere(folder: Path, *command: str, **changes: str) -> str:
    """Run a command of tokmill with a Python, as a process that has no network if that can be had."""
    python, *arguments = command
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    environment = clean_environment(**nowhere, **changes)
    done = subprocess.run(
        [*without_network(), python, "-m", "tokmill", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def without_network() -> list[str]:
    """Return what starts a process without a network, where this user may do that."""
    command = ["unshare", "--net", "--map-root-user"]
    may = shutil.which("unshare") and subprocess.run([*command, "true"], check=False).returncode == 0
    return command if may else []


def write_lines(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def upgrade(folder: Path) -> tuple[str, str]:
    """Return what is put before the path of Python before and after an upgrade of `regex`."""
    if EVERYTHING:
        install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
        subprocess.run([*install, f"regex=={EARLIER}"], check=True, capture_output=True)
        return str(folder), ""
    info = folder / f"regex-{UPGRADED}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: regex\nVersion: {UPGRADED}\n")
    return "", str(folder)


def archive(story: Story, when: str) -> None:
    """Keep copies of the texts, under other names."""
    folder = story.folder / "archive" / when
    folder.mkdir(parents=True)
    for number, file in enumerate(sorted((story.folder / "texts").rglob("*.*"))):
        shutil.copyfile(file, folder / f"{number}.old")


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    folder, generator = tmp_path_factory.mktemp("story"), random.Random(3)
    web, few = folder / "texts" / "web", folder / "texts" / "few"
    beria = " ".join([f"alpha{chr(0x16EA0)} beta{chr(0x16EA1)}"] * 10)
    texts = [f"{words(generator, 60)} {beria}" for _ in range(40)]
    write_lines(web / "a.jsonl", texts[:30])
    write_lines(web / "b.jsonl", texts[30:])
    few.mkdir()
    for number in range(3):
        (few / f"{number}.txt").write_text(words(generator, 200), encoding="utf-8")
    (folder / "story.toml").write_text(PROFILE, encoding="utf-8")
    before, after = upgrade(folder / "packages")
    story = Story(folder, before, after)

    story.make("first", path=before)
    archive(story, "then")
    more = [words(generator, 60) for _ in range(7)]
    write_lines(web / "a.jsonl", [*texts[:3], "another text in its place", *texts[4:30], *more])
    (few / "2.txt").rename(few / "two.txt")
    (few / "1.txt").unlink()
    (few / "new.txt").write_text("a new text " * 50, encoding="utf-8")
    story.make("grown", path=before)
    story.make("flatter", "--set", "balance.temperature=5", path=before)
    story.make("upgraded", "--set", "balance.temperature=5", "--refresh", "count", path=after)
    archive(story, "now")
    return story


@pytest.fixture
def tokmill(story: Story, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Run a command in the story's folder; gives exit code, standard output and standard error."""
    monkeypatch.chdir(story.folder)
    monkeypatch.setenv("TOKMILL_STORE", "store")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(list(arguments))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_documents_that_a_source_gained_are_named_as_the_cause(story: Story, tokmill: Command) -> None:
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

    code, out, _ = tokmill("compare", story.ids["first"], story.ids["grown"])
    assert code == 0
    assert "source web: 40 → 47 documents: 7 gained, 1 changed" in out
    assert "a.jsonl: 30 → 37 documents (7 gained, 1 changed)" in out
    assert "2.txt → two.txt: the same content" in out
    assert "so 12 artifacts differ: ingest, count" in out
    assert "+16.3 %" in out  # 43 → 50 documents


def test_a_parameter_is_named_where_it_enters_and_nothing_upstream(story: Story) -> None:
    comparison = story.compared("grown", "flatter")
    (cause,) = comparison.causes(1)

    assert (cause.sort, cause.field, cause.a, cause.b) == ("parameter", "balance.temperature", 2, 5)
    assert cause.artifact == "balance/story"
    assert [line.name for line in comparison.parameters] == ["balance.temperature"]
    same = {line.task for line in comparison.artifacts if not line.differs}
    assert {"ingest", "count"} <= same
    assert {line.task for line in comparison.artifacts if line.causes[1]} >= {"balance", "train", "pack"}


def test_an_upgrade_is_a_cause_where_it_changed_something_and_only_there(
    story: Story, tokmill: Command
) -> None:
    run = story.run("upgraded")
    comparison = story.compared("flatter", "upgraded")
    out = tokmill("compare", story.ids["flatter"], story.ids["upgraded"])[1]

    assert "count" in {each.task for each in run.artifacts if each.how == "made"}
    changed = [(each.sort, each.name) for each in comparison.environments[1]]
    assert changed == [("package", "regex")]
    assert not next(line for line in comparison.artifacts if line.task == "ingest").differs
    if EVERYTHING:
        (cause,) = comparison.causes(1)
        assert (cause.sort, cause.field, cause.a) == ("package", "regex", EARLIER)
        assert cause.artifact == "counts_shard/story.web/0"
        assert {line.task for line in comparison.artifacts if line.causes[1]} >= {"count", "train", "pack"}
        assert f"{EARLIER} → {run.packages['regex']}" in out
    else:
        assert run.packages["regex"] == UPGRADED
        assert comparison.causes(1) == []
        assert "no artifact differs" in out
        assert f"→ {UPGRADED}; no artifact differs because of that" in out


def test_all_causes_are_named_each_where_it_enters(story: Story) -> None:
    causes = story.compared("first", "grown", "flatter").causes(2)

    assert [(cause.sort, cause.field) for cause in causes] == [
        ("source", "few"),
        ("source", "web"),
        ("parameter", "balance.temperature"),
    ]


@pytest.fixture
def winner(story: Story, tokmill: Command) -> str:
    """The best run by a metric, which is tagged so; returns its id."""
    (best,) = json.loads(tokmill("runs", *EXPERIMENT, "--sort", METRIC, "--best", "1", "--json")[1])
    assert tokmill("runs", "tag", best["run_id"], "winner")[0] == 0
    return str(best["run_id"])


def test_the_best_by_a_metric_is_found_by_its_figure_and_then_by_its_tag(
    story: Story, tokmill: Command, winner: str
) -> None:
    """With the earlier `regex`, words of Beria Erfe fall into pieces, so the last run is the best."""
    values = {run_id: story.run(name).metrics[METRIC] for name, run_id in story.ids.items()}

    assert values[winner] == max(values.values()) > min(values.values())
    assert winner == story.ids["upgraded"] or not EVERYTHING
    listed = json.loads(tokmill("runs", "--tag", "winner", "--json")[1])
    assert [each["run_id"] for each in listed] == [winner]
    assert json.loads(tokmill("runs", "show", "winner", "--json")[1])["run_id"] == winner


@contextmanager
def without(folder: Path) -> Iterator[None]:
    """Move a folder away, for as long as the context lasts."""
    gone = folder.with_name("gone")
    folder.rename(gone)
    try:
        yield
    finally:
        gone.rename(folder)


@pytest.mark.slow
@pytest.mark.usefixtures("winner")
@pytest.mark.parametrize("python", PYTHONS)
def test_the_winner_is_made_again_in_another_folder_from_archived_texts(
    story: Story, tmp_path: Path, python: str
) -> None:
    store = str(story.folder / "store")
    look_in = str(story.folder / "archive")
    with without(story.folder / "texts"):
        said = elsewhere(
            *(tmp_path, python, "reproduce", "winner", "--store", store),
            *("--look-in", look_in, "--into", "again", "--json"),
        )

    assert_equal(said, tmp_path / "again")


@pytest.mark.slow
@pytest.mark.usefixtures("winner")
@pytest.mark.parametrize("python", PYTHONS)
def test_the_winners_bundle_is_all_that_is_needed(
    story: Story, tokmill: Command, tmp_path: Path, python: str
) -> None:
    file = tmp_path / "winner.bundle"
    code, _, err = tokmill("bundle", "winner", "-o", str(file), "--with-inputs", "--look-in", "archive")
    assert code == 0, err
    with without(story.folder):
        said = elsewhere(tmp_path, python, "reproduce", "winner.bundle", "--into", "again", "--json")

    assert_equal(said, tmp_path / "again")


def assert_equal(said: str, again: Path) -> None:
    """Every artifact came out equal, and the new store has all of them whole."""
    document = json.loads(said)
    assert {row["verdict"] for row in document["artifacts"]} == {"equal"}
    kinds = {row["artifact"].partition("/")[0] for row in document["artifacts"]}
    assert kinds >= {"corpus", "counts", "tokenizer", "audit", "encoded_shard", "packed", "card"}
    assert main(["verify", "--store", str(again)]) == 0


def test_a_comparison_is_written_as_a_page_into_a_new_file(
    story: Story, tokmill: Command, tmp_path: Path
) -> None:
    page = tmp_path / "comparison.html"
    asked = ("compare", story.ids["first"], story.ids["flatter"], "--html", str(page))

    assert tokmill(*asked)[0] == 0
    text = page.read_text("utf-8")
    assert "source web: 40 → 47 documents: 7 gained, 1 changed" in text
    assert "balance.temperature 2 → 5" in text
    code, _, err = tokmill(*asked)
    assert code == 2
    assert "exists; name a new file" in err


def test_the_difference_of_two_artifacts_is_written_as_a_page_too(tokmill: Command, tmp_path: Path) -> None:
    page = tmp_path / "difference.html"
    asked = ("diff", "packed/story@v1", "packed/story@v3", "--html", str(page))

    assert tokmill(*asked)[0] == 0
    text = page.read_text("utf-8")
    assert "packed/story@v1 and packed/story@v3 compared" in text
    assert "a.jsonl: 30 → 37 documents (7 gained, 1 changed)" in text
    assert "balance.temperature 2 → 5" in text
    assert "Through corpus/story → " in text
    assert "num_sequences" in text
    assert tokmill(*asked)[0] == 2  # the file exists


def test_any_two_artifacts_are_explained_by_the_same_causes(tokmill: Command) -> None:
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
    store.remove(store.resolve("corpus/story@v1"), with_dependents=True)

    comparison = Comparison(store, [story.run("first"), story.run("grown")])

    (cause,) = comparison.causes(1)
    assert (cause.sort, cause.field) == ("source", "files")
    assert any(line.endswith("new.txt: gained") for line in cause.details)
