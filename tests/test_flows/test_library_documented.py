"""docs/library.md, docs/experiments.md and the README: the code works, and gives what stands below it.

`python -m tests.test_flows.test_library_documented` writes into the pages what their code gives.
"""

import ast
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

CHECKOUT = Path(__file__).resolve().parents[2]
PAGE = CHECKOUT / "docs" / "library.md"
PAGES = (PAGE, CHECKOUT / "docs" / "experiments.md")
_CELL = re.compile(r"```python\n(?P<code>.*?)```\n(\n```text\n(?P<out>.*?)```\n)?", re.DOTALL)


def cells(page: str) -> Iterator[tuple[str, str | None]]:
    """Yield the code of each block, and what is said to be its output."""
    for cell in _CELL.finditer(page):
        yield cell["code"], cell["out"]


def executed(code: str, names: dict[str, Any]) -> str:
    """Execute a cell as a notebook does; return what it shows of its last expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<cell>", "exec"), names)
    if last is None:
        return ""
    assert isinstance(last, ast.Expr)
    return f"{eval(compile(ast.Expression(last.value), '<cell>', 'eval'), names)!r}\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
@pytest.mark.slow
def test_a_page_gives_what_it_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}

    for code, out in cells(page.read_text("utf-8")):
        assert executed(code, names) == (out or ""), code


def test_the_path_of_the_readme_works_in_under_fifteen_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = (CHECKOUT / "README.md").read_text("utf-8")
    (code,) = [code for code, _ in cells(readme) if "read_parquet" in code]
    texts = [f"Document {number} says number {number}." for number in range(200)]
    pd.DataFrame({"source": ["web", "code"] * 100, "text": texts}).to_parquet(tmp_path / "documents.parquet")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}

    executed(code, names)

    assert sum(bool(line.strip()) for line in code.splitlines()) < 15
    assert names["audit"].gate == "passed"
    assert names["tok"].encode("Document 7")
    assert len(names["packed"]) == names["arrays"]["input_ids"].shape[0] > 0
    assert (tmp_path / "packed" / "packed.json").is_file()


def _record() -> None:
    """Write what the code gives into the pages."""
    for page in PAGES:
        names: dict[str, Any] = {}
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            page.write_text(_CELL.sub(partial(_given, names), page.read_text("utf-8")), "utf-8")


def _given(names: dict[str, Any], cell: re.Match[str]) -> str:
    out = executed(cell["code"], names)
    return cell[0] if cell["out"] is None else f"```python\n{cell['code']}```\n\n```text\n{out}```\n"


if __name__ == "__main__":
    sys.exit(_record())
