"""docs/tokenizer.md: its code runs, and its table lists every option of a training."""

import re
from pathlib import Path

import pytest

from tokmill.tokenizer import TrainingOptions

BLOCKS = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return (checkout / "docs" / "tokenizer.md").read_text(encoding="utf-8")


def test_the_code_runs_in_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKMILL_STORE", str(tmp_path / "store"))
    scope: dict[str, object] = {}
    found = BLOCKS.findall(page)
    assert len(found) >= 7
    for block in found:
        exec(compile(block, "docs/tokenizer.md", "exec"), scope)


def test_every_option_of_a_training_has_a_row(page: str) -> None:
    rows = re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE)
    assert sorted(rows) == sorted(TrainingOptions.__annotations__)
