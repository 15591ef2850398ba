"""A store from before the packages became one can be read and verified, and its artifacts are reused.

`tests/golden/store-before-one-package.zip` is what `tokmill run smoke --set train.vocab_size=400` left then.
Of its artifacts the mixture, the packed sequences, the card and the audit have risen versions since, and what
the audit reads was not measured then.
"""

import zipfile
from pathlib import Path

import pytest

from tests.test_flows.commands import Tokmill
from tokmill.flows.run.api import plan
from tokmill.tasks.formats.packed import PackedReader
from tokmill.tasks.store import Store
from tokmill.tokenizer import load

ASKED = ("smoke", "--set", "train.vocab_size=400")
# The corpus is made again, and its new record has other digests of Parquet files than the old one.
AFTER_INGEST = {"ingest", "count", "balance"}
RISEN = {*AFTER_INGEST, "train", "encode", "audit", "usage", "tokenizer_card", "mix", "pack", "card"}


@pytest.fixture
def stored(tmp_path: Path, checkout: Path) -> Path:
    """The store, in `store` of an empty folder."""
    with zipfile.ZipFile(checkout / "tests" / "golden" / "store-before-one-package.zip") as archive:
        archive.extractall(tmp_path / "store")
    return tmp_path / "store"


def test_everything_in_it_is_sound_and_can_be_read(stored: Path) -> None:
    store = Store.open(str(stored))
    assert store.verify(full=True) == []
    assert len(store.list()) == 17
    tok = load("tokenizer/smoke", store=stored)
    assert tok.decode(tok.encode("Text, текст, 文")) == "Text, текст, 文"
    assert len(PackedReader.open(store.path(store.resolve("packed/smoke")))) > 100


def test_a_plan_finds_all_that_has_no_risen_version(stored: Path) -> None:
    rows = plan("smoke", overrides=["train.vocab_size=400"], store=stored)
    assert {row.task.partition("[")[0] for row in rows if row.action == "run"} == RISEN
    assert len(rows) == 16  # whose shards are those of a corpus that is still to be made


@pytest.mark.slow
@pytest.mark.server
def test_a_run_uses_all_that_has_no_risen_version(stored: Path, tokmill: Tokmill) -> None:
    """Prefect's own memory of results names classes by the modules that they were in."""
    done = tokmill.run(*ASKED)
    made = {task["task"].partition("[")[0] for task in done["tasks"] if task["how"] == "made"}
    assert made == RISEN
    assert len(done["tasks"]) == 22
