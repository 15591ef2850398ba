"""`tokmill runs reproduce` and `bundle`: artifacts from records, in other folders; and hostile bundles.

Offline also by those Pythons that TOKMILL_PYTHONS names.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.hostile_names import HOSTILE
from tests.test_flows.commands import InThisProcess, Tokmill, clean_environment
from tests.test_tasks.golden import all_stages
from tokmill.flows.reproduce.jobs import stages
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
"""


def line(k: int) -> str:
    text = f"Tale {k} of {k % 7} towers, {k * k} stones and {'very ' * (k % 5)}old kings."
    return json.dumps({"text": text}) + "\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Tokmill:
    """A folder with texts, a profile and a store in which a run has made everything."""
    folder = tmp_path_factory.mktemp("reproduced")
    (folder / "texts" / "tales").mkdir(parents=True)
    for part in range(2):
        rows = "".join(line(100 * part + k) for k in range(100))
        (folder / "texts" / "tales" / f"{part}.jsonl").write_text(rows)
    (folder / "texts" / "notes.txt").write_text("".join(f"note {k}: buy {k % 9} apples\n" for k in range(80)))
    (folder / "own.toml").write_text(PROFILE)
    tokmill = InThisProcess(folder, clean_environment())
    tokmill.run("own.toml")
    assert tokmill("store", "tag", "tokenizer/own", "winner").code == 0
    return tokmill


@pytest.fixture
def moved(made: Tokmill, tmp_path: Path) -> Tokmill:
    """A copy of that folder in another place, so that it can be changed."""
    shutil.copytree(made.folder, tmp_path / "copy")
    return made.at(tmp_path / "copy")


@pytest.fixture(scope="module")
def emptied(made: Tokmill, tmp_path_factory: pytest.TempPathFactory) -> Tokmill:
    """A folder with a store whose artifacts were all removed; the texts are where they were."""
    folder = tmp_path_factory.mktemp("emptied")
    shutil.copytree(made.store, folder / "store")
    store = Store.open(folder / "store")
    while left := [read_record(place) for place in store.layout.artifacts()]:
        store.remove(left[0].ref, with_dependents=True)
    return made.at(folder)


def reproduced(tokmill: Tokmill, *arguments: object) -> tuple[int, dict]:
    done = tokmill("runs", "reproduce", *arguments, "--json")
    assert done.out, done.err
    return done.code, json.loads(done.out)


def bundled(tokmill: Tokmill, what: str, out: Path, *more: str) -> Path:
    done = tokmill("runs", "bundle", what, "-o", out, *more)
    assert done.code == 0, done.err
    return out


@contextmanager
def without(folder: Path) -> Iterator[Path]:
    """Move a folder away, for as long as the context lasts; yields where it is."""
    gone = folder.rename(folder.with_name("gone"))
    try:
        yield gone
    finally:
        gone.rename(folder)


def test_every_artifact_of_a_run_is_made_again_with_equal_digests(made: Tokmill, tmp_path: Path) -> None:
    again = tmp_path / "again"
    code, said = reproduced(made, "latest", "--into", again)
    assert (code, said["equal"]) == (0, True)
    assert {row["verdict"] for row in said["artifacts"]} == {"equal"}
    rows = [(row["artifact"].partition("/")[0], row["fingerprint"][:16]) for row in said["artifacts"]]
    kinds = {"corpus", "counts", "tokenizer", "encoded_shard", "packed", "card", "tokenizer_card"}
    assert kinds <= {kind for kind, _ in rows}
    assert all((again / kind / fingerprint / "record.json").exists() for kind, fingerprint in rows)
    assert made("store", "verify", "--store", again).code == 0
    refused = made("runs", "reproduce", "latest", "--into", again.parent)
    assert (refused.code, "not empty" in refused.err) == (2, True)


def test_a_tombstone_that_was_changed_or_is_gone_is_said(emptied: Tokmill, tmp_path: Path) -> None:
    shutil.copytree(emptied.store, tmp_path / "store")
    tokmill, store = emptied.at(tmp_path), Store.open(tmp_path / "store")
    ref = store.resolve("balance/own", removed=True)
    (path,) = store.layout.removed.glob("balance/*.json")
    path.write_text(path.read_text("utf-8").replace('"seconds": ', '"seconds": 1', 1), "utf-8")
    for words in ("reproduce latest", f"bundle {ref.fingerprint[:8]} -o b.bundle"):
        done = tokmill("runs", *words.split())
        assert done.code in (1, 2)
        assert all(word in done.err for word in (str(path), "changed after it was written", "backup"))
    assert not (tmp_path / "b.bundle").exists()
    path.unlink()
    done = tokmill("runs", "reproduce", "tokenizer/own@v1")
    assert (done.code, "tokmill store pull" in done.err) == (1, True)
    assert f"tokenizer/own@v1 was made from balance {ref.fingerprint[:16]}" in done.err


def test_moved_and_renamed_inputs_are_found_by_their_content(
    made: Tokmill, emptied: Tokmill, tmp_path: Path
) -> None:
    for k, file in enumerate(sorted((made.folder / "texts").rglob("*.*"))):
        shutil.copy(file, tmp_path / f"renamed-{k}")
    asked = ("tokenizer/own@winner", "--look-in", tmp_path)
    with without(made.folder / "texts"):
        missing = emptied("runs", "reproduce", asked[0])
        code, said = reproduced(emptied, *asked)
    assert (missing.code, code, said["equal"]) == (1, 0, True)
    was = made.folder / "texts" / "notes.txt"
    assert f"notes.txt (it was {was}): nothing has its content" in missing.err
    assert "--look-in" in missing.err
    done = made("runs", "bundle", asked[0], "-o", tmp_path / "b.bundle")  # which says what it needs
    assert "notes.txt" in done.out
    code, said = reproduced(made.at(tmp_path), "b.bundle", "--look-in", tmp_path)
    assert (code, said["equal"]) == (0, True)


def with_other_content(place: Path) -> None:
    """Rewrite a record without digests of the values in Parquet files."""
    record = read_record(place)
    files = [entry.model_copy(update={"values_digest": None}) for entry in record.files]
    changed = {"files": files, "content_digest": content_digest(files)}
    (place / "record.json").write_bytes(encode_record(record.model_copy(update=changed)))


def test_what_was_removed_counts_for_its_run_and_not_what_was_made_since(moved: Tokmill) -> None:
    store = Store.open(moved.store)
    ref = store.resolve("packed/own")
    place = store.path(ref)
    shutil.copytree(place, moved.folder / "kept")
    with_other_content(place)  # as after --refresh: without a tombstone the present record counts
    assert reproduced(moved, "latest")[0] == 1
    shutil.rmtree(place)
    shutil.copytree(moved.folder / "kept", place)
    store.remove(ref, with_dependents=True)
    shutil.copytree(moved.folder / "kept", place)
    with_other_content(place)
    code, said = reproduced(moved, "latest")
    (row,) = [row for row in said["artifacts"] if row["fingerprint"] == ref.fingerprint]
    assert (code, said["equal"]) == (0, True)
    assert row["content_digest"] == ref.content_digest != store.resolve("packed/own").content_digest


@pytest.mark.parametrize(("name", "row"), [("tales/1.jsonl", 57), ("notes.txt", 79)])
def test_a_changed_byte_is_named_with_file_and_row(made: Tokmill, moved: Tokmill, name, row) -> None:
    file = made.folder / "texts" / name
    before = file.read_bytes()
    lines = before.splitlines(keepends=True)
    lines[row] = lines[row].replace(b"buy", b"bay").replace(b"stones", b"stonas")
    file.write_bytes(b"".join(lines))
    try:
        done = moved("runs", "reproduce", "latest")
    finally:
        file.write_bytes(before)
    assert (done.code, done.err.count("has another row")) == (1, 1)
    assert f"{file} has another row {row} " in done.err


def test_another_version_of_a_stage_is_named_as_the_reason(moved: Tokmill, monkeypatch) -> None:
    def run(params, *, out, **inputs):
        outcome = stage.run(params, out=out, **inputs)
        (out / "more.txt").write_text("more")
        return outcome

    assert stages() == all_stages()
    stage = balance.BALANCE
    later = stage.__class__(**{**vars(stage), "version": stage.version + 1, "run": run})
    monkeypatch.setattr(balance, "BALANCE", later)
    code, said = reproduced(moved, "tokenizer/own")
    (row,) = [row for row in said["artifacts"] if row["reasons"]]
    assert (code, row["artifact"].partition("@")[0]) == (1, "balance/own")
    versions = f"is of version {stage.version + 1}, and was of version {stage.version}"
    assert row["reasons"][0] == f"the stage balance {versions}"


def test_a_bundle_has_the_same_bytes_and_gives_the_same_elsewhere(made: Tokmill, tmp_path: Path) -> None:
    one, two = (bundled(made, "latest", tmp_path / name, "--with-inputs") for name in ("one.bundle", "two"))
    assert one.read_bytes() == two.read_bytes()
    with zipfile.ZipFile(one) as archive:
        (made.folder / "bundled.toml").write_bytes(archive.read("profile.toml"))
    planned = made("plan", "bundled.toml", "--json").document
    assert (planned["num_to_run"], len(planned["tasks"]) > 10) == (0, True)
    refused = made("runs", "bundle", "latest", "-o", one)
    assert (refused.code, "exists; name a new file" in refused.err) == (2, True)
    with without(made.folder):
        ends = [reproduced(made.at(tmp_path), "one.bundle", "--into", "again") for _ in range(2)]
    assert [(code, said["equal"]) for code, said in ends] == [(0, True)] * 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "python", [sys.executable, *filter(None, os.environ.get("TOKMILL_PYTHONS", "").split(os.pathsep))]
)
def test_a_bundle_is_made_again_in_a_new_process_without_a_network(made: Tokmill, tmp_path: Path, python):
    bundled(made, "latest", tmp_path / "b.bundle", "--with-inputs")
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), "http://127.0.0.1:9")
    alone = ["unshare", "--net", "--map-root-user"]
    may = shutil.which("unshare") and subprocess.run([*alone, "true"], check=False).returncode == 0
    command = [*(alone if may else []), python, "-m", "tokmill", "runs", "reproduce", "b.bundle", "--json"]
    how = {"cwd": tmp_path, "env": clean_environment(**nowhere), "capture_output": True}
    with without(made.folder):
        done = subprocess.run([*command, "--into", "again"], **how, check=False)
    assert done.returncode == 0, done.stderr
    assert {row["verdict"] for row in json.loads(done.stdout)["artifacts"]} == {"equal"}


def test_a_bundle_that_was_cut_off_or_damaged_is_refused(made: Tokmill, bundle: Path, tmp_path: Path) -> None:
    bad, whole = tmp_path / "b.bundle", bundle.read_bytes()
    bad.write_bytes(whole[:-50])
    for tokmill in (made, made.at(tmp_path)):  # with a store and without
        done = tokmill("runs", "reproduce", bad)
        assert (done.code, f"{bad} is not a bundle, or its end is missing" in done.err) == (2, True)
    bad.write_bytes(whole.replace(b"apples", b"aprico"))
    done = made.at(tmp_path)("runs", "reproduce", bad)
    assert (done.code, "damaged" in done.err) == (1, True)


def test_an_input_that_is_no_file_is_not_waited_for(moved: Tokmill) -> None:
    (moved.folder / "texts" / "notes.txt").rename(moved.folder / "texts" / "kept.txt")
    store = Store.open(moved.store)
    place = store.path(store.resolve("corpus/own"))
    record = read_record(place)
    os.mkfifo(moved.folder / "fifo")
    inputs = [entry.model_copy(update={"origin": str(moved.folder / "fifo")}) for entry in record.inputs]
    (place / "record.json").write_bytes(encode_record(record.model_copy(update={"inputs": inputs})))
    code, said = reproduced(moved, "corpus/own", "--look-in", "texts")
    assert (code, said["equal"]) == (0, True)


@pytest.fixture(scope="module")
def bundle(made: Tokmill, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a corpus with its inputs."""
    return bundled(made, "corpus/own", tmp_path_factory.mktemp("bundled") / "b.bundle", "--with-inputs")


@pytest.fixture
def refusal(bundle: Path, tmp_path: Path):
    """Reproduce a bundle with changed parts, which must be refused; nothing may be written elsewhere."""

    def refused(change, patch=None, **how) -> str:
        bad, victim, again = (tmp_path / name for name in ("bad.bundle", "victim", "deep/er/again"))
        with zipfile.ZipFile(bundle) as archive:
            parts = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(bad, "w", **how) as archive:
            for name, data in change(parts).items():
                archive.writestr(name, data)
        if patch:
            bad.write_bytes(patch(bytearray(bad.read_bytes())))
        victim.write_text("mine")
        done = InThisProcess(tmp_path, {})("runs", "reproduce", bad, "--into", again)
        assert done.code in (1, 2)
        assert not any(word in done.err for word in ("Traceback", "a bug in tokmill"))
        assert (victim.read_text(), victim.is_symlink()) == ("mine", False)
        outside = {path for path in tmp_path.rglob("*") if not path.is_relative_to(again)}
        assert outside <= {victim, bad, *again.parents}
        return done.err

    return refused


@pytest.fixture(params=HOSTILE.values(), ids=HOSTILE.keys())
def hostile(request, tmp_path: Path) -> str:
    """A hostile name, one that is absolute below the test's own folder."""
    name: str = request.param
    return name.replace("/tmp", str(tmp_path), 1) if name.startswith("/") else name


def changed_record(change):
    """Return what changes the record in a bundle, and seals it again."""

    def changed(parts: dict[str, bytes]) -> dict[str, bytes]:
        (key,) = (each for each in parts if each.startswith("records/"))
        record = json.loads(parts[key])
        change(record)
        del record["record_digest"]
        return parts | {key: sealed("record_digest", json.dumps(record, indent=1).encode() + b"\n")}

    return changed


@pytest.mark.parametrize("door", ["digest", "name", "member"])
def test_a_bundle_writes_nothing_elsewhere(refusal, door: str, hostile: str) -> None:
    def change(parts: dict[str, bytes]) -> dict[str, bytes]:
        about = json.loads(parts["bundle.json"])
        digest = about["inputs"][0]["digest"]
        data = parts.pop(f"inputs/{digest}")
        if door == "member":
            return parts | {f"inputs/{digest}/x": data, f"inputs/{digest}/{hostile}": b"bad"}
        about["inputs"][0][door] = hostile
        member = f"inputs/{about['inputs'][0]['digest']}"
        return parts | {"bundle.json": json.dumps(about).encode(), member: data}

    assert "bundle" in refusal(change) or "\0" in hostile  # which the writer of zip files leaves out


def about_inputs(record: dict, origin: str, **about: str) -> None:
    for entry in record["inputs"]:
        entry["origin"] = origin
        entry["about"].update(about)


@pytest.mark.parametrize("door", ["digest", "name", "source"])
def test_a_record_in_a_bundle_links_nothing_elsewhere(refusal, door: str, hostile: str) -> None:
    refusal(changed_record(lambda record: about_inputs(record, "/nowhere", **{door: hostile})))


def itself(record: dict) -> None:
    mine = {key: record[key] for key in ("kind", "name", "fingerprint")}
    record["inputs"].append({**record["inputs"][0], **mine, "digest": record["content_digest"]})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (itself, "was made from itself"),
        (lambda record: record.update(inputs=[]), "the inputs are not those of the payload"),
        (lambda record: record["inputs"][0].update(role="other"), "the inputs are not those of the payload"),
        (lambda record: record["payload"].pop("inputs"), "the fingerprint is not that of the payload"),
        (
            lambda record: about_inputs(record, "/\x1b]0;title\x07\x9b2J", digest="1" * 64),
            r"\x1b]0;title\x07\x9b2J",
        ),
    ],
)
def test_a_record_in_a_bundle_that_tokmill_never_wrote(refusal, change, said: str) -> None:
    error = refusal(changed_record(change))
    assert said in error
    assert not set(error) & set("\x1b\x07\x9b")


def test_a_bundle_has_what_it_says_and_is_no_larger(refusal) -> None:
    without_inputs = refusal(
        lambda parts: {name: data for name, data in parts.items() if not name.startswith("inputs/")}
    )
    assert "is said to be there" in without_inputs
    blanks = {"bundle.json": b" " * (64 << 20)}  # 64 KiB compressed
    assert "compressed" in refusal(lambda parts: parts | blanks, compression=zipfile.ZIP_DEFLATED)

    def overlapping(data: bytearray) -> bytearray:
        entry = data.rindex(b"PK\x01\x02")
        data[entry + 20 : entry + 28] = struct.pack("<II", 1 << 30, 1 << 30)
        return data

    assert "unpacked" in refusal(dict, overlapping)
