"""Embeddings resized for a changed vocabulary: kept rows bit by bit, new ones by hand."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tokmill.tasks.core.errors import EmbeddingError
from tokmill.tasks.embeddings.resize import INDEX, resize_embeddings
from tokmill.tasks.embeddings.safetensors import TensorFile, to_bytes, to_floats
from tokmill.tokenizer.adaptation.plan import EmbeddingPlan

OLD, NEW, WIDTH = 6, 8, 4
PLAN = EmbeddingPlan(
    old_size=OLD,
    kept=np.array([0, 1, 3, 4, -1, 5, -1, -1]),
    sources={4: (1, 3), 6: (2, 2, 5), 7: ()},
    weights={4: (3, 1), 6: (1, 1, 2), 7: ()},
)
EMBED, HEAD, NORM = "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight"


def written(path: Path, tensors: dict[str, tuple[str, tuple[int, ...], bytes]], **metadata: str) -> Path:
    """Write a safetensors file, byte by byte."""
    header, place = {"__metadata__": metadata} if metadata else {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, place + len(data)]}
        place += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(data for *_, data in tensors.values()))
    return path


def matrix(dtype: str, rows: int = OLD) -> tuple[np.ndarray, tuple[str, tuple[int, int], bytes]]:
    """A matrix whose values every type can hold."""
    values = np.arange(rows * WIDTH, dtype=np.float64).reshape(rows, WIDTH) / 4 - 2
    return values, (dtype, (rows, WIDTH), to_bytes(values, dtype))


def values_of(path: Path, name: str) -> np.ndarray:
    """A tensor's values."""
    file = TensorFile.open(path)
    tensor = file.tensors[name]
    rows = file.rows(name, 0, tensor.shape[0])
    return to_floats(rows, tensor.dtype).reshape(tensor.shape)


def test_equal_matrices_stay_equal_and_draws_have_the_moments(tmp_path: Path) -> None:
    rows, width = 3000, 64
    random = np.random.default_rng(1)
    values = random.normal(2.0, 0.5, (rows, width)) * np.linspace(0.5, 2, width)
    tensor = ("F32", (rows, width), to_bytes(values, "F32"))
    model = written(tmp_path / "model.safetensors", {EMBED: tensor, HEAD: tensor})
    kept = np.append(np.arange(rows), np.full(2000, -1))
    sources = dict.fromkeys(range(rows, rows + 2000), (1,))
    plan = EmbeddingPlan(rows, kept, sources, sources)
    made = {}
    for seed in (1, 1, 2):
        out = tmp_path / f"out{len(made)}"
        resize_embeddings(model, plan, out, method="normal", seed=seed)
        made[out] = values_of(out / "model.safetensors", EMBED)
        assert (made[out] == values_of(out / "model.safetensors", HEAD)).all()
    first, again, other = made.values()
    assert (first == again).all()
    assert (first[rows:] != other[rows:]).any()
    drawn, old = first[rows:], values_of(model, EMBED)
    assert np.abs(drawn.mean(axis=0) - old.mean(axis=0)).max() < 0.1
    assert np.abs(drawn.std(axis=0) / old.std(axis=0) - 1).max() < 0.1


def test_shards_with_an_index_a_bias_and_padding(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    padded, embed = matrix("F32", rows=OLD + 2)
    bias = np.arange(OLD + 2, dtype=np.float64)[:, None]
    written(folder / "a.safetensors", {EMBED: embed})
    written(
        folder / "b.safetensors",
        {"lm_head.bias": ("F32", (OLD + 2,), to_bytes(bias, "F32")), NORM: ("F32", (2,), bytes(8))},
    )
    weight_map = {EMBED: "a.safetensors", "lm_head.bias": "b.safetensors", NORM: "b.safetensors"}
    (folder / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": weight_map}))
    (folder / "config.json").write_text(json.dumps({"vocab_size": OLD, "tie_word_embeddings": True}))
    (folder / "generation_config.json").write_text("{}")

    done = resize_embeddings(folder, PLAN, tmp_path / "out", pad_to_multiple_of=5)

    assert done.tied
    new = values_of(tmp_path / "out" / "a.safetensors", EMBED)
    assert new.shape == (10, WIDTH)
    assert new[:4].tolist() == padded[[0, 1, 3, 4]].tolist()
    biases = values_of(tmp_path / "out" / "b.safetensors", "lm_head.bias")
    assert biases[:6].tolist() == [0, 1, 3, 4, 2, 5]
    index = json.loads((tmp_path / "out" / INDEX).read_text())
    assert index["weight_map"] == weight_map
    assert index["metadata"]["total_size"] == 10 * WIDTH * 4 + 10 * 4 + 8
    assert json.loads((tmp_path / "out" / "config.json").read_text())["vocab_size"] == 10
    assert (tmp_path / "out" / "generation_config.json").exists()


def broken_header(text: bytes) -> bytes:
    """A file with this header and eight bytes of data."""
    return len(text).to_bytes(8, "little") + text + bytes(8)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x02\x00",
        (1 << 62).to_bytes(8, "little") + b"{}",
        broken_header(b"[]"),
        broken_header(b"[" * 100_000),
        broken_header(b'{"__metadata__": 3}'),
        broken_header(b'{"__metadata__": {"a": [1]}}'),
        broken_header(b'{"\\ud800": 1}'),
        broken_header(
            b'{"a": {"dtype": "F32", "shape": [%s], "data_offsets": [0, 8]}}' % b",".join([b"9" * 18] * 999)
        ),
        broken_header(b"{"),
        broken_header(b'{"a": 1}'),
        broken_header(b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}'),
        broken_header(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}'),
        broken_header(b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'),
        broken_header(b'{"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}}'),
        broken_header(b'{"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, -8]}}'),
        broken_header(b'{"a": {"dtype": ["F32"], "shape": [2], "data_offsets": [0, 8]}}'),
        broken_header(b'{"a": {"dtype": "Q4", "shape": [2], "data_offsets": [0, 8]}}'),
        broken_header(b'{"a": {"dtype": "F32", "shape": [true, 2], "data_offsets": [0, 8]}}'),
        broken_header(
            b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},'
            b' "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}'
        ),
    ],
)
def test_files_that_are_not_sound_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(content)
    with pytest.raises(EmbeddingError, match="not a sound safetensors file"):
        TensorFile.open(file)


def test_what_does_not_fit_the_plan_is_refused(tmp_path: Path) -> None:
    few = written(tmp_path / "few.safetensors", {EMBED: matrix("F32", rows=OLD - 1)[1]})
    with pytest.raises(EmbeddingError, match="the plan is for 6 ids"):
        resize_embeddings(few, PLAN, tmp_path / "out")
    other = written(tmp_path / "other.safetensors", {"weights": matrix("F32")[1]})
    with pytest.raises(EmbeddingError, match="no tensor is called as embeddings are"):
        resize_embeddings(other, PLAN, tmp_path / "out")
    done = resize_embeddings(other, PLAN, tmp_path / "named", names=("weights",))
    assert list(done.tensors) == ["weights"]
    bits = written(tmp_path / "bits.safetensors", {EMBED: ("I8", (OLD, WIDTH), bytes(OLD * WIDTH))})
    before = set(tmp_path.iterdir())
    with pytest.raises(EmbeddingError, match="have no mean"):
        resize_embeddings(bits, PLAN, tmp_path / "bits")
    assert set(tmp_path.iterdir()) == before  # nothing half-written is left
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"a": "../few.safetensors"}}))
    with pytest.raises(EmbeddingError, match="must name files of the same folder"):
        resize_embeddings(tmp_path / INDEX, PLAN, tmp_path / "out2")


@pytest.mark.parametrize(
    ("dtype", "values", "method"),
    [
        ("F32", [np.nan] * OLD, "mean"),
        ("F16", [np.inf] * OLD, "weighted_mean"),
        ("F32", [np.inf, *[1.0] * (OLD - 1)], "normal"),
        ("F16", [6e4, -6e4] * (OLD // 2), "normal"),  # a draw is beyond the type
    ],
)
def test_rows_that_would_not_be_finite_are_refused(
    tmp_path: Path, dtype: str, values: list[float], method: str
) -> None:
    rows = np.repeat(np.array(values)[:, None], 64, axis=1)
    model = written(tmp_path / "model.safetensors", {EMBED: (dtype, rows.shape, to_bytes(rows, dtype))})
    with pytest.raises(EmbeddingError, match=r"new row \d of '.*' would not be finite"):
        resize_embeddings(model, PLAN, tmp_path / "out", method=method)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "weight_map",
    [
        None,
        [1],
        {},
        {"a": 3},
        {"a": 3, "b": "x"},
        {"a": ""},
        {"a": ".."},
        {"a": "/x"},
        {"a": "a\0b"},
        {"a": "x" * 256},
    ],
)
def test_an_index_that_names_no_files_of_its_folder_is_refused(tmp_path: Path, weight_map: object) -> None:
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(EmbeddingError, match="must name files of the same folder"):
        resize_embeddings(tmp_path, PLAN, tmp_path / "out")


ARRAYS = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


@given(
    code=st.sampled_from([*ARRAYS, "BF16"]),
    method=st.sampled_from(["mean", "weighted_mean"]),
    kept=st.lists(st.one_of(st.integers(0, OLD - 1), st.none()), min_size=1, max_size=20),
    data=st.data(),
)
def test_what_safetensors_writes_is_read_and_what_we_write_it_reads(
    tmp_path_factory: pytest.TempPathFactory,
    code: str,
    method: str,
    kept: list[int | None],
    data: st.DataObject,
) -> None:
    folder = tmp_path_factory.mktemp("model")
    values, embed = matrix(code)
    norm, content = data.draw(st.binary(max_size=9)), embed[2]
    file = folder / "model.safetensors"
    if code in ARRAYS:
        array = np.frombuffer(content, ARRAYS[code]).reshape(OLD, WIDTH)
        save_file({EMBED: array, NORM: np.frombuffer(norm, np.uint8)}, file, metadata={"made": "by them"})
    else:  # their function for numpy has no bfloat16
        written(file, {EMBED: embed, NORM: ("U8", (len(norm),), norm)}, made="by them")
    new = [k for k, old in enumerate(kept) if old is None]
    sources = {k: tuple(data.draw(st.lists(st.integers(0, OLD - 1), max_size=3))) for k in new}
    weights = {
        k: tuple(old + 1 if method == "weighted_mean" else 1 for old in olds) for k, olds in sources.items()
    }
    plan = EmbeddingPlan(OLD, np.array([-1 if old is None else old for old in kept]), sources, weights)

    done = resize_embeddings(folder, plan, folder / "out", method=method)

    assert done.tensors == {EMBED: ((OLD, WIDTH), (len(kept), WIDTH))}
    assert TensorFile.open(folder / "out" / "model.safetensors").metadata == {"made": "by them"}
    theirs = dict(safetensors.deserialize((folder / "out" / "model.safetensors").read_bytes()))
    made, width = theirs[EMBED], len(content) // OLD
    assert (made["dtype"], tuple(made["shape"])) == (code, (len(kept), WIDTH))
    assert bytes(theirs[NORM]["data"]) == norm
    for k, old in enumerate(kept):
        row = bytes(made["data"][k * width : (k + 1) * width])
        mean = np.average(
            values[list(sources.get(k, ())) or slice(None)], axis=0, weights=weights.get(k) or None
        )
        assert row == (
            to_bytes(mean[None], code) if old is None else content[old * width : (old + 1) * width]
        )


def test_ids_and_sizes_in_the_settings_follow(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    written(model / "model.safetensors", {EMBED: matrix("F32")[1]})
    text = {"vocab_size": OLD, "bos_token_id": 3}
    config = {"eos_token_id": 5, "pad_token_id": -1, "text_config": text, "image_token_index": 4, "layers": 5}
    (model / "config.json").write_text(json.dumps(config))
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 4], "top_k": 5}))

    resize_embeddings(model, PLAN, tmp_path / "out")

    assert json.loads((tmp_path / "out" / "config.json").read_text()) == {
        "eos_token_id": 5,
        "pad_token_id": -1,
        "text_config": {"vocab_size": NEW, "bos_token_id": 2},
        "image_token_index": 3,
        "layers": 5,
    }
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert generation == {"eos_token_id": [5, 3], "top_k": 5}
    (model / "config.json").write_text(json.dumps({"pad_token_id": 2}))
    with pytest.raises(
        EmbeddingError, match="pad_token_id=2 is the id of a token that the new vocabulary does not"
    ):
        resize_embeddings(model, PLAN, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


def test_bfloat16_rounds_to_nearest_even() -> None:
    ties = np.array([[1.00390625, 1.01171875, -1.00390625, 3.4e38, np.inf, -np.inf, np.nan, 1e-40]])
    back = to_floats(np.frombuffer(to_bytes(ties, "BF16"), np.uint8)[None], "BF16")[0]
    assert back[:3].tolist() == [1.0, 1.015625, -1.0]
    assert back[4:6].tolist() == [np.inf, -np.inf]
    assert np.isnan(back[6])
