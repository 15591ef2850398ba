"""A stage's output changes with its version only: golden digests over fixed texts; `golden` has the rules.

Nor does it change with a platform's logarithms and the like, which differ in the last places: by up to 4
units, as the vector units of processors may. Kernels that use these are tested in
`tests/test_tokenizer/test_other_platforms.py`; square roots are exact everywhere.
"""

import math
import pkgutil
from collections.abc import Callable
from importlib import import_module
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from tests.test_tasks.golden import all_stages, current_digests, golden_digests
from tokmill import tasks, tokenizer
from tokmill.tasks.store import Store

_INEXACT = ("log", "log2", "log10", "log1p", "exp", "exp2", "expm1", "sin", "cos", "pow", "power")
REFRESH = "then `python -m tests.test_tasks.golden`"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("golden")


@pytest.fixture(scope="module")
def current(folder):
    return current_digests(folder)


def test_every_stage_has_golden_digests():
    assert sorted(golden_digests()) == sorted(all_stages())


@pytest.mark.parametrize("verb", sorted(all_stages()))
def test_output_changes_only_with_a_version(current, verb):
    golden, found = golden_digests()[verb], current[verb]
    kept, now = golden["artifacts"], found["artifacts"]
    changed = sorted(
        {
            name
            for before, after in zip(kept, now, strict=False)
            for name in before | after
            if before.get(name) != after.get(name)
        }
    )
    if len(kept) != len(now):
        changed.append(f"{len(now)} artifacts instead of {len(kept)}")
    if found["version"] != golden["version"]:
        pytest.fail(f"{verb}: VERSION {found['version']} has no golden digests yet; review, {REFRESH}")
    if changed:
        pytest.fail(
            f"{verb} gives another {', '.join(changed)} than before under the same VERSION; if that is "
            f"meant, raise VERSION (`version` in the stage's module), {REFRESH}"
        )


@pytest.mark.usefixtures("current")
def test_every_end_of_an_account_is_documented(folder, checkout):
    page = (checkout / "docs" / "formats.md").read_text(encoding="utf-8")
    listed = page.partition("## What can become of a document")[2]
    query = "SELECT DISTINCT split_part(name, ':', 1) AS first, name FROM accounts WHERE side = 'became'"
    rows = Store.open(folder / "store").catalog.query(query)
    ends = {"quarantined:REASON" if row["first"] == "quarantined" else row["name"] for row in rows}
    assert len(ends) > 10
    assert sorted(end for end in ends if f"`{end}`" not in listed) == []


@pytest.mark.slow
def test_results_that_differ_in_the_last_places_change_nothing(tmp_path, monkeypatch, current):
    generator, calls = np.random.default_rng(7), []

    def moved(function: Callable) -> Callable:
        def call(*given, **more):
            found = function(*given, **more)
            calls.append(function.__name__)
            steps = generator.integers(-4, 5, np.shape(found))
            return np.where(np.isfinite(found), found + steps * np.spacing(np.abs(found)), found)[()]

        return call

    for name, module in our_modules():
        inexact = {each: moved(getattr(module, each)) for each in _INEXACT if hasattr(module, each)}
        monkeypatch.setattr(name, SimpleNamespace(**{**vars(module), **inexact}))

    assert current_digests(tmp_path) == current
    assert {"log", "log2"} <= set(calls)


def our_modules() -> list[tuple[str, ModuleType]]:
    """Return where our modules, other than kernels, name `math` and numpy."""
    packages = [pkgutil.walk_packages(each.__path__, f"{each.__name__}.") for each in (tasks, tokenizer)]
    names = [module.name for package in packages for module in package]
    left_out = (".kernels", ".jit", ".torch_dataset")
    plain = [name for name in names if not any(part in name for part in left_out)]
    return [
        (f"{name}.{each}", value)
        for name in plain
        for each, value in vars(import_module(name)).items()
        if value is math or value is np
    ]
