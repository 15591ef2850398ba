"""`tokmill report` and `tokmill vocab suspects`: what was encoded since, and what a model has learned."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.test_flows.commands import Tokmill
from tokmill import tokenizer
from tokmill.tasks.store import Store


@pytest.fixture
def made(project: Tokmill) -> Tokmill:
    """A store with an audit, and a tokenizer in a folder."""
    tokenizer.train(["some other text"], vocab_size=260).save(project.folder / "other")
    return project


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
    assert "not audit or sweep" in made("report", "packed/tiny", "--out", "new").err
    assert not (made.folder / "new").exists()


def test_an_earlier_version_has_its_own_suspects(made: Tokmill) -> None:
    made.run("tiny.toml", "--set", "train.vocab_size=500")
    made.run("tiny.toml", "--set", "name=again")  # all of it is cached
    first = Store.open(made.store).resolve("audit/tiny@v1").fingerprint
    for number, named in enumerate((first[:12], "audit/again")):
        done = made("report", named, "--out", f"report{number}")
        assert done.code == 0, done.err
        page = (made.folder / f"report{number}" / "report.html").read_text("utf-8")
        assert "with 600 tokens" in page
        assert "Suspects, the most suspicious first" in page


@pytest.fixture
def model(made: Tokmill) -> str:
    """A model whose row of the first suspect is the shortest."""
    first = made("vocab", "suspects", "tiny", "--json").document["suspects"][0]["token_id"]
    rows = np.random.default_rng(1).normal(size=(600, 8)).astype(np.float32)
    rows[first] *= 1e-3
    save_file({"embed_tokens.weight": rows, "lm_head.weight": rows.copy()}, made.folder / "m.safetensors")
    return "m.safetensors"


def test_suspects_stand_beside_what_a_model_learned(made: Tokmill, model: str) -> None:
    found = made("vocab", "suspects", "usage/tiny", "--embeddings", model, "--json", "--limit", "3").document
    first, *_ = found["suspects"]
    assert (first["rank"], first["indicator_rank"], len(found["suspects"])) == (1, 1, 3)
    assert found["least_trained"][0]["suspect_rank"] == 1
    assert found["num_suspects"] > 3
    shown = made("vocab", "suspects", "tiny", "--embeddings", model).out
    assert "Least trained in the model, by norm" in shown
    page = made("report", "tiny", "--out", "report", "--embeddings", model)
    assert page.code == 0, page.err
    written = (made.folder / "report" / "report.html").read_text("utf-8")
    assert "Tokens that the model has learned least" in written
    assert "fewer than 50 suspects" in written


def test_suspects_stand_in_running_text(made: Tokmill) -> None:
    """None of these occurs: longer tokens took the words that hold them, and those do."""
    found = made("vocab", "suspects", "tiny", "--json", "--limit", "200").document["suspects"]
    shown = [row for row in found if row["context"]]
    assert len(shown) > len(found) / 2
    assert all(f"⟦{row['example']}⟧" in row["context"] for row in shown)


def test_a_model_of_another_vocabulary_is_refused_before_anything_is_written(made: Tokmill) -> None:
    save_file({"embed_tokens.weight": np.ones((10, 4), np.float32)}, made.folder / "small.safetensors")
    for command in (("vocab", "suspects", "tiny"), ("report", "tiny", "--out", "new")):
        done = made(*command, "--embeddings", "small.safetensors")
        assert done.code == 1
        assert "10 rows" in done.err
    assert not (made.folder / "new").exists()
    assert "give both, or neither" in made("vocab", "suspects", "tiny", "--tensor", "wte").err
    assert "name usage/NAME" in made("vocab", "suspects", "audit/tiny").err
