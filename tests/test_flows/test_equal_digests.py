"""Artifacts are equal for any number of workers, order of hashes, Python and version of packages.

By default artifacts of two families are made twice by this Python; with TOKMILL_EVERYTHING every family by
every strategy in every format, and variants, also by the interpreters that TOKMILL_PYTHONS names.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.effort import EVERYTHING
from tests.test_flows.commands import clean_environment

OTHERS = [path for path in os.environ.get("TOKMILL_PYTHONS", "").split(os.pathsep) if path and EVERYTHING]
PROGRAM = Path(__file__).parents[1] / "every_artifact.py"
Held = dict[str, dict[str, str]]


def made(folder: Path, python: str, *, seed: int, workers: int) -> Held:
    """Make everything with an interpreter; return what each artifact holds."""
    options = ["--workers", str(workers), *(["--all"] if EVERYTHING else [])]
    done = subprocess.run(
        [python, str(PROGRAM), str(folder), *options],
        env=clean_environment(PYTHONHASHSEED=str(seed)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: Held = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Held:
    """What this Python makes, one task at a time."""
    return made(tmp_path_factory.mktemp("first"), sys.executable, seed=0, workers=1)


def differing(one: Held, other: Held) -> dict[str, list[str]]:
    """Return the artifacts that differ or are missing, with the files that do."""
    return {
        name: sorted(files)
        for name in sorted(one.keys() | other.keys())
        if (files := _files(one.get(name, {}), other.get(name, {})))
    }


def _files(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    return {name for name in one.keys() | other.keys() if one.get(name) != other.get(name)}


@pytest.mark.slow
@pytest.mark.parametrize("python", [sys.executable, *OTHERS])
def test_what_is_made_is_equal(first: Held, tmp_path: Path, python: str) -> None:
    again = made(tmp_path, python, seed=1, workers=3)

    assert differing(first, again) == {}
    kinds = Counter(name.partition("/")[0] for name in first)
    assert kinds["tokenizer"] >= (8 if EVERYTHING else 2)
    assert kinds["packed"] >= kinds["tokenizer"]
    assert kinds["encoded_shard"] > 2 * kinds["tokenizer"]
