"""`tokmill report`: an audit as a page, with what was encoded since and with other tokenizers."""

from pathlib import Path

import pytest

from tests.test_flows.commands import Tokmill
from tests.test_flows.corpora import write_project
from tests.test_flows.in_process import InProcess
from tokmill import tokenizer


@pytest.fixture
def made(tokmill: Tokmill, tmp_path: Path) -> Tokmill:
    """A store with an audit, and a tokenizer in a folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    write_project(folder, num_documents=20)
    InProcess.at(tokmill.store).run(folder / "tiny.toml")
    tokenizer.train(["some other text"], vocab_size=260).save(tokmill.folder / "other")
    return tokmill


def test_the_page_has_suspects_and_other_tokenizers(made: Tokmill) -> None:
    done = made("report", "tiny", "--out", "report", "--compare", "other")
    assert done.code == 0, done.err
    page = (made.folder / "report" / "report.html").read_text("utf-8")
    assert "Audit of a byte_bpe tokenizer with 600 tokens" in page
    assert "Suspects, the most suspicious first" in page
    assert ">other<" in page
    assert list((made.folder / "report" / "charts").glob("*.svg"))
    again = made("report", "audit/tiny@v1", "--out", "report")
    assert again.code != 0
    assert "report exists; name a new folder" in again.err
    assert "is a packed; name an audit" in made("report", "packed/tiny", "--out", "new").err
    assert not (made.folder / "new").exists()
