"""The guides are true: their commands print, their code gives, and their profiles do what stands there.

`python -m tests.test_flows.test_documents` writes into docs/library.md and docs/experiments.md what their
code gives; `python docs/refresh.py PAGE` what the commands of a page print.
"""

import ast
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.test_flows.corpora import InProcess, write_project
from tokmill.flows.profile import load_profile
from tokmill.tasks.audit.stage import TABLES
from tokmill.tasks.mixing.params import MixParams
from tokmill.tasks.mixing.quotas import settle

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = DOCS / "library.md"
PAGES = (PAGE, DOCS / "experiments.md")
CELL = re.compile(r"```python\n(?P<code>.*?)```\n(\n```text\n(?P<out>.*?)```\n)?", re.DOTALL)
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w-]+\.\w+)\n")
OF_THE_MOMENT = (
    (r"/[0-9a-f]{16}/", "/…/"),  # which the version of any stage before may change
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}\b", "ID"),
    (r"\b[0-9a-f]{12}\b", "DIGEST"),
    (r"\b[0-9a-f]{8}\b", "ID"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "TIME"),
    (r"\b(\d+ min )?\d+(\.\d)? s\b", "SPAN"),
    (r"\b\d+(\.\d)? [KM]?i?B\b", "SIZE"),  # records name the machine, and all packages
    (r"\bregex \d[\d.]* →", "regex VERSION →"),
    (r"─+|[ \t]+", " "),  # as wide as what was replaced
    (r" +$", ""),
)


def text_of(page: str) -> str:
    return (DOCS / f"{page}.md").read_text(encoding="utf-8")


def blocks(page: str, *kinds: str) -> list[str]:
    return [text for kind, text in BLOCK.findall(text_of(page)) if kind in kinds]


def cells(page: str) -> Iterator[tuple[str, str | None]]:
    """Yield the code of each block, and what is said to be its output."""
    for cell in CELL.finditer(page):
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


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_gives_what_the_page_says(page: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code, out in cells(page.read_text("utf-8")):
        assert executed(code, names) == (out or ""), code


def test_the_path_of_the_readme_works_in_under_fifteen_lines(tmp_path: Path, monkeypatch) -> None:
    readme = (DOCS.parent / "README.md").read_text("utf-8")
    (code,) = [code for code, _ in cells(readme) if "read_parquet" in code]
    texts = [f"Document {number} says number {number}." for number in range(200)]
    pd.DataFrame({"source": ["web", "code"] * 100, "text": texts}).to_parquet(tmp_path / "documents.parquet")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    executed(code, names)
    assert sum(bool(line.strip()) for line in code.splitlines()) < 15
    assert names["audit"].gate == "passed"
    assert len(names["packed"]) == names["arrays"]["input_ids"].shape[0] > 0
    assert (tmp_path / "packed" / "packed.json").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("page", ["experiments", "vocabulary", "mixing"])
def test_commands_print_what_the_page_says(page: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    monkeypatch.delenv("TOKMILL_STORE", raising=False)
    from refresh import refreshed  # noqa: PLC0415 - a script beside the pages

    assert lasting(refreshed(text_of(page), tmp_path)) == lasting(text_of(page)), (
        f"run: python docs/refresh.py docs/{page}.md"
    )


def lasting(text: str) -> list[str]:
    """Return the lines without what every run gives anew: ids, digests, times."""
    for pattern, shown in OF_THE_MOMENT:
        text = re.sub(pattern, shown, text, flags=re.MULTILINE)
    return text.splitlines()


LANGUAGES = {"eng": "A cat on a mat.\nA hat.\n", "deu": "Eine Katze.\nEin Hut.\n", "rus": "Кошка.\nШляпа.\n"}


@pytest.mark.slow
def test_every_question_of_the_guide_to_the_audit_has_an_answer(tmp_path: Path) -> None:
    """In a store with two versions of a tokenizer, audited with parallel text."""
    write_project(tmp_path / "project", num_documents=20)
    for language, text in LANGUAGES.items():
        (tmp_path / f"{language}.txt").write_text(text, "utf-8")
    files = ", ".join(f'{language} = "{tmp_path / language}.txt"' for language in LANGUAGES)
    run = InProcess.at(tmp_path / "store")
    for size in (310, 300):
        settings = (f"train.vocab_size={size}", f"audit.parallel={{{files}}}")
        run.run(tmp_path / "project" / "tiny.toml", "name=own", *settings)
    _, lost, worst, sizes = (
        run.store.catalog.query(each.replace("' the'", "'e'")) for each in blocks("audit", "sql")
    )
    assert ({row["language"] for row in worst}, len(lost)) == (set(LANGUAGES), 10)
    assert [row["vocab_size"] for row in sizes] == [300, 310]


def test_the_guide_to_the_audit_has_a_valid_profile_and_every_table(tmp_path: Path) -> None:
    profile, card = blocks("audit", "toml")
    (tmp_path / "own.toml").write_text(f"{profile}\n{card}", "utf-8")
    loaded = load_profile(str(tmp_path / "own.toml"))
    assert loaded.tokenizer_card.reasons.keys() == {"temperature", "split_pattern"}
    assert loaded.audit.max_premium == {"deu": 2.0}
    assert loaded.audit.compare_with is not None
    assert [table for table in TABLES if f"**`{table}`**" not in text_of("audit")] == []


def test_the_other_profiles_of_the_guide_to_mixing_are_feasible_and_its_table_is_true(tmp_path: Path) -> None:
    sources = "".join(f'[sources.{name}]\nfiles = ["x"]\n' for name in ("web", "code", "papers"))
    others = [text for text in blocks("mixing", "toml") if not FILE.match(text)]
    assert len(others) >= 3
    for text in others:
        (tmp_path / "own.toml").write_text(f"{sources}{text}", encoding="utf-8")
        params = load_profile(tmp_path / "own.toml").mix_params()
        settle(params, dict.fromkeys(["code", "papers", "web"], 10**12))
    row = r"^\| (`(?:method|weights|proportions) =.*?) \| .*? \| (.*% \| [\d,]+) \|$"
    rows = re.findall(row, text_of("mixing"), re.MULTILINE)
    assert len(rows) == 5
    for rule, shown in rows:
        given = tomllib.loads("\n".join(re.findall(r"`(.*?)`", rule)))
        quotas = settle(MixParams(**given), {"latin": 8804, "cyrillic": 3443, "cjk": 5150}).quotas.values()
        shares = [f"{float(quota.share):.1%}".replace("%", " %") for quota in quotas]
        assert " | ".join([*shares, f"{sum(quota.num_tokens for quota in quotas):,}"]) == shown


def _record() -> None:
    """Write what the code gives into the pages."""
    for page in PAGES:
        names: dict[str, Any] = {}
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            page.write_text(CELL.sub(partial(_given, names), page.read_text("utf-8")), "utf-8")


def _given(names: dict[str, Any], cell: re.Match[str]) -> str:
    out = executed(cell["code"], names)
    return cell[0] if cell["out"] is None else f"```python\n{cell['code']}```\n\n```text\n{out}```\n"


if __name__ == "__main__":
    sys.exit(_record())
