"""The fork server of commands."""

import sys
from functools import partial
from pathlib import Path

import pytest

from tests.test_flows.commands import Tokmill
from tests.test_flows.forking import run_forked

pytestmark = pytest.mark.server


def note_modules(path: Path) -> None:
    """Write which modules a process has at its beginning."""
    path.write_text("\n".join(sys.modules), encoding="utf-8")


def test_a_forked_command_has_its_modules_from_the_beginning(tokmill: Tokmill) -> None:
    """The fork server says nothing if it cannot import them; each run would then need seconds more."""
    noted = tokmill.folder / "modules"

    code, _, _ = run_forked(
        ["profiles"], tokmill.folder, tokmill.environment, 60, partial(note_modules, noted)
    )

    late = {
        "duckdb",
        "numba",
        "pandas",
        "prefect.task_engine",
        "tokmill.flows.run.flow",
        "tokmill.tasks.train.stage",
    }
    assert code == 0
    assert late <= set(noted.read_text("utf-8").splitlines())
