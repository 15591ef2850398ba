"""Suspects beside a model: indicators of tokens without training, by hand, in every type, and by numpy."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from safetensors.numpy import save_file

from tests.test_tasks.audited import audited
from tokmill import tokenizer
from tokmill.tasks.audit.learned import (
    MOST,
    MOST_PADDING,
    compare,
    compare_with_model,
    known_unused,
    read_indicators,
)
from tokmill.tasks.audit.report import write_report
from tokmill.tasks.audit.suspects import SCHEMA, find_suspects
from tokmill.tasks.audit.tokens import describe_tokens
from tokmill.tasks.core.errors import EmbeddingError
from tokmill.tasks.embeddings.safetensors import Tensor, to_bytes, write_file
from tokmill.tokenizer import Tokenizer

ROWS = np.array([[3, 4], [0, 2], [0, 0], [-1, 0], [0, 5]], np.float32)
"""Length 5, 2, 0, 1 and 5; to (0, 1) the cosines are 0.8, 1, none, 0 and 1."""


def model(folder: Path, **tensors: np.ndarray) -> Path:
    path = folder / "model.safetensors"
    save_file({name.replace("__", "."): rows for name, rows in tensors.items()}, path)
    return path


def both(folder: Path, rows: np.ndarray) -> Path:
    """A model whose embeddings, in and out, are these rows each."""
    return model(folder, embed_tokens__weight=rows, lm_head__weight=rows.copy())


def test_one_matrix_by_hand(tmp_path: Path) -> None:
    found = read_indicators(model(tmp_path, transformer__wte__weight=ROWS), 5, [4])
    assert found.tied
    assert found.norm.tolist() == [5, 2, 0, 1, 5]
    assert found.indicator == pytest.approx([0.2, 0, 0, 1, 0])


def test_two_matrices_go_by_the_norm(tmp_path: Path) -> None:
    path = model(tmp_path, model__embed_tokens__weight=ROWS, lm_head__weight=ROWS[::-1].copy())
    found = read_indicators(path, 5, [0])
    assert not found.tied
    assert found.indicator.tolist() == [5, 2, 0, 1, 5]
    assert found.distance == pytest.approx([0, 1, 0, 0, 0.2])
    assert read_indicators(path, 5).distance is None


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16"])
def test_every_type_and_many_pieces_against_numpy(tmp_path: Path, dtype: str) -> None:
    values = np.round(np.random.default_rng(3).normal(size=(9000, 6)) * 16) / 16  # exact in 8 bits
    path, tensor = tmp_path / "model.safetensors", Tensor(dtype, values.shape, 0)
    write_file(path, {"wte.weight": (tensor, lambda out: out.write(to_bytes(values, dtype)) and None)}, {})
    found = read_indicators(path, 8990, [7, 8000])
    unused = values[[7, 8000, *range(8990, 9000)]].mean(axis=0)
    lengths = np.linalg.norm(values, axis=1)
    cosine = values @ unused / (lengths * np.linalg.norm(unused))
    assert found.norm == pytest.approx(lengths[:8990])
    assert found.indicator == pytest.approx(1 - cosine[:8990])


@pytest.mark.parametrize(("num_rows", "vocab_size"), [(5, 6), (5 + MOST_PADDING, 5)])
def test_a_matrix_of_another_vocabulary_is_refused(tmp_path: Path, num_rows: int, vocab_size: int) -> None:
    path = model(tmp_path, wte__weight=np.ones((num_rows, 2), np.float32))
    with pytest.raises(EmbeddingError, match=f"has {num_rows} rows, and the tokenizer {vocab_size} ids"):
        read_indicators(path, vocab_size)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"h": ROWS}, "has no input embeddings with a usual name; name them, of h"),
        ({"a__wte__weight": ROWS, "b__wte__weight": ROWS}, "may all be embeddings"),
        ({"wte__weight": ROWS.astype(np.int8)}, r"is I8 of shape \[5, 2\]"),
        ({"wte__weight": ROWS[0]}, r"is F32 of shape \[2\]"),
    ],
)
def test_what_are_no_embeddings(tmp_path: Path, tensors: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(EmbeddingError, match=message):
        read_indicators(model(tmp_path, **tensors), 5)


def test_names_and_unused_ids_that_do_not_exist(tmp_path: Path) -> None:
    path = model(tmp_path, odd=ROWS)
    assert read_indicators(path, 5, [4], names=("odd", "odd")).tied
    with pytest.raises(EmbeddingError, match="has no tensor 'even'"):
        read_indicators(path, 5, names=("odd", "even"))
    with pytest.raises(EmbeddingError, match="unused id 5 is not among the 5 ids"):
        read_indicators(path, 5, [5], names=("odd", "odd"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(EmbeddingError, match="not a sound safetensors file"):
        read_indicators(path, 5)


def suspects(ids: list[int], scores: list[float]) -> pa.Table:
    rows = [{"token_id": token, "score": score} for token, score in zip(ids, scores, strict=True)]
    return pa.Table.from_pylist(rows, SCHEMA)


def test_comparison_by_hand() -> None:
    # the lowest are 3, 1, 0 and 2; of the first two suspects, 3 is among the first two of them
    table = compare(
        suspects([3, 2, 1, 0], [9.0, 8.0, 7.0, 6.0]), np.array([3.0, 2.0, 4.0, 1.0]), (1, 2, 4, 5)
    )
    assert [row["num_both"] for row in table.to_pylist()] == [1, 1, 4]
    assert table["share"].to_pylist() == [1.0, 0.5, 1.0]
    # ranks of score 4 3 2 1, of the negative indicator 4 1 3 2: 1 - 6 (0 + 4 + 1 + 1) / (4 · 15)
    assert set(table["rank_correlation"].to_pylist()) == {0.4}


def test_untrained_tokens_have_the_lowest_indicators(tmp_path: Path) -> None:
    tok = Tokenizer.from_vocab(
        {bytes([byte]): byte for byte in range(256)} | {b"ab": 256, b"q w": 257}, [(b"a", b"b")]
    )
    tokens = describe_tokens(tok)
    unused = known_unused(tokens)
    assert 257 in unused
    assert 0xC0 in unused  # no UTF-8 has this byte
    assert 256 not in unused
    rows = np.random.default_rng(0).normal(size=(258, 64)).astype(np.float32)
    rows[[*unused, 256]] = 1
    indicator = read_indicators(model(tmp_path, wte__weight=rows), 258, unused).indicator
    lowest = np.argsort(indicator, kind="stable")[: len(unused) + 1].tolist()
    assert set(lowest) == {*unused, 256}
    # "q w" alone is a suspect where all else occurs, and it is the first of the lowest among bytes and itself
    suspects = find_suspects(tokens, np.ones(258, np.uint64))
    assert suspects["token_id"].to_pylist() == [257]
    table = compare(suspects, np.where(np.arange(258) == 257, -1.0, indicator), (1,))
    assert table["num_both"][0].as_py() == 1


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


def lengths(**short: float) -> np.ndarray:
    """Rows of length 10, but those that are named by id."""
    rows = np.full((259, 2), [0, 10], np.float32)
    for token, length in short.items():
        rows[int(token[1:])] = [length, 0]
    return rows


def test_places_by_hand(made: tuple[Tokenizer, pa.Table, pa.Table], tmp_path: Path) -> None:
    _, tokens, suspects = made
    found = compare_with_model(tokens, suspects, both(tmp_path, lengths(_258=1, _65=2)))
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
    found = compare_with_model(tokens, suspects, both(tmp_path, rows))
    by_text = {row["text"]: row for row in found.suspects.to_pylist()}
    assert by_text["xyz"]["indicator"] is None
    assert by_text["xyz"]["indicator_rank"] == 259
    for table in (found.suspects, found.least, found.agreement):
        for column in table.columns:
            if pa.types.is_floating(column.type):
                assert not np.isnan(column.drop_null().to_numpy()).any()


def test_the_report_shows_both_side_by_side(tmp_path: Path) -> None:
    texts = {"eng": ["the cat sat on the mat", "the cats sat"]}
    tok = tokenizer.train(
        texts["eng"] * 2 + ["an unseen remark, and more words than that"] * 3,
        vocab_size=290,
        allow_smaller=True,
    )
    folder = audited(tmp_path / "audit", tok, texts, texts)
    tokens = describe_tokens(tok)
    training = {"web": np.full(tok.vocab_size, 500, np.uint64)}
    occurrences = np.where(np.arange(tok.vocab_size) % 2, 1000, 0).astype(np.uint64)
    suspects = find_suspects(tokens, occurrences, training=training)
    rows = np.random.default_rng(1).normal(size=(tok.vocab_size, 4)).astype(np.float32)
    learned = compare_with_model(tokens, suspects, both(tmp_path, rows))
    page = write_report(folder, tmp_path / "out", tokenizer=tok, learned=learned).read_text("utf-8")
    agreed = learned.agreement.to_pylist()
    assert [row["first"] for row in agreed] == [50, 100]
    assert f'<td class="n">{agreed[0]["num_both"]}</td>' in page
    assert "Tokens that the model has learned least" in page
    assert "its rank" in page
    assert "NaN" not in page.split("<script")[0]
