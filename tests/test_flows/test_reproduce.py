"""`tokmill runs reproduce` and `bundle`: artifacts from records, in other folders.

Offline and on other Pythons: `test_experiment_story.py`.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.hostile_names import HOSTILE
from tests.small_disk import on_small_disk
from tests.test_tasks.golden import all_stages
from tokmill.flows.commands.main import main
from tokmill.flows.reproduce.remaking import stage_of, verbs
from tokmill.tasks.balance import stage as balance
from tokmill.tasks.store import Store
from tokmill.tasks.store.digest import content_digest
from tokmill.tasks.store.record import encode_record, read_record, sealed

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
    assert _at(folder, "store", "tag", "tokenizer/own", "winner", "--store", "store") == 0
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
    code = _at(folder, "runs", "reproduce", *arguments, "--json")
    return code, json.loads(capsys.readouterr().out)


def test_every_artifact_of_a_run_is_made_again_with_equal_digests(made: Path, tmp_path: Path, capsys) -> None:
    code, said = _verdicts(capsys, made, "latest", "--store", "store", "--into", str(tmp_path / "again"))
    assert (code, said["equal"]) == (0, True)
    assert {row["verdict"] for row in said["artifacts"]} == {"equal"}
    kinds = {row["artifact"].partition("/")[0] for row in said["artifacts"]}
    assert {"corpus", "counts", "tokenizer", "encoded_shard", "packed", "card", "tokenizer_card"} <= kinds
    again = tmp_path / "again"
    assert _at(made, "store", "verify", "--store", str(again)) == 0
    for row in said["artifacts"]:
        kind = row["artifact"].partition("/")[0]
        assert (again / kind / row["fingerprint"][:16] / "record.json").exists()


def test_an_artifact_that_was_removed_is_made_from_its_tombstone(moved: Path, capsys) -> None:
    assert (
        _at(moved, "store", "remove", "packed/own", "--with-dependents", "--apply", "--store", "store") == 0
    )
    code, said = _verdicts(capsys, moved, "latest", "--store", "store", "--look-in", "texts")
    assert (code, said["equal"]) == (0, True)


@pytest.fixture(scope="module")
def emptied(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store whose artifacts were all removed; the texts are where they were."""
    folder = tmp_path_factory.mktemp("emptied")
    shutil.copytree(made / "store", folder / "store")
    store = Store.open(folder / "store")
    while left := [read_record(place) for place in store.layout.artifacts()]:
        store.remove(left[0].ref, with_dependents=True)
    return folder


@pytest.mark.parametrize(
    "name",
    [
        "tokenizer/own@winner",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("tokenizer/own", "tokenizer/own@v1")),
    ],
)
def test_a_removed_artifact_is_named_as_any_other(emptied: Path, capsys, name: str) -> None:
    code, said = _verdicts(capsys, emptied, name, "--store", "store")
    assert (code, said["equal"]) == (0, True)
    assert {"corpus", "tokenizer"} <= {row["artifact"].partition("/")[0] for row in said["artifacts"]}


def test_a_removed_artifact_is_named_by_its_fingerprint_and_bundled(
    emptied: Path, tmp_path: Path, capsys
) -> None:
    ref = Store.open(emptied / "store").resolve("balance/own", removed=True)
    out = str(tmp_path / "b.bundle")
    assert (
        _at(emptied, "runs", "bundle", ref.fingerprint[:8], "-o", out, "--with-inputs", "--store", "store")
        == 0
    )
    code, said = _verdicts(capsys, tmp_path, out)
    assert (code, said["equal"]) == (0, True)
    assert said["artifacts"][-1]["content_digest"] == ref.content_digest


@pytest.mark.slow
def test_what_gc_took_of_a_run_is_made_again(moved: Path, capsys) -> None:
    assert _at(moved, "store", "gc", "--older-than", "0", "--keep", "0", "--apply", "--store", "store") == 0
    store = Store.open(moved / "store")
    kept = {record.kind for record in map(read_record, store.layout.artifacts())}
    assert {"tokenizer", "corpus"} <= kept  # for the alias
    assert not {"packed", "card"} & kept
    for name in ("packed/own@v1", "latest"):
        code, said = _verdicts(capsys, moved, name, "--store", "store")
        assert (code, said["equal"]) == (0, True)


def test_a_tombstone_that_was_changed_is_refused(emptied: Path, tmp_path: Path, capsys) -> None:
    shutil.copytree(emptied / "store", tmp_path / "store")
    store = Store.open(tmp_path / "store")
    ref = store.resolve("balance/own", removed=True)
    (path,) = store.layout.removed.glob("balance/*.json")
    path.write_text(path.read_text("utf-8").replace('"seconds": ', '"seconds": 1', 1), "utf-8")
    for name in ("balance/own", "balance/own@v1", ref.fingerprint[:8], "tokenizer/own@v1", "latest"):
        for command in (("reproduce",), ("bundle", "-o", "b.bundle")):
            capsys.readouterr()
            assert _at(tmp_path, "runs", command[0], name, *command[1:], "--store", "store") in (1, 2)
            said = capsys.readouterr().err
            assert str(path) in said
            assert "changed after it was written" in said
            assert "backup" in said
    assert not (tmp_path / "b.bundle").exists()


def test_a_record_that_is_nowhere_is_named_with_what_was_made_from_it(
    emptied: Path, tmp_path: Path, capsys
) -> None:
    shutil.copytree(emptied / "store", tmp_path / "store")
    store = Store.open(tmp_path / "store")
    balance = store.resolve("balance/own", removed=True)
    (store.layout.removed / "balance" / f"{balance.fingerprint[:16]}.json").unlink()
    assert _at(tmp_path, "runs", "reproduce", "tokenizer/own@v1", "--store", "store") == 1
    said = capsys.readouterr().err
    assert f"tokenizer/own@v1 was made from balance {balance.fingerprint[:16]}" in said
    assert "tokmill store pull" in said


def test_removed_artifacts_whose_texts_are_gone_say_where_to_look(
    made: Path, emptied: Path, tmp_path: Path, capsys
) -> None:
    hidden = made / "hidden"
    (made / "texts").rename(hidden)
    try:
        assert _at(emptied, "runs", "reproduce", "tokenizer/own@v1", "--store", "store") == 1
        said = capsys.readouterr().err
        code, _ = _verdicts(capsys, emptied, "tokenizer/own@v1", "--store", "store", "--look-in", str(hidden))
    finally:
        hidden.rename(made / "texts")
    assert f"notes.txt (it was {made / 'texts' / 'notes.txt'}): nothing has its content" in said
    assert "--look-in" in said
    assert code == 0


def _with_other_content(place: Path) -> None:
    """Rewrite a record without digests of the values in Parquet files."""
    record = read_record(place)
    files = [entry.model_copy(update={"values_digest": None}) for entry in record.files]
    changed = {"files": files, "content_digest": content_digest(files)}
    (place / "record.json").write_bytes(encode_record(record.model_copy(update=changed)))


def test_what_was_removed_counts_for_its_run_and_not_what_was_made_since(moved: Path, capsys) -> None:
    store = Store.open(moved / "store")
    ref = store.resolve("packed/own")
    place = store.path(ref)
    shutil.copytree(place, moved / "kept")
    store.remove(ref, with_dependents=True)
    shutil.copytree(moved / "kept", place)
    _with_other_content(place)
    assert store.resolve("packed/own").content_digest != ref.content_digest
    code, said = _verdicts(capsys, moved, "latest", "--store", "store")
    assert (code, said["equal"]) == (0, True)
    (row,) = [row for row in said["artifacts"] if row["fingerprint"] == ref.fingerprint]
    assert row["content_digest"] == ref.content_digest


def test_of_what_was_made_again_without_a_tombstone_the_present_record_counts(moved: Path, capsys) -> None:
    store = Store.open(moved / "store")
    ref = store.resolve("packed/own")
    _with_other_content(store.path(ref))  # as after --refresh: the same fingerprint, other content
    code, said = _verdicts(capsys, moved, "latest", "--store", "store")
    assert (code, said["equal"]) == (1, False)


def test_of_a_run_that_failed_it_is_said_so(moved: Path, capsys) -> None:
    (moved / "own.toml").write_text(PROFILE + '[audit]\nmin_bytes_per_token = 1000.0\non_failure = "fail"\n')
    assert _at(moved, "run", "own.toml", "--no-prefect", "--store", "store") == 1
    capsys.readouterr()

    assert _at(moved, "runs", "reproduce", "latest", "--into", "again", "--store", "store") == 0

    equal, state = capsys.readouterr().out.splitlines()
    assert equal.endswith("came out equal")
    assert state == "the run is recorded as failed; these are the artifacts that it had by then"


def test_moved_and_renamed_inputs_are_found_by_their_content(made: Path, tmp_path: Path, capsys) -> None:
    shutil.copytree(made / "store", tmp_path / "store")
    others = tmp_path / "others"
    others.mkdir()
    for k, file in enumerate(sorted((made / "texts").rglob("*.*"))):
        shutil.copy(file, others / f"renamed-{k}")
    hidden = made / "hidden"
    (made / "texts").rename(hidden)
    try:
        code = _at(tmp_path, "runs", "reproduce", "tokenizer/own@winner", "--store", "store")
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
        assert _at(moved, "runs", "reproduce", "latest", "--store", "store") == 1
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
    versions = f"is of version {stage.version + 1}, and was of version {stage.version}"
    assert row["reasons"][0] == f"the stage balance {versions}"


def _rounded(run):
    def changed(params, *, out, **inputs):
        outcome = run(params, out=out, **inputs)
        (out / "more.txt").write_text("more")
        return outcome

    return changed


def test_a_folder_that_holds_something_else_is_refused(made: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "file").write_text("mine")
    assert _at(made, "runs", "reproduce", "latest", "--store", "store", "--into", str(tmp_path)) == 2
    assert "not empty" in capsys.readouterr().err


def test_a_bundle_has_the_same_bytes_and_gives_the_same_elsewhere(made: Path, tmp_path: Path, capsys) -> None:
    for name in ("one", "two"):
        out = str(tmp_path / f"{name}.bundle")
        assert _at(made, "runs", "bundle", "latest", "-o", out, "--with-inputs", "--store", "store") == 0
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
    assert _at(made, "runs", "bundle", "latest", "-o", str(out), "--store", "store") == 0
    with zipfile.ZipFile(out) as archive:
        (made / "bundled.toml").write_bytes(archive.read("profile.toml"))
    capsys.readouterr()
    assert _at(made, "plan", "bundled.toml", "--store", "store", "--json") == 0
    planned = json.loads(capsys.readouterr().out)
    assert planned["num_to_run"] == 0
    assert len(planned["tasks"]) > 10


def test_a_bundle_without_inputs_says_what_it_needs(made: Path, tmp_path: Path, capsys) -> None:
    out = str(tmp_path / "b.bundle")
    assert _at(made, "runs", "bundle", "tokenizer/own@winner", "-o", out, "--store", "store") == 0
    assert "notes.txt" in capsys.readouterr().out
    code, said = _verdicts(capsys, tmp_path, out, "--look-in", str(made / "texts"))
    assert (code, said["equal"]) == (0, True)


def test_a_bundle_is_a_new_file(made: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "b.bundle"
    asked = ("runs", "bundle", "tokenizer/own", "-o", str(out), "--store", "store")
    assert _at(made, *asked, "--with-inputs") == 0
    whole = out.read_bytes()
    assert _at(made, *asked) == 2
    assert "exists; name a new file" in capsys.readouterr().err
    assert out.read_bytes() == whole


def test_a_bundle_that_was_cut_off_is_told_from_a_name(made: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "b.bundle"
    assert _at(made, "runs", "bundle", "tokenizer/own", "-o", str(out), "--store", "store") == 0
    out.write_bytes(out.read_bytes()[:-50])
    for folder in (made, tmp_path):  # with a store and without
        assert _at(folder, "runs", "reproduce", str(out), "--store", "store") == 2
        assert f"{out} is not a bundle, or its end is missing" in capsys.readouterr().err


def test_a_disk_without_room_for_a_bundle_is_named(made: Path, tmp_path: Path) -> None:
    place = tmp_path / "small"
    script = f"{sys.executable} -m tokmill runs bundle latest -o $0/b.bundle --store {made / 'store'}"
    done = subprocess.run(on_small_disk(place, "16k", script), check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert f"bundle: {place / 'b.bundle'} cannot be written" in done.stderr
    assert "make room" in done.stderr


def test_a_damaged_bundle_is_refused(made: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "b.bundle"
    assert (
        _at(made, "runs", "bundle", "tokenizer/own", "-o", str(out), "--with-inputs", "--store", "store") == 0
    )
    out.write_bytes(out.read_bytes().replace(b"apples", b"apricot"[:6]))
    assert _at(tmp_path, "runs", "reproduce", str(out)) == 1
    assert "damaged" in capsys.readouterr().err


def test_every_stage_is_known_by_its_verb() -> None:
    assert verbs() == sorted(all_stages())
    assert all(stage_of(verb).verb == verb for verb in verbs())


@pytest.fixture(scope="module")
def bundled(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a corpus with its inputs."""
    out = tmp_path_factory.mktemp("bundled") / "b.bundle"
    assert _at(made, "runs", "bundle", "corpus/own", "-o", str(out), "--with-inputs", "--store", "store") == 0
    return out


def _rewritten(bundle: Path, out: Path, change, **how) -> Path:
    """Copy a bundle, with its parts changed by a function from their dictionary."""
    with zipfile.ZipFile(bundle) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(out, "w", **how) as archive:
        for name, data in change(parts).items():
            archive.writestr(name, data)
    return out


def _refused(capsys, tmp_path: Path, bundle: Path) -> str:
    """Reproduce a bundle that is refused; return the error, and check that nothing was written elsewhere."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    capsys.readouterr()
    assert _at(tmp_path, "runs", "reproduce", str(bundle), "--into", "deep/er/again") in (1, 2)
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert "a bug in tokmill" not in said
    assert victim.read_text() == "mine"
    assert not victim.is_symlink()
    again = tmp_path / "deep" / "er" / "again"
    outside = {path for path in tmp_path.rglob("*") if not path.is_relative_to(again)}
    assert outside <= {victim, bundle, *again.parents}
    return said


def _aimed(name: str, tmp_path: Path) -> str:
    """Return a hostile name, one that is absolute below the test's own folder."""
    return name.replace("/tmp", str(tmp_path), 1) if name.startswith("/") else name


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("door", ["digest", "name", "member"])
def test_a_bundle_writes_nothing_elsewhere(
    bundled: Path, tmp_path: Path, capsys, door: str, name: str
) -> None:
    def change(parts: dict[str, bytes]) -> dict[str, bytes]:
        about = json.loads(parts["bundle.json"])
        digest = about["inputs"][0]["digest"]
        data = parts.pop(f"inputs/{digest}")
        if door == "member":
            return parts | {f"inputs/{digest}/x": data, f"inputs/{digest}/{name}": b"bad"}
        about["inputs"][0][door] = _aimed(name, tmp_path)
        member = f"inputs/{about['inputs'][0]['digest']}"
        return parts | {"bundle.json": json.dumps(about).encode(), member: data}

    said = _refused(capsys, tmp_path, _rewritten(bundled, tmp_path / "bad.bundle", change))
    assert "bundle" in said or "\0" in name  # which the writer of zip files leaves out


@pytest.mark.parametrize("name", HOSTILE.values(), ids=HOSTILE.keys())
@pytest.mark.parametrize("door", ["digest", "name", "source"])
def test_a_record_in_a_bundle_links_nothing_elsewhere(
    bundled: Path, tmp_path: Path, capsys, door: str, name: str
) -> None:
    def change(parts: dict[str, bytes]) -> dict[str, bytes]:
        (key,) = (each for each in parts if each.startswith("records/"))
        record = json.loads(parts[key])
        for entry in record["inputs"]:
            entry["origin"] = "/nowhere"
            entry["about"][door] = _aimed(name, tmp_path)
        del record["record_digest"]
        return parts | {key: sealed("record_digest", json.dumps(record, indent=1).encode() + b"\n")}

    _refused(capsys, tmp_path, _rewritten(bundled, tmp_path / "bad.bundle", change))


def _itself(record: dict) -> None:
    mine = {key: record[key] for key in ("kind", "name", "fingerprint")}
    record["inputs"].append({**record["inputs"][0], **mine, "digest": record["content_digest"]})


def _steering(record: dict) -> None:
    for entry in record["inputs"]:
        entry["origin"] = "/\x1b]0;title\x07\x9b2J"
        entry["about"]["digest"] = "1" * 64


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_itself, "was made from itself"),
        (lambda record: record.update(inputs=[]), "the inputs are not those of the payload"),
        (lambda record: record["inputs"][0].update(role="other"), "the inputs are not those of the payload"),
        (lambda record: record["payload"].update(inputs=["a"]), "the fingerprint is not that of the payload"),
        (lambda record: record["payload"].pop("inputs"), "the fingerprint is not that of the payload"),
        (_steering, r"\x1b]0;title\x07\x9b2J"),
    ],
)
def test_a_record_in_a_bundle_that_tokmill_never_wrote(
    bundled: Path, tmp_path: Path, capsys, change, said: str
) -> None:
    def changed(parts: dict[str, bytes]) -> dict[str, bytes]:
        (key,) = (each for each in parts if each.startswith("records/"))
        record = json.loads(parts[key])
        change(record)
        del record["record_digest"]
        return parts | {key: sealed("record_digest", json.dumps(record, indent=1).encode() + b"\n")}

    error = _refused(capsys, tmp_path, _rewritten(bundled, tmp_path / "bad.bundle", changed))
    assert said in error
    assert not set(error) & set("\x1b\x07\x9b")


def test_an_input_that_a_bundle_says_it_has_is_there(bundled: Path, tmp_path: Path, capsys) -> None:
    def changed(parts: dict[str, bytes]) -> dict[str, bytes]:
        return {name: data for name, data in parts.items() if not name.startswith("inputs/")}

    assert "is said to be there" in _refused(
        capsys, tmp_path, _rewritten(bundled, tmp_path / "bad.bundle", changed)
    )


def test_a_bundle_is_no_larger_than_it_says(bundled: Path, tmp_path: Path, capsys) -> None:
    blanks = {"bundle.json": b" " * (64 << 20)}  # 64 KiB compressed
    bad = _rewritten(
        bundled, tmp_path / "bad.bundle", lambda parts: parts | blanks, compression=zipfile.ZIP_DEFLATED
    )
    assert "compressed" in _refused(capsys, tmp_path, bad)
    overlapping = bytearray(_rewritten(bundled, tmp_path / "bad.bundle", dict).read_bytes())
    entry = overlapping.rindex(b"PK\x01\x02")
    overlapping[entry + 20 : entry + 28] = struct.pack("<II", 1 << 30, 1 << 30)
    bad.write_bytes(overlapping)
    assert "unpacked" in _refused(capsys, tmp_path, bad)


def test_an_input_that_is_no_file_is_not_waited_for(moved: Path, tmp_path: Path, capsys) -> None:
    (moved / "texts" / "notes.txt").rename(moved / "texts" / "kept.txt")
    store = Store.open(moved / "store")
    place = store.path(store.resolve("corpus/own"))
    record = read_record(place)
    os.mkfifo(moved / "fifo")
    inputs = [entry.model_copy(update={"origin": str(moved / "fifo")}) for entry in record.inputs]
    (place / "record.json").write_bytes(encode_record(record.model_copy(update={"inputs": inputs})))
    code, said = _verdicts(capsys, moved, "corpus/own", "--store", "store", "--look-in", "texts")
    assert (code, said["equal"]) == (0, True)
