"""The house rules that tools can check: style, types and who may import whom."""

import subprocess
import sys
from collections import defaultdict
from graphlib import TopologicalSorter
from itertools import permutations
from pathlib import Path

import grimp
import pytest

from tokmill.tokenizer.pipeline.families import FAMILIES

FOLDERS = {".ci", "benchmarks", "docs", "flows", "profiles", "tasks", "tests", "tokenizer", "tokmill"}
FILES = {".gitignore", "LICENSE", "hatch_build.py", "prefect.yaml", "pyproject.toml"}
FILES |= {f"{name}.md" for name in ("CHANGELOG", "CONTRIBUTING", "README", "SECURITY")}
CHECKS = {
    "lint": [sys.executable, "-m", "ruff", "check", "."],
    "format": [sys.executable, "-m", "ruff", "format", "--check", "."],
    "types": [sys.executable, "-m", "mypy"],
    "layers": [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
    ],
    "weight": [sys.executable, "benchmarks/house.py", "--check"],
}


@pytest.mark.parametrize("check", CHECKS)
def test_the_house_is_in_order(check: str, checkout: Path) -> None:
    done = subprocess.run(CHECKS[check], cwd=checkout, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_strays_into_the_repository(checkout: Path) -> None:
    """A store, or what a test left, is soon added with the rest."""
    listed = subprocess.run(["git", "ls-files"], cwd=checkout, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"no repository of git: {listed.stderr.strip()}")
    names = {name.partition("/")[0] for name in listed.stdout.splitlines()}

    assert names == FOLDERS | FILES


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    """Which module imports which, those within functions included."""
    return grimp.build_graph("tokmill", cache_dir=None)


def test_families_know_nothing_of_each_other(graph: grimp.ImportGraph) -> None:
    homes = sorted({module.rpartition(".")[0] for module in FAMILIES.values()})

    for family, other in permutations(homes, 2):
        assert not graph.chain_exists(importer=family, imported=other, as_packages=True), (family, other)


def test_our_layer_over_numba_knows_nothing_of_what_it_compiles(graph: grimp.ImportGraph) -> None:
    jit = "tokmill.tokenizer.jit"
    own = {jit, *graph.find_children(jit)}

    for module in own:
        ours = {
            name for name in graph.find_modules_directly_imported_by(module) if name.startswith("tokmill")
        }
        assert ours <= own, (module, ours - own)


def test_a_system_that_follows_runs_needs_nothing_of_another() -> None:
    """Each is an extra; the tests' environment has several of them, so nothing would be missing there."""
    graph = grimp.build_graph("tokmill", include_external_packages=True, cache_dir=None)
    of_systems = {"openlineage": "lineage_events", "mlflow": "mlflow_runs"}
    needed = {
        system: graph.find_upstream_modules(f"tokmill.flows.tracking.{module}")
        for system, module in of_systems.items()
    }

    for system, other in permutations(of_systems):
        assert system in needed[system]
        assert other not in needed[system], (system, other)


def test_no_two_folders_import_each_other(graph: grimp.ImportGraph) -> None:
    """However long the way round: a folder is understood once those below it are."""
    packages = {module for module in graph.modules if graph.find_children(module)}
    imports: dict[str, set[str]] = defaultdict(set)
    for module in graph.modules - {"tokmill", "tokmill.__main__"}:
        for imported in graph.find_modules_directly_imported_by(module):
            imports[_folder(module, packages)].add(_folder(imported, packages))
    sorter = TopologicalSorter({folder: known - {folder} for folder, known in imports.items()})

    assert list(sorter.static_order())  # raises CycleError, with the folders of a cycle


def _folder(module: str, packages: set[str]) -> str:
    return module if module in packages else module.rpartition(".")[0]
