"""docs/tokenizer.md: its code runs, and every option of a training is described."""

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


def test_every_option_of_a_training_is_a_key_of_a_profile_or_described(page: str, checkout: Path) -> None:
    keys = (checkout / "docs" / "profiles.md").read_text(encoding="utf-8")
    section = keys.partition("**`[train]`**")[2].partition("**`[")[0]
    described = {*re.findall(r"^- `(\w+)`", section, flags=re.MULTILINE), *re.findall(r"`(\w+)`", page)}
    assert sorted(TrainingOptions.__annotations__.keys() - described) == []
