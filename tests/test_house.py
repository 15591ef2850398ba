"""The house rules that tools can check: style, types and who may import whom."""

import subprocess
import sys
from pathlib import Path

import pytest

CHECKS = {
    "lint": [sys.executable, "-m", "ruff", "check", "."],
    "format": [sys.executable, "-m", "ruff", "format", "--check", "."],
    "types": [sys.executable, "-m", "mypy"],
    "layers": [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command; lint_imports_command()",
    ],
}


@pytest.mark.parametrize("check", CHECKS)
def test_the_house_is_in_order(check: str, checkout: Path) -> None:
    done = subprocess.run(CHECKS[check], cwd=checkout, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
