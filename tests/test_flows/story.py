"""The runs of one experiment, which `test_experiment_story.py` compares, makes again and takes elsewhere.

A run; then a source gains documents and another changes; then the temperature changes; then a package is
upgraded. By default the upgrade of `regex` is metadata of another version on the path: its bytes are the
same, and so is what is made with it. With TOKMILL_EVERYTHING an earlier version is installed for the first
runs, which knows fewer letters: those of Beria Erfe, new in Unicode 17, were none yet.
"""

import json
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.effort import EVERYTHING
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
UPGRADED = "9999.1"
EARLIER = "2024.11.6"


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


def told_in(folder: Path) -> Story:
    """Write the texts, and make the runs `first`, `grown`, `flatter` and `upgraded`."""
    generator = random.Random(3)
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
