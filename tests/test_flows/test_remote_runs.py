"""Whole runs from object storage: the artifacts of a run from files, and commands that read text again."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.object_server import Bucket
from tests.test_flows.commands import clean_environment
from tests.test_flows.corpora import write_project
from tests.test_flows.in_process import InProcess
from tests.test_flows.test_direct import digests
from tokmill.flows.commands.main import main

pytestmark = [pytest.mark.objects, pytest.mark.slow]


HELD_OUT = "holdout.share=0.2"


def copy_into(bucket: Bucket, folder: Path) -> None:
    """Put the texts of a project into a bucket."""
    for path in sorted(folder.glob("*/*")):
        if path.parent.name in ("many", "few"):
            bucket.put(path.relative_to(folder).as_posix(), path.read_bytes())


def write_remote_profile(folder: Path, bucket: Bucket, name: str) -> Path:
    """Write a project's profile with URLs in place of its patterns."""
    text = (folder / name).read_text()
    for source in ("many", "few"):
        text = text.replace(f'"{source}/', f'"{bucket.url}/{source}/')
    path = folder / "remote" / name
    path.parent.mkdir()
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A project that was run from its files."""
    folder = tmp_path_factory.mktemp("project")
    name = write_project(folder)
    InProcess.at(folder / "store").run(folder / name, HELD_OUT)
    return folder, name


@pytest.fixture
def remote(project: tuple[Path, str], bucket: Bucket, tmp_path: Path) -> Path:
    """The same project with its texts in a bucket; returns its profile."""
    folder, name = project
    copy_into(bucket, folder)
    (tmp_path / name).write_text((folder / name).read_text())
    return write_remote_profile(tmp_path, bucket, name)


def test_artifacts_are_those_of_a_run_from_files(
    project: tuple[Path, str], remote: Path, bucket: Bucket, tmp_path: Path
) -> None:
    """Those held out for validation, too; the service fails now and then, which changes nothing."""
    for kind in ("answer", "cut", "lose"):
        bucket.fault(kind, method="GET", times=3, num_bytes=100, skip=2)  # type: ignore[arg-type]

    InProcess.at(tmp_path / "store").run(remote, HELD_OUT)

    assert digests(tmp_path / "store") == digests(project[0] / "store")


@pytest.fixture
def tokmill(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run a command on a store of its own; gives exit code, standard output and standard error."""
    monkeypatch.setenv("TOKMILL_STORE", str(tmp_path / "store"))
    monkeypatch.setenv("COLUMNS", "110")
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


WITH_IDS = ("--set", 'sources.many.id_column="id"', "--no-prefect")


def test_commands_read_the_text_by_its_url(
    tokmill: Any, remote: Path, bucket: Bucket, tmp_path: Path
) -> None:
    code, _, err = tokmill("run", remote, *WITH_IDS)
    assert code == 0, err

    before = bucket.num_sent()
    assert "everything is up to date" in tokmill("plan", remote, *WITH_IDS[:2])[1]
    assert bucket.num_sent() - before <= 2 * (256 << 10)  # a look at the beginning of each source
    bucket.put("many/part-1.jsonl", bucket.get("many/part-1.jsonl"))  # written again, with the same bytes
    document = json.loads(tokmill("run", remote, *WITH_IDS, "--rehash", "--json")[1])
    assert document["num_made"] == 0

    code, out, err = tokmill("trace", "packed/tiny", "-s", 0, "--json")
    assert code == 0, err
    pieces = json.loads(out)["pieces"]
    assert all(piece["path"].startswith(f"{bucket.url}/") for piece in pieces)

    code, out, err = tokmill(
        "trace", "packed/tiny", "-d", "many:1-3", "--json"
    )  # the id is read from the text
    assert code == 0, err
    (tmp_path / "list.txt").write_text("many:1-3\n")
    code, out, err = tokmill("data", "takedown", "packed/tiny", "-d", "list.txt", "--json")
    assert code == 0, err

    code, _, err = tokmill("trace", "packed/tiny", "-d", "many:1-3", "--root", f"many={bucket.url}/moved")
    assert code != 0
    assert f"{bucket.url}/moved/part-0.jsonl cannot be read" in err.replace("\n", " ")


def test_a_profile_names_tokenizers_and_parallel_text_by_url(
    project: tuple[Path, str], remote: Path, bucket: Bucket, tokmill: Any
) -> None:
    (exported,) = (project[0] / "store" / "tokenizer").glob("*/exports/huggingface")
    for file in exported.iterdir():
        bucket.put(f"tok/{file.name}", file.read_bytes())
    for language in ("one", "two"):
        bucket.put(f"parallel/{language}.txt", "\n".join(f"{language} {line}" for line in range(9)).encode())
    text = remote.read_text().replace(
        '[train]\nvocab_size = 600\nspecial_tokens = ["<|endoftext|>"]',
        f'[tokenizer]\nuse = "{bucket.url}/tok/tokenizer.json"',
    )
    audit = f"""
[audit]
reference = "one"
parallel = {{ one = "{bucket.url}/parallel/one.txt", two = "{bucket.url}/parallel/two.txt" }}
compare_with = {{ use = "{bucket.url}/tok" }}
"""
    remote.write_text(text + audit)

    code, _, err = tokmill("run", remote, "--no-prefect", "--json")
    assert code == 0, err
    assert json.loads(tokmill("run", remote, "--no-prefect", "--json")[1])["num_made"] == 0
    size = len(bucket.get("tok/tokenizer.json"))
    assert bucket.num_sent(key="tok/tokenizer.json") == 3 * size  # its digest once, and for two adoptions


def test_a_profile_is_drafted_from_a_bucket(
    tokmill: Any, remote: Path, bucket: Bucket, tmp_path: Path
) -> None:
    code, _, err = tokmill("init", "drafted.toml", "--source", f"web={bucket.url}/many/*.jsonl")

    assert code == 0, err
    text = (tmp_path / "drafted.toml").read_text()
    assert f'files = ["{bucket.url}/many/*.jsonl"]' in text
    assert 'text_column = "text"' in text
    assert tokmill("plan", "drafted.toml")[0] == 0


_WITHOUT_EXTRAS = """
import sys
sys.modules['s3fs'] = None  # as if it were not installed
from tokmill.flows.commands.main import main
code = main(sys.argv[1:])
assert not {'fsspec', 'botocore', 'aiohttp', 'asyncio'} & set(sys.modules)
sys.exit(code)
"""


def without_extras(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run a command in a process that has no library for object storage, and fail if it imports any other."""
    environment = clean_environment(TOKMILL_STORE=str(folder / "store"))
    command = [sys.executable, "-c", _WITHOUT_EXTRAS, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_who_has_no_extra_sees_nothing_of_it(tmp_path: Path) -> None:
    name = write_project(tmp_path)
    done = without_extras(tmp_path, "plan", name)
    assert done.returncode == 0, done.stderr

    (tmp_path / name).write_text((tmp_path / name).read_text().replace("many/*", "s3://bucket/many/*"))
    done = without_extras(tmp_path, "plan", name)

    assert "source 'many'" in done.stderr
    assert "pip install 'tokmill[s3]'" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
