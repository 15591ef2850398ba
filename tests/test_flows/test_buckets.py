"""Runs from and into object storage: the artifacts of a folder, cached for others, and each command there."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.object_server import Bucket
from tests.other_services import OtherService
from tests.test_flows.commands import InThisProcess, Tokmill, clean_environment
from tests.test_flows.corpora import InProcess, write_project
from tests.test_flows.jobs import digests
from tokmill.tasks.loading import PackedDataset
from tokmill.tasks.store import Store

pytestmark = [pytest.mark.objects, pytest.mark.slow]

HELD_OUT = "holdout.share=0.2"


@pytest.fixture
def machine(bucket: Bucket, tmp_path: Path, prefect_server: dict[str, str]) -> Callable[[str], Tokmill]:
    """Return a machine by its name: each has a cache of its own, and processes that a fork server starts."""

    def named(name: str) -> Tokmill:
        own = bucket.server.environment() | {"TOKMILL_CACHE": str(tmp_path / name)}
        return Tokmill(tmp_path, clean_environment(HOME=str(tmp_path), **own), forks=True)

    return named


def contents(store: Store) -> dict[tuple[str, str, str], str]:
    return {(row["kind"], row["name"], row["label"]): row["content_digest"] for row in store.list()}


def batches(packed: PackedDataset) -> list[object]:
    with packed as dataset:
        return [batch["input_ids"].tolist() for batch in dataset]


def test_a_run_in_a_bucket_is_that_in_a_folder_cached_and_loaded_elsewhere(
    machine: Callable[[str], Tokmill], bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = f"{bucket.url}/team", str(tmp_path / "folder")
    for store, name in ((folder, "none"), (url, "here")):
        assert machine(name).run("smoke", "--no-prefect", "--store", store)["store"] == store
    payload = ("team/files/encoded_shard/*", "team/files/packed*")
    num_sent = [bucket.num_sent(key=key) for key in payload]
    found = machine("there").run("smoke", "--no-prefect", "--store", url)
    assert {task["how"] for task in found["tasks"]} == {"cached"}
    assert [bucket.num_sent(key=key) for key in payload] == num_sent
    monkeypatch.setenv("TOKMILL_CACHE", str(tmp_path / "loading"))
    assert contents(Store.open(url)) == contents(Store.open(folder))

    expected = batches(PackedDataset("packed/smoke", store=folder))
    bucket.fault("cut", method="GET", key="team/files/packed*", num_bytes=100, times=3)
    assert batches(PackedDataset(f"{url}/packed/smoke")) == expected
    assert Store.open(url).verify() == []


def test_commands_fetch_what_they_read_and_show_urls(
    machine: Callable[[str], Tokmill], bucket: Bucket, tmp_path: Path
) -> None:
    there, store = machine("there"), ("--store", f"{bucket.url}/team")
    machine("here").run("smoke", "--no-prefect", *store)
    shown = there("show", "packed/smoke", "--json", *store).document
    assert shown["path"].startswith(f"{store[1]}/files/packed/")
    assert f"{shown['path'].removeprefix(bucket.url + '/')}/packed.json" in set(bucket.keys())
    assert bucket.num_sent(key="team/files/packed/*") == 0

    traced = there("trace", "packed/smoke", "-s", "3", "--json", *store).document
    (tmp_path / "names.txt").write_text(f"{traced['pieces'][0]['name']}\n", encoding="utf-8")
    taken = there("data", "takedown", "packed/smoke", "-d", "names.txt", "--json", *store).document
    assert taken["version"]["path"].startswith(f"{store[1]}/files/packed/")
    assert "packed/smoke@v1" in taken["holders"]

    machine("here").run(
        "smoke", "--no-prefect", "--set", "balance.temperature=5", "--until", "tokenizer", *store
    )
    compared = there("compare", "tokenizer/smoke@v1", "latest", "--json", *store).document
    assert [cause["field"] for cause in compared["runs"][1]["causes"]] == ["balance.temperature"]
    assert there("runs", "tag", "latest", "hotter", *store).code == 0
    (tagged,) = there("runs", "--tag", "hotter", "--json", *store).document
    assert tagged["run_id"] == compared["runs"][1]["run_id"]
    for command in ("show packed/smoke", "store rebuild", "store du", "store gc", "store verify"):
        outcome = there(*command.split(), *store)
        assert outcome.code == 0, outcome.err
        assert str(tmp_path / "there") not in outcome.out + outcome.err


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that was run from its files."""
    folder = tmp_path_factory.mktemp("project")
    InProcess.at(folder / "store").run(folder / write_project(folder), HELD_OUT)
    return folder


@pytest.fixture
def remote(project: Path, bucket: Bucket, tmp_path: Path) -> Path:
    """The same project with its texts in a bucket; returns its profile."""
    text = (project / "tiny.toml").read_text()
    for source in ("many", "few"):
        text = text.replace(f'"{source}/', f'"{bucket.url}/{source}/')
        for path in (project / source).iterdir():
            bucket.put(f"{source}/{path.name}", path.read_bytes())
    (tmp_path / "tiny.toml").write_text(text)
    return tmp_path / "tiny.toml"


def test_artifacts_are_those_of_a_run_from_files(project: Path, remote: Path, bucket: Bucket) -> None:
    """Those held out for validation, too; the service fails now and then, which changes nothing."""
    for kind in ("answer", "cut", "lose"):
        bucket.fault(kind, method="GET", times=3, num_bytes=100, skip=2)  # type: ignore[arg-type]
    store = remote.parent / "store"
    InProcess.at(store).run(remote, HELD_OUT)
    assert digests(store) == digests(project / "store")


def test_commands_read_the_text_by_its_url(tokmill: Tokmill, remote: Path, bucket: Bucket) -> None:
    with_ids = ("--set", 'sources.many.id_column="id"')
    tokmill.run(str(remote), *with_ids)
    before = bucket.num_sent()
    assert "everything is up to date" in tokmill("plan", remote, *with_ids).out
    assert bucket.num_sent() - before <= 2 * (256 << 10)  # a look at the beginning of each source
    bucket.put("many/part-1.jsonl", bucket.get("many/part-1.jsonl"))  # written again, with the same bytes
    assert tokmill.run(str(remote), *with_ids, "--rehash")["num_made"] == 0

    pieces = tokmill("trace", "packed/tiny", "-s", 0, "--json").document["pieces"]
    assert all(piece["path"].startswith(f"{bucket.url}/") for piece in pieces)
    assert tokmill("trace", "packed/tiny", "-d", "many:1-3").code == 0  # the id is read from the text
    (tokmill.folder / "list.txt").write_text("many:1-3\n")
    assert tokmill("data", "takedown", "packed/tiny", "-d", "list.txt").code == 0
    moved = tokmill("trace", "packed/tiny", "-d", "many:1-3", "--root", f"many={bucket.url}/moved")
    assert moved.code != 0
    assert f"{bucket.url}/moved/part-0.jsonl cannot be read" in " ".join(moved.err.split())


def test_a_profile_names_tokenizers_and_parallel_text_by_url(
    project: Path, remote: Path, bucket: Bucket, tokmill: Tokmill
) -> None:
    for file in next(project.glob("store/tokenizer/*/exports/huggingface")).iterdir():
        bucket.put(f"tok/{file.name}", file.read_bytes())
    for language in ("one", "two"):
        bucket.put(f"parallel/{language}.txt", "\n".join(f"{language} {line}" for line in range(9)).encode())
    trained = '[train]\nvocab_size = 600\nspecial_tokens = ["<|endoftext|>"]'
    text = remote.read_text().replace(trained, f'[tokenizer]\nuse = "{bucket.url}/tok/tokenizer.json"')
    parallel = ", ".join(f'{name} = "{bucket.url}/parallel/{name}.txt"' for name in ("one", "two"))
    audit = f'reference = "one"\nparallel = {{ {parallel} }}\ncompare_with = {{ use = "{bucket.url}/tok" }}\n'
    remote.write_text(f"{text}\n[audit]\n{audit}")
    tokmill.run(str(remote))
    assert tokmill.run(str(remote))["num_made"] == 0
    size = len(bucket.get("tok/tokenizer.json"))
    assert bucket.num_sent(key="tok/tokenizer.json") == 3 * size  # its digest once, and for two adoptions


def test_a_profile_is_drafted_from_a_bucket(tokmill: Tokmill, remote: Path, bucket: Bucket) -> None:
    done = tokmill("init", "drafted.toml", "--source", f"web={bucket.url}/many/*.jsonl")
    assert done.code == 0, done.err
    text = (tokmill.folder / "drafted.toml").read_text()
    assert f'files = ["{bucket.url}/many/*.jsonl"]' in text
    assert 'text_column = "text"' in text
    assert tokmill("plan", "drafted.toml").code == 0


WITHOUT_EXTRAS = """
import sys
sys.modules['s3fs'] = None  # as if it were not installed
from tokmill.flows.commands.main import main
code = main(sys.argv[1:])
assert not {'fsspec', 'botocore', 'aiohttp', 'asyncio'} & set(sys.modules)
sys.exit(code)
"""


def test_who_has_no_extra_sees_nothing_of_it(tmp_path: Path) -> None:
    name = write_project(tmp_path, num_documents=30)
    environment = clean_environment(TOKMILL_STORE=str(tmp_path / "store"))
    command, how = [sys.executable, "-c", WITHOUT_EXTRAS, "plan", name], {"cwd": tmp_path, "env": environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    assert done.returncode == 0, done.stderr
    (tmp_path / name).write_text((tmp_path / name).read_text().replace("many/*", "s3://bucket/many/*"))
    done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    assert "source 'many'" in done.stderr
    assert "pip install 'tokmill[s3]'" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("scheme", ["gs", "az"])
def test_what_one_machine_makes_another_finds(
    scheme: str,
    other_services: Callable[[str], OtherService],
    other_bucket: Callable[[str], str],
    tmp_path: Path,
) -> None:
    url, tokmill = f"{other_bucket(scheme)}/team", InThisProcess(tmp_path, clean_environment())
    hows = []
    for name in ("here", "there"):
        done = tokmill.run("smoke", "--store", url, TOKMILL_CACHE=str(tmp_path / name))
        hows.append({task["how"] for task in done["tasks"]})
    assert hows == [{"made"}, {"cached"}]
    verified = tokmill("store", "verify", "--deep", "--store", url, TOKMILL_CACHE=str(tmp_path / "third"))
    assert verified.code == 0, verified.err
