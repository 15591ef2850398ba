"""Embeddings resized for a changed vocabulary: kept rows bit by bit, new ones by hand."""

import json
from pathlib import Path

import numpy as np
import pytest

from tokmill.tasks.core.errors import EmbeddingError
from tokmill.tasks.embeddings.resize import INDEX, resize_embeddings
from tokmill.tasks.embeddings.rows import to_bytes, to_floats
from tokmill.tasks.embeddings.safetensors import TensorFile
from tokmill.tokenizer.adapting.plan import EmbeddingPlan

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


@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16"])
@pytest.mark.parametrize(("method", "weights"), [("mean", (1, 1)), ("weighted_mean", (3, 1))])
def test_rows_by_hand(tmp_path: Path, dtype: str, method: str, weights: tuple[int, int]) -> None:
    old, embed = matrix(dtype)
    norm = ("F32", (WIDTH,), np.ones(WIDTH, "<f4").tobytes())
    model = written(tmp_path / "model.safetensors", {NORM: norm, EMBED: embed}, made="by hand")
    done = resize_embeddings(model, PLAN, tmp_path / "out", method=method)

    new = values_of(tmp_path / "out" / "model.safetensors", EMBED)
    assert done.tensors == {EMBED: ((OLD, WIDTH), (NEW, WIDTH))}
    assert new[[0, 1, 2, 3, 5]].tolist() == old[[0, 1, 3, 4, 5]].tolist()
    expected = np.average(old[[1, 3]], axis=0, weights=weights)
    rounded = to_floats(np.frombuffer(to_bytes(expected[None], dtype), np.uint8)[None], dtype)
    assert new[4].tolist() == rounded[0].tolist()
    assert new[7].tolist() == pytest.approx(old.mean(axis=0).tolist(), abs=1e-2)
    file = TensorFile.open(tmp_path / "out" / "model.safetensors")
    assert (file.tensors[EMBED].dtype, file.metadata) == (dtype, {"made": "by hand"})
    with (tmp_path / "norm").open("w+b") as copied:
        file.copy(NORM, copied)
    assert (tmp_path / "norm").read_bytes() == norm[2]


def test_bfloat16_rounds_to_nearest_even() -> None:
    ties = np.array([[1.00390625, 1.01171875, -1.00390625, 3.4e38, np.inf, -np.inf, np.nan, 1e-40]])
    back = to_floats(np.frombuffer(to_bytes(ties, "BF16"), np.uint8)[None], "BF16")[0]
    assert back[:3].tolist() == [1.0, 1.015625, -1.0]
    assert back[4:6].tolist() == [np.inf, -np.inf]
    assert np.isnan(back[6])


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
