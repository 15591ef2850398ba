"""The wheel, installed beside a project that has `tasks/`, `flows/` and a `tokenizer.py` of its own."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.server]

THEIRS = "raise AssertionError('a module of the project was imported in place of one of tokmill')\n"
SCRIPT = """
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import tokmill
from tokmill.tasks.loading import PackedDataset

sys.path.insert(0, ".")  # as a training script's folder is


def count(tok, text):
    return tok.count_tokens(text)


if __name__ == "__main__":
    how = {"overrides": ["train.vocab_size=300"], "store": "store"}
    assert {row.action for row in tokmill.plan("smoke", **how)} == {"cached"}
    assert tokmill.run("smoke", **how).num_made == 0
    tok = tokmill.load("tokenizer/smoke", store="store")
    text = "a text, ein Text"
    assert tok.decode(tok.encode(text)) == text
    with PackedDataset("packed/smoke", store="store", batch_size=4) as dataset:
        assert sum(len(batch["input_ids"]) for batch in dataset) == dataset.num_sequences
    assert tokmill.train([text] * 9, vocab_size=260).vocab_size == 260
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        assert pool.submit(count, tok, text).result() == tok.count_tokens(text)
    print("all of it works")
"""


def pip(*arguments: str, checkout: Path, **variables: str) -> None:
    command = [sys.executable, "-m", "pip", *arguments]
    subprocess.run(command, cwd=checkout, env=os.environ | variables, check=True, capture_output=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory, checkout: Path) -> Path:
    """The wheel that pip builds from the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    pip("wheel", "--no-deps", f"--wheel-dir={folder}", ".", checkout=checkout)
    (made,) = folder.glob("*.whl")
    return made


def installed(wheel: Path, environment: Path) -> Path:
    """Make an environment with the wheel and all packages of this one but tokmill; return its Python."""
    venv.create(environment, with_pip=False)
    (packages,) = environment.glob("lib/python*/site-packages")
    # a path of a .pth file is searched, but its own .pth files, of which our checkout is one, are not read
    packages.joinpath("requirements.pth").write_text(sysconfig.get_path("purelib") + "\n")
    zipfile.ZipFile(wheel).extractall(packages)
    return environment / "bin" / "python"


def test_the_wheel_holds_one_package_with_everything_in_it(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"tokmill"}
    expected = {"py.typed", "profiles/smoke.toml", "profiles/samples/de.txt", "flows/prefect/flow.py"}
    assert {f"tokmill/{name}" for name in expected} <= names


def test_a_project_with_names_of_its_own_uses_all_of_it(
    wheel: Path, tmp_path: Path, prefect_server: dict[str, str]
) -> None:
    environment, project = tmp_path / "venv", tmp_path / "project"
    python = installed(wheel, environment)
    for name in ("flows", "tasks", "profiles", "tests"):
        (project / name).mkdir(parents=True)
        (project / name / "__init__.py").write_text(THEIRS)
    (project / "tokenizer.py").write_text(THEIRS)
    (project / "train.py").write_text(SCRIPT)
    variables = {**prefect_server, "PYTHONPATH": str(project), "TOKMILL_STORE": "store"}

    def said(*arguments: str) -> str:
        done = subprocess.run(
            [python, *arguments], cwd=project, env=variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = said("-c", "import tokmill; print(tokmill.__file__)")
    assert where.startswith(str(environment)), "the environment imports the checkout"
    run = said("-m", "tokmill", "run", "smoke", "--set", "train.vocab_size=300")
    assert "packed/smoke@v1" in run
    assert "packed/smoke" in said("-m", "tokmill", "ls")
    assert said("train.py") == "all of it works\n"


def test_a_wheel_with_machine_code_compiles_nothing_on_a_new_machine(tmp_path: Path, checkout: Path) -> None:
    pip("install", f"--target={tmp_path / 'tools'}", "hatchling<2", checkout=checkout)
    building = {"HATCH_BUILD_HOOK_ENABLE_CUSTOM": "1", "PYTHONPATH": str(tmp_path / "tools")}
    command = ("wheel", "--no-deps", "--no-build-isolation", f"--wheel-dir={tmp_path}", ".")
    pip(*command, checkout=checkout, **building)
    (wheel,) = tmp_path.glob("*.whl")
    assert "-none-any" not in wheel.name
    python, cache = installed(wheel, tmp_path / "venv"), tmp_path / "cache"
    run = [python, "-m", "tokmill", "run", "smoke", "--no-prefect", "--store", str(tmp_path / "store")]
    subprocess.run(run, cwd=tmp_path, env=os.environ | {"TOKMILL_KERNEL_CACHE": str(cache)}, check=True)
    assert list(cache.rglob("*.lock")), "the run used the cache"
    assert not list(cache.rglob("*.nbc")), "the run compiled kernels"


def test_the_face_offers_what_it_lists_and_costs_nothing_until_it_is_used() -> None:
    code = (
        "import sys, tokmill\n"
        "heavy = {'numpy', 'numba', 'prefect', 'duckdb', 'pyarrow', 'pydantic'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "assert all(getattr(tokmill, name) is not None for name in tokmill.__all__)\n"
        "assert set(tokmill.__all__) <= set(dir(tokmill))\n"
        "assert not hasattr(tokmill, 'nothing')\n"
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ, check=True)
