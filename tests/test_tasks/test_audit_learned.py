"""Suspects beside a model: indicators and places by hand, and what cannot be compared."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import save_file

from tests.test_tasks.audited import write_audit
from tokmill import tokenizer
from tokmill.tasks.audit.learned import MOST, compare_with_model
from tokmill.tasks.audit.report import write_report
from tokmill.tasks.audit.suspects import find_suspects
from tokmill.tasks.audit.tokens import describe_tokens
from tokmill.tokenizer import Tokenizer

BYTES = {bytes([value]): value for value in range(256)}


@pytest.fixture(scope="module")
def made() -> tuple[Tokenizer, pa.Table, pa.Table]:
    """A tokenizer, its tokens, and its suspects where only `ab` and single bytes occur."""
    tok = Tokenizer.from_vocab(
        BYTES | {b"ab": 256, b"xyz": 258, b"xy": 257}, [(b"a", b"b"), (b"x", b"y"), (b"xy", b"z")]
    )
    tokens = describe_tokens(tok)
    occurrences = np.full(259, 1000, np.uint64)
    occurrences[[257, 258]] = 0
    training = np.where(occurrences == 0, 500, 1000).astype(np.uint64)
    return tok, tokens, find_suspects(tokens, occurrences, training={"web": training})


def matrix(path: Path, rows: np.ndarray) -> Path:
    save_file({"embed_tokens.weight": rows, "lm_head.weight": rows.copy()}, path)
    return path


def lengths(**short: float) -> np.ndarray:
    """Rows of length 10, but those that are named by id."""
    rows = np.full((259, 2), [0, 10], np.float32)
    for token, length in short.items():
        rows[int(token[1:])] = [length, 0]
    return rows


def test_places_by_hand(made: tuple[Tokenizer, pa.Table, pa.Table], tmp_path: Path) -> None:
    _, tokens, suspects = made
    found = compare_with_model(tokens, suspects, matrix(tmp_path / "m.safetensors", lengths(_258=1, _65=2)))
    assert found.indicator == "norm"
    by_text = {row["text"]: row for row in found.suspects.to_pylist()}
    assert (by_text["xyz"]["indicator"], by_text["xyz"]["indicator_rank"]) == (1.0, 1)
    first, second = found.least.slice(0, 2).to_pylist()
    assert (first["text"], first["suspect_rank"]) == ("xyz", by_text["xyz"]["rank"])
    assert (second["text"], second["suspect_rank"], second["num_occurrences"]) == ("A", None, None)
    assert len(found.least) == MOST


def test_what_is_not_finite_is_marked_and_never_nan(
    made: tuple[Tokenizer, pa.Table, pa.Table], tmp_path: Path
) -> None:
    _, tokens, suspects = made
    rows = lengths(_258=np.nan)
    found = compare_with_model(tokens, suspects, matrix(tmp_path / "m.safetensors", rows))
    by_text = {row["text"]: row for row in found.suspects.to_pylist()}
    assert by_text["xyz"]["indicator"] is None
    assert by_text["xyz"]["indicator_rank"] == 259
    for table in (found.suspects, found.least, found.agreement):
        for column in table.columns:
            if pa.types.is_floating(column.type):
                assert not np.isnan(column.drop_null().to_numpy()).any()


def test_a_model_in_several_files_and_with_names_of_its_own(
    made: tuple[Tokenizer, pa.Table, pa.Table], tmp_path: Path
) -> None:
    _, tokens, suspects = made
    save_file({"in": lengths(_258=1)}, tmp_path / "a.safetensors")
    save_file({"out": lengths()}, tmp_path / "b.safetensors")
    index = '{"metadata": {}, "weight_map": {"in": "a.safetensors", "out": "b.safetensors"}}'
    (tmp_path / "model.safetensors.index.json").write_text(index)
    found = compare_with_model(tokens, suspects, tmp_path, names=("in", "out"))
    assert found.least["text"][0].as_py() == "xyz"


def test_the_report_shows_both_side_by_side(tmp_path: Path) -> None:
    texts = {"eng": ["the cat sat on the mat", "the cats sat"]}
    tok = tokenizer.train(
        texts["eng"] * 2 + ["an unseen remark, and more words than that"] * 3,
        vocab_size=290,
        allow_smaller=True,
    )
    folder = write_audit(tmp_path / "audit", tok, texts, texts)
    tokens = describe_tokens(tok)
    training = {"web": np.full(tok.vocab_size, 500, np.uint64)}
    occurrences = np.where(np.arange(tok.vocab_size) % 2, 1000, 0).astype(np.uint64)
    suspects = find_suspects(tokens, occurrences, training=training)
    rows = np.random.default_rng(1).normal(size=(tok.vocab_size, 4)).astype(np.float32)
    learned = compare_with_model(tokens, suspects, matrix(tmp_path / "m.safetensors", rows))
    page = write_report(folder, tmp_path / "out", tokenizer=tok, learned=learned).read_text("utf-8")
    both = learned.agreement.to_pylist()
    assert [row["first"] for row in both] == [50, 100]
    assert f'<td class="n">{both[0]["num_both"]}</td>' in page
    assert "Tokens that the model has learned least" in page
    assert "its rank" in page
    assert "NaN" not in page.split("<script")[0]
