"""`tokmill reproduce` and `bundle`: artifacts from records, in other folders.

Offline and on other Pythons: `test_experiment_story.py`.
"""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.test_tasks.golden import all_stages
from tokmill.flows.commands.main import main
from tokmill.flows.reproduce.stages import stage_of, verbs
from tokmill.tasks.balance import stage as balance

PROFILE = """
[sources.tales]
files = ["texts/tales/*.jsonl"]
[sources.notes]
files = ["texts/notes.txt"]
format = "lines"
[train]
vocab_size = 300
special_tokens = ["<|endoftext|>"]
[encode]
end_of_document = "<|endoftext|>"
[pack]
sequence_length = 32
formats = ["memmap", "parquet", "arrow"]
[experiment]
name = "winner"
"""


def _line(k: int) -> str:
    return json.dumps(
        {"text": f"Tale {k} of {k % 7} towers, {k * k} stones and {'very ' * (k % 5)}old kings."}
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with texts, a profile and a store in which a run has made everything."""
    folder = tmp_path_factory.mktemp("reproduced")
    (folder / "texts" / "tales").mkdir(parents=True)
    for part in range(2):
        rows = "".join(f"{_line(100 * part + k)}\n" for k in range(100))
        (folder / "texts" / "tales" / f"{part}.jsonl").write_text(rows)
    (folder / "texts" / "notes.txt").write_text("".join(f"note {k}: buy {k % 9} apples\n" for k in range(80)))
    (folder / "own.toml").write_text(PROFILE)
    assert _at(folder, "run", "own.toml", "--no-prefect", "--store", "store") == 0
    assert _at(folder, "tag", "tokenizer/own", "winner", "--store", "store") == 0
    return folder


def _at(folder: Path, *arguments: str) -> int:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return main(list(arguments))


@pytest.fixture
def moved(made: Path, tmp_path: Path) -> Path:
    """A copy of that folder in another place, so that it can be changed."""
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def _verdicts(capsys, folder: Path, *arguments: str) -> tuple[int, dict]:
    capsys.readouterr()
    code = _at(folder, "reproduce", *arguments, "--json")
    return code, json.loads(capsys.readouterr().out)


def test_every_artifact_of_a_run_is_made_again_with_equal_digests(made: Path, tmp_path: Path, capsys) -> None:
    code, said = _verdicts(capsys, made, "latest", "--store", "store", "--into", str(tmp_path / "again"))
    assert (code, said["equal"]) == (0, True)
    assert {row["verdict"] for row in said["artifacts"]} == {"equal"}
    kinds = {row["artifact"].partition("/")[0] for row in said["artifacts"]}
    assert {"corpus", "counts", "tokenizer", "encoded_shard", "packed", "card", "tokenizer_card"} <= kinds
    again = tmp_path / "again"
    assert _at(made, "verify", "--store", str(again)) == 0
    for row in said["artifacts"]:
        kind = row["artifact"].partition("/")[0]
        assert (again / kind / row["fingerprint"][:16] / "record.json").exists()


def test_an_artifact_that_was_removed_is_made_from_its_tombstone(moved: Path, capsys) -> None:
    assert _at(moved, "remove", "packed/own", "--with-dependents", "--store", "store") == 0
    code, said = _verdicts(capsys, moved, "latest", "--store", "store", "--look-in", "texts")
    assert (code, said["equal"]) == (0, True)


def test_moved_and_renamed_inputs_are_found_by_their_content(made: Path, tmp_path: Path, capsys) -> None:
    shutil.copytree(made / "store", tmp_path / "store")
    others = tmp_path / "others"
    others.mkdir()
    for k, file in enumerate(sorted((made / "texts").rglob("*.*"))):
        shutil.copy(file, others / f"renamed-{k}")
    hidden = made / "hidden"
    (made / "texts").rename(hidden)
    try:
        code = _at(tmp_path, "reproduce", "tokenizer/own@winner", "--store", "store")
        assert code == 1
        assert "nothing has its name" in capsys.readouterr().err
        code, said = _verdicts(
            capsys, tmp_path, "tokenizer/own@winner", "--store", "store", "--look-in", str(others)
        )
    finally:
        hidden.rename(made / "texts")
    assert (code, said["equal"]) == (0, True)


@pytest.mark.parametrize(("name", "row"), [("tales/0.jsonl", 0), ("tales/1.jsonl", 57), ("notes.txt", 79)])
def test_a_changed_byte_is_named_with_file_and_row(
    made: Path, moved: Path, capsys, name: str, row: int
) -> None:
    file = made / "texts" / name
    before = file.read_bytes()
    lines = before.splitlines(keepends=True)
    lines[row] = lines[row].replace(b"e", b"a", 2)[: len(lines[row])].replace(b"taxt", b"text")
    file.write_bytes(b"".join(lines))
    try:
        assert _at(moved, "reproduce", "latest", "--store", "store") == 1
    finally:
        file.write_bytes(before)
    said = capsys.readouterr().err
    assert f"{file} has another row {row} " in said
    assert said.count("has another row") == 1


def test_another_version_of_a_stage_is_named_as_the_reason(moved: Path, capsys, monkeypatch) -> None:
    stage = balance.BALANCE
    later = stage.__class__(**{**vars(stage), "version": stage.version + 1, "run": _rounded(stage.run)})
    monkeypatch.setattr(balance, "BALANCE", later)
    code, said = _verdicts(capsys, moved, "tokenizer/own", "--store", "store")
    assert code == 1
    (row,) = [row for row in said["artifacts"] if row["reasons"]]
    assert row["artifact"].startswith("balance/own")
    assert row["reasons"][0] == f"version of the stage balance: {stage.version} then, {stage.version + 1} now"


def _rounded(run):
    def changed(params, *, out, **inputs):
        outcome = run(params, out=out, **inputs)
        (out / "more.txt").write_text("more")
        return outcome

    return changed


def test_a_folder_that_holds_something_else_is_refused(made: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("mine")
    assert _at(made, "reproduce", "latest", "--store", "store", "--into", str(tmp_path)) == 2
    assert "not empty" in capsys.readouterr().err


def test_a_bundle_has_the_same_bytes_and_gives_the_same_elsewhere(made: Path, tmp_path: Path, capsys) -> None:
    for name in ("one", "two"):
        out = str(tmp_path / f"{name}.bundle")
        assert _at(made, "bundle", "latest", "-o", out, "--with-inputs", "--store", "store") == 0
    assert (tmp_path / "one.bundle").read_bytes() == (tmp_path / "two.bundle").read_bytes()
    hidden = made.with_name("hidden")
    made.rename(hidden)
    try:
        code, said = _verdicts(capsys, tmp_path, "one.bundle", "--into", "again")
        again, _ = _verdicts(capsys, tmp_path, "one.bundle", "--into", "again")
    finally:
        hidden.rename(made)
    assert (code, again, said["equal"]) == (0, 0, True)


def test_the_profile_in_a_bundle_is_run_as_it_was(made: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "b.bundle"
    assert _at(made, "bundle", "latest", "-o", str(out), "--store", "store") == 0
    with zipfile.ZipFile(out) as archive:
        (made / "bundled.toml").write_bytes(archive.read("profile.toml"))
    capsys.readouterr()
    assert _at(made, "plan", "bundled.toml", "--store", "store", "--json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["num_to_run"] == 0
    assert len(planned["tasks"]) > 10


def test_a_bundle_without_inputs_says_what_it_needs(made: Path, tmp_path: Path, capsys) -> None:
    out = str(tmp_path / "b.bundle")
    assert _at(made, "bundle", "tokenizer/own@winner", "-o", out, "--store", "store") == 0
    assert "notes.txt" in capsys.readouterr().out
    code, said = _verdicts(capsys, tmp_path, out, "--look-in", str(made / "texts"))
    assert (code, said["equal"]) == (0, True)


def test_a_damaged_bundle_is_refused(made: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "b.bundle"
    assert _at(made, "bundle", "tokenizer/own", "-o", str(out), "--with-inputs", "--store", "store") == 0
    out.write_bytes(out.read_bytes().replace(b"apples", b"apricot"[:6]))
    assert _at(tmp_path, "reproduce", str(out)) == 1
    assert "damaged" in capsys.readouterr().err


def test_every_stage_is_known_by_its_verb() -> None:
    assert verbs() == sorted(all_stages())
    assert all(stage_of(verb).verb == verb for verb in verbs())
