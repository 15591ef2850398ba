"""One experiment, from its first run to a bundle from which the winner is made again elsewhere, offline.

`story.py` makes the runs. Each is compared with the one before and the cause is named; the best by a metric
is found and tagged; it is made again in another folder, from texts archived under other names, and from a
bundle. The winner is made again by this Python in a new process, and by those that TOKMILL_PYTHONS names.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.test_flows.story import EARLIER, EVERYTHING, UPGRADED, Story, elsewhere, told_in
from tokmill.flows.commands.main import main
from tokmill.tasks.comparing.runs import Comparison
from tokmill.tasks.store import Store

pytestmark = pytest.mark.slow

EXPERIMENT = ("--experiment", "story")
METRIC = "audit.bytes_per_token"
PYTHONS = [sys.executable, *filter(None, os.environ.get("TOKMILL_PYTHONS", "").split(os.pathsep))]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    return told_in(tmp_path_factory.mktemp("story"))


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
            *(tmp_path, python, "runs", "reproduce", "winner", "--store", store),
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
    code, _, err = tokmill(
        "runs", "bundle", "winner", "-o", str(file), "--with-inputs", "--look-in", "archive"
    )
    assert code == 0, err
    with without(story.folder):
        said = elsewhere(tmp_path, python, "runs", "reproduce", "winner.bundle", "--into", "again", "--json")

    assert_equal(said, tmp_path / "again")


def assert_equal(said: str, again: Path) -> None:
    """Every artifact came out equal, and the new store has all of them whole."""
    document = json.loads(said)
    assert {row["verdict"] for row in document["artifacts"]} == {"equal"}
    kinds = {row["artifact"].partition("/")[0] for row in document["artifacts"]}
    assert kinds >= {"corpus", "counts", "tokenizer", "audit", "encoded_shard", "packed", "card"}
    assert main(["store", "verify", "--store", str(again)]) == 0


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
    asked = ("compare", "--artifacts", "packed/story@v1", "packed/story@v3", "--html", str(page))

    assert tokmill(*asked)[0] == 0
    text = page.read_text("utf-8")
    assert "packed/story@v1 and packed/story@v3 compared" in text
    assert "a.jsonl: 30 → 37 documents (7 gained, 1 changed)" in text
    assert "balance.temperature 2 → 5" in text
    assert "Through corpus/story → " in text
    assert "num_sequences" in text
    assert tokmill(*asked)[0] == 2  # the file exists


def test_any_two_artifacts_are_explained_by_the_same_causes(tokmill: Command) -> None:
    code, out, _ = tokmill("compare", "--artifacts", "packed/story@v1", "packed/story@v2")
    assert code == 0
    assert "a.jsonl: 30 → 37 documents" in out
    assert "through corpus/story → " in out
    assert " → packed/story" in out
    shard = tokmill("compare", "--artifacts", "encoded_shard/story.web/0@v1", "encoded_shard/story.web/0@v2")[
        1
    ]
    assert "source web: 40 → 47 documents" in shard
    found = json.loads(
        tokmill("compare", "--artifacts", "tokenizer/story@v2", "tokenizer/story@v3", "--json")[1]
    )
    assert [(cause["field"], cause["a"], cause["b"]) for cause in found["causes"]] == [
        ("balance.temperature", 2.0, 5.0)
    ]
    fields = tokmill("compare", "--artifacts", "tokenizer/story@v2", "tokenizer/story@v3", "--fields")[1]
    assert "inputs.balance" in fields
    same = tokmill("compare", "--artifacts", "counts/story", "counts/story")[1]
    assert "have the same content" in same


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("compare", "latest"), "name at least two runs"),
        (("compare", "latest", "stry"), "did you mean"),
        (("compare", "latest", "latest"), "is named twice"),
        (("compare", "--artifacts", "corpus/story", "packed/story"), "name two of one kind"),
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
