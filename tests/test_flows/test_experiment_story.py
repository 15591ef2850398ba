"""One experiment, from its first run to a bundle from which the winner is made again elsewhere, offline.

A run; then a source gains documents and another changes; then the temperature changes; then a package is
upgraded. Each is compared with the one before and the cause is named; the best by a metric is found and
tagged; it is made again in another folder, from texts archived under other names, and from a bundle: by this
Python in a new process, and by those that TOKMILL_PYTHONS names.

The upgrade of `regex` is metadata of another version on the path: its bytes are the same, and so is what is
made with it.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.test_flows.commands import InThisProcess, Outcome, Tokmill, clean_environment
from tests.test_flows.corpora import words
from tokmill.tasks.comparing.runs import Comparison
from tokmill.tasks.store import Run, Store
from tokmill.tasks.store.runs import read_run, run_path

pytestmark = pytest.mark.slow

METRIC = "audit.bytes_per_token"
PYTHONS = [sys.executable, *filter(None, os.environ.get("TOKMILL_PYTHONS", "").split(os.pathsep))]
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
UPGRADED = "9999.1"


@dataclass
class Story:
    """A folder with texts, a profile, a store, and the ids of its runs by name."""

    folder: Path
    ids: dict[str, str] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return Store.open(self.folder / "store")

    @property
    def tokmill(self) -> Tokmill:
        """The command line there."""
        return InThisProcess(self.folder, clean_environment())

    def make(self, name: str, *options: str, path: str = "") -> None:
        """Run the profile, in a process of its own if something is put before the path of Python."""
        arguments = ("run", "story.toml", "--no-prefect", "--store", "store", *options)
        done = elsewhere(self.folder, sys.executable, *arguments, PYTHONPATH=path) if path else None
        assert done or self.tokmill(*arguments).code == 0
        (latest, *_) = self.store.catalog.query("SELECT run_id FROM runs ORDER BY started DESC")
        self.ids[name] = latest["run_id"]

    def run(self, name: str) -> Run:
        """Return the record of a run."""
        return read_run(run_path(self.store.layout.runs, self.ids[name]))

    def compared(self, *names: str) -> Comparison:
        """Compare some runs."""
        return Comparison(self.store, [self.run(name) for name in names])

    def shown(self, first: str, second: str, *options: str) -> str:
        """What a person sees of a comparison of two runs."""
        done = self.tokmill("compare", self.ids[first], self.ids[second], *options, COLUMNS="200")
        assert done.code == 0, done.err
        return done.out

    def archive(self, when: str) -> None:
        """Keep copies of the texts, under other names."""
        folder = self.folder / "archive" / when
        folder.mkdir(parents=True)
        for number, file in enumerate(sorted((self.folder / "texts").rglob("*.*"))):
            shutil.copyfile(file, folder / f"{number}.old")


def elsewhere(folder: Path, python: str, *arguments: str, **changes: str) -> str:
    """Run a command of tokmill with a Python, as a process that has no network if that can be had."""
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    alone = ["unshare", "--net", "--map-root-user"]
    may = shutil.which("unshare") and subprocess.run([*alone, "true"], check=False).returncode == 0
    done = subprocess.run(
        [*(alone if may else []), python, "-m", "tokmill", *arguments],
        cwd=folder,
        env=clean_environment(**nowhere, **changes),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_lines(path: Path, texts: list[str]) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")


def upgrade(folder: Path) -> str:
    """Return what is put before the path of Python after an upgrade of `regex`."""
    info = folder / f"regex-{UPGRADED}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: regex\nVersion: {UPGRADED}\n")
    return str(folder)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Write the texts, and make the runs `first`, `grown`, `flatter` and `upgraded`."""
    generator, told = random.Random(3), Story(tmp_path_factory.mktemp("story"))
    web, few = told.folder / "texts" / "web", told.folder / "texts" / "few"
    texts = [words(generator, 60) for _ in range(40)]
    write_lines(web / "a.jsonl", texts[:30])
    write_lines(web / "b.jsonl", texts[30:])
    few.mkdir()
    for number in range(3):
        (few / f"{number}.txt").write_text(words(generator, 200), encoding="utf-8")
    (told.folder / "story.toml").write_text(PROFILE, encoding="utf-8")
    told.make("first")
    told.archive("then")
    more = [words(generator, 60) for _ in range(7)]
    write_lines(web / "a.jsonl", [*texts[:3], "another text in its place", *texts[4:30], *more])
    (few / "2.txt").rename(few / "two.txt")
    (few / "1.txt").unlink()
    (few / "new.txt").write_text("a new text " * 50, encoding="utf-8")
    told.make("grown")
    told.make("flatter", "--set", "balance.temperature=5")
    told.make(
        "upgraded",
        "--set",
        "balance.temperature=5",
        "--refresh",
        "count",
        path=upgrade(told.folder / "packages"),
    )
    told.archive("now")
    return told


def test_documents_that_a_source_gained_are_named_as_the_cause(story: Story, tmp_path: Path) -> None:
    every = story.compared("first", "grown", "flatter").causes(2)
    assert [cause.field for cause in every] == ["few", "web", "balance.temperature"]
    few, web = story.compared("first", "grown").causes(1)
    assert (web.sort, web.field, web.artifact, web.a, web.b) == ("source", "web", "corpus/story", 40, 47)
    assert web.data["documents"] == {"gained": 7, "lost": 0, "changed": 1, "kept": 39 - 10}
    (file,) = web.data["files"]
    sizes = [file[side]["num_documents"] for side in "ab"]
    assert (file["name"], file["how"], sizes) == ("a.jsonl", "changed", [30, 37])
    files = [(file["name"], file["how"]) for file in few.data["files"]]
    assert files == [("two.txt", "renamed"), ("new.txt", "gained"), ("1.txt", "lost")]
    assert few.data["documents"]["gained"] == few.data["documents"]["lost"] == 1

    page = tmp_path / "comparison.html"
    shown, _ = story.shown("first", "grown"), story.shown("first", "flatter", "--html", str(page))
    for words_ in (
        "source web: 40 → 47 documents: 7 gained, 1 changed",
        "a.jsonl: 30 → 37 documents (7 gained, 1 changed)",
        "2.txt → two.txt: the same content",
        "so 12 artifacts differ: ingest, count",
        "+16.3 %",  # 43 → 50 documents
    ):
        assert words_ in shown
    text = page.read_text("utf-8")
    assert "source web: 40 → 47 documents: 7 gained, 1 changed" in text
    assert "balance.temperature 2 → 5" in text
    again = story.tokmill("compare", story.ids["first"], story.ids["flatter"], "--html", page)
    assert (again.code, "exists; name a new file" in again.err) == (2, True)


def test_an_upgrade_is_named_and_no_cause_where_it_changed_nothing(story: Story) -> None:
    run, comparison = story.run("upgraded"), story.compared("flatter", "upgraded")
    out = story.shown("flatter", "upgraded")
    assert "count" in {each.task for each in run.artifacts if each.how == "made"}
    changed = [(each.sort, each.name) for each in comparison.environments[1]]
    assert changed == [("package", "regex")]
    assert not next(line for line in comparison.artifacts if line.task == "ingest").differs
    assert (run.packages["regex"], comparison.causes(1)) == (UPGRADED, [])
    assert f"→ {UPGRADED}; no artifact differs because of that" in out


def test_any_two_artifacts_are_explained_by_the_same_causes(story: Story) -> None:
    def compared(*arguments: str) -> Outcome:
        return story.tokmill("compare", "--artifacts", *arguments, COLUMNS="200")

    out = compared("packed/story@v1", "packed/story@v2").out
    for words_ in ("a.jsonl: 30 → 37 documents", "through corpus/story → ", " → packed/story"):
        assert words_ in out
    shard = compared("encoded_shard/story.web/0@v1", "encoded_shard/story.web/0@v2").out
    assert "source web: 40 → 47 documents" in shard
    found = compared("tokenizer/story@v2", "tokenizer/story@v3", "--json").document
    causes = [(cause["field"], cause["a"], cause["b"]) for cause in found["causes"]]
    assert causes == [("balance.temperature", 2.0, 5.0)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("latest",), "name at least two runs"),
        (("latest", "stry"), "did you mean"),
        (("latest", "latest"), "is named twice"),
        (("--artifacts", "corpus/story", "packed/story"), "name two of one kind"),
    ],
)
def test_wrong_usage_says_what_is_right(story: Story, arguments: tuple[str, ...], said: str) -> None:
    done = story.tokmill("compare", *arguments)
    assert (done.code, said in done.err) == (2, True), done.err


def test_what_was_removed_is_still_explained_by_its_record(story: Story, tmp_path: Path) -> None:
    store = Store.open(shutil.copytree(story.store.root, tmp_path / "store"))
    store.remove(store.resolve("corpus/story@v1"), with_dependents=True)
    (cause,) = Comparison(store, [story.run("first"), story.run("grown")]).causes(1)
    assert (cause.sort, cause.field) == ("source", "files")
    assert any(line.endswith("new.txt: gained") for line in cause.details)


@pytest.fixture
def winner(story: Story) -> str:
    """The best run by a metric, which is tagged so; returns its id."""
    best = ("--experiment", "story", "--sort", METRIC, "--best", "1", "--json")
    (run,) = story.tokmill("runs", *best).document
    values = {run_id: story.run(name).metrics[METRIC] for name, run_id in story.ids.items()}
    assert values[run["run_id"]] == max(values.values()) > min(values.values())
    assert story.tokmill("runs", "tag", run["run_id"], "winner").code == 0
    return str(run["run_id"])


@contextmanager
def without(folder: Path) -> Iterator[None]:
    """Move a folder away, for as long as the context lasts."""
    gone = folder.rename(folder.with_name("gone"))
    try:
        yield
    finally:
        gone.rename(folder)


@pytest.mark.usefixtures("winner")
@pytest.mark.parametrize("python", PYTHONS)
def test_the_winner_is_made_again_from_archived_texts_and_from_its_bundle_alone(
    story: Story, tmp_path: Path, python: str
) -> None:
    again = ("runs", "reproduce", "winner", "--store", str(story.folder / "store"))
    with without(story.folder / "texts"):
        archived = ("--look-in", str(story.folder / "archive"), "--into", "from-archive", "--json")
        said = [elsewhere(tmp_path, python, *again, *archived)]
    file = tmp_path / "winner.bundle"
    bundled = story.tokmill("runs", "bundle", "winner", "-o", file, "--with-inputs", "--look-in", "archive")
    assert bundled.code == 0, bundled.err
    with without(story.folder):
        made = ("runs", "reproduce", "winner.bundle", "--into", "from-bundle", "--json")
        said.append(elsewhere(tmp_path, python, *made))
    for name, printed in zip(("from-archive", "from-bundle"), said, strict=True):
        rows = json.loads(printed)["artifacts"]
        assert {row["verdict"] for row in rows} == {"equal"}
        kinds = {row["artifact"].partition("/")[0] for row in rows}
        assert kinds >= {"corpus", "counts", "tokenizer", "audit", "encoded_shard", "packed", "card"}
        assert story.tokmill("store", "verify", "--store", tmp_path / name).code == 0
