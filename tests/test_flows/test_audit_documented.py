"""docs/audit.md: its profile is valid, and its questions have answers in a store with two tokenizers."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_flows.corpora import write_project
from tests.test_flows.in_process import InProcess
from tokmill.flows.profile import load_profile
from tokmill.tasks.audit.stage import TABLES

LANGUAGES = {
    "eng": "The cat sits on the mat.\nA hat.\n",
    "deu": "Die Katze sitzt auf der Matte.\nEin Hut.\n",
    "rus": "Кошка сидит на коврике.\nШляпа.\n",
}


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return (checkout / "docs" / "audit.md").read_text("utf-8")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small profile and its text."""
    folder = tmp_path_factory.mktemp("audited")
    write_project(folder, num_documents=20)
    return folder


@pytest.fixture
def run(tmp_path: Path) -> InProcess:
    """Runs profiles, with a store of its own."""
    return InProcess.at(tmp_path / "store")


@pytest.fixture
def audited(run: InProcess, project: Path, tmp_path: Path) -> InProcess:
    """Two versions of a tokenizer of the project `own`, audited with parallel text."""
    for language, text in LANGUAGES.items():
        (tmp_path / f"{language}.txt").write_text(text, "utf-8")
    files = ", ".join(f'{language} = "{tmp_path / language}.txt"' for language in LANGUAGES)
    for size in (310, 300):
        run.run(project / "tiny.toml", "name=own", f"train.vocab_size={size}", f"audit.parallel={{{files}}}")
    return run


def questions(page: str) -> Iterator[str]:
    yield from re.findall(r"```sql\n(.*?)```", page, re.DOTALL)


@pytest.mark.slow
def test_every_question_has_an_answer(page: str, audited: InProcess) -> None:
    asked = list(questions(page))
    assert len(asked) == 4
    for question in asked:
        found = audited.store.catalog.query(question.replace("' the'", "'e'"))
        assert found, question
    worst = audited.store.catalog.query(asked[2])
    assert {row["language"] for row in worst} == set(LANGUAGES)
    lost = audited.store.catalog.query(asked[1])
    assert len(lost) == 10
    sizes = audited.store.catalog.query(asked[3])
    assert [row["vocab_size"] for row in sizes] == [300, 310]


def test_the_profile_is_valid(page: str, tmp_path: Path) -> None:
    profile, card = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "own.toml").write_text(f"{profile}\n{card}", "utf-8")
    loaded = load_profile(str(tmp_path / "own.toml"))
    assert loaded.tokenizer_card.reasons.keys() == {"temperature", "split_pattern"}
    assert loaded.audit.max_premium == {"deu": 2.0}
    assert loaded.audit.compare_with is not None


@pytest.mark.parametrize("table", TABLES)
def test_every_table_is_described(page: str, table: str) -> None:
    assert f"**`{table}`**" in page
