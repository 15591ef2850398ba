"""docs/loading.md: its code runs, and its tables say what there is."""

import importlib.util
import re
from pathlib import Path

import pytest

from tests.test_tasks.packings import LENGTHS, packed_folder
from tokmill.tasks.loading import Field, PackedDataset, Remainder

BLOCKS = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return (checkout / "docs" / "loading.md").read_text(encoding="utf-8")


def blocks(page: str) -> list[str]:
    found = BLOCKS.findall(page)
    if importlib.util.find_spec("torch") is None:
        return [block for block in found if "torch" not in block]
    return found


def test_the_code_runs(page: str, tmp_path: Path) -> None:
    path = packed_folder(tmp_path, lengths=LENGTHS * 20, sequence_length=1024)
    dataset = PackedDataset(path, shuffle=True, seed=1)
    list(dataset)
    names = {"path": path, "state": dataset.state_dict()}
    assert len(blocks(page)) >= 3
    for block in blocks(page):
        scope = {**names, "PackedDataset": PackedDataset}
        exec(compile(block, "docs/loading.md", "exec"), scope)
        if "dataset.epoch" in block:
            assert scope["dataset"].epoch == 3


def test_every_field_and_every_remainder_has_a_row(page: str) -> None:
    rows = set(re.findall(r"^\| `(\w+)`", page, flags=re.MULTILINE)) - {"remainder"}
    assert set(Field.__args__) | {"sequence", "max_seqlen"} | set(Remainder.__args__) == rows
