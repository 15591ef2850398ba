"""Resize the embeddings of a model for a changed vocabulary: a file, or shards with an index.

Every tensor with a row for each id is resized: input and output embeddings, and output biases. Rows of kept
ids are copied bit by bit, new rows are computed (`safetensors.NewRows`), and rows beyond the old vocabulary
(padding) are left out. All other tensors and files are copied. Tied embeddings are one tensor, and stay so;
equal ones stay equal.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson

from tokmill.tasks.core.errors import EmbeddingError
from tokmill.tasks.embeddings.config import CONFIG, GENERATION, read_json, with_new_ids, with_new_size
from tokmill.tasks.embeddings.safetensors import Method, NewRows, Tensor, TensorFile, Write, write_file
from tokmill.tasks.store.disk import whole_folder
from tokmill.tokenizer.adaptation.plan import EmbeddingPlan

INDEX = "model.safetensors.index.json"
_LONGEST_NAME = 255  # bytes, of Linux's file systems
_ENDINGS = (
    *("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "tok_embeddings.weight"),
    *("embed_in.weight", "shared.weight", "embeddings.weight"),
    *("lm_head.weight", "lm_head.bias", "embed_out.weight", "output.weight"),
    *("predictions.bias", "predictions.decoder.weight", "predictions.decoder.bias"),
)
"""How tensors with a row for each id are called in the models of Hugging Face, GPT-NeoX, Llama and BERT."""


@dataclass
class Resized:
    """What was done.

    Attributes:
        tensors: old and new shape of each tensor that was resized, by name.
        tied: whether the model has one matrix for input and output, as its config.json says.
        files: the files that were written.
    """

    tied: bool = False
    tensors: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)


def resize_embeddings(
    model: Path,
    plan: EmbeddingPlan,
    out: Path,
    *,
    method: Method = "mean",
    seed: int = 0,
    names: tuple[str, ...] = (),
    pad_to_multiple_of: int = 1,
) -> Resized:
    """Write a model with resized embeddings into the new folder `out`.

    Args:
        model: a safetensors file, an index, or a folder with one of them.
        plan: the embedding plan.
        out: a folder that does not exist.
        method: how new rows are made.
        seed: seed of `normal`.
        names: the tensors to resize; those with usual names if none is given.
        pad_to_multiple_of: rows are added, as for new ids without text, up to a multiple of this.

    Raises:
        EmbeddingError: a file is not sound, no tensor has a row for each old id, or one that has a row for
            each has no usual name.
    """
    files = [TensorFile.open(path) for path in model_files(model)]
    config = _config(model)
    done = Resized(tied=bool(config.get("tie_word_embeddings", False)))
    chosen = _chosen(files, plan, names)
    rows = -(-plan.new_size // pad_to_multiple_of) * pad_to_multiple_of
    with whole_folder(out) as partial:
        for file in files:
            changed = {
                name: _Matrix(file, name, plan, NewRows(file, name, plan, method, seed), rows)
                for name in file.tensors
                if name in chosen
            }
            write_file(partial / file.path.name, _parts(file, changed), file.metadata)
            done.tensors |= {name: (one.old.shape, one.resized.shape) for name, one in changed.items()}
            done.files.append(out / file.path.name)
        _copy_others(model, partial, files)
        _write_configs(model, partial, config, plan, rows)
    return done


def _parts(file: TensorFile, changed: "Mapping[str, _Matrix]") -> dict[str, tuple[Tensor, Write]]:
    """Return what is written of a file: the changed matrices, and copies of all other tensors."""
    return {
        name: (changed[name].resized, changed[name].write)
        if name in changed
        else (tensor, _Copy(file, name).write)
        for name, tensor in file.tensors.items()
    }


@dataclass(frozen=True)
class _Copy:
    file: TensorFile
    name: str

    def write(self, out: BinaryIO) -> None:
        self.file.copy(self.name, out)


@dataclass(frozen=True)
class _Matrix:
    """A matrix, or a bias, with the rows of the new vocabulary."""

    file: TensorFile
    name: str
    plan: EmbeddingPlan
    new: NewRows
    num_rows: int

    @property
    def old(self) -> Tensor:
        return self.file.tensors[self.name]

    @property
    def resized(self) -> Tensor:
        return Tensor(self.old.dtype, (self.num_rows, *self.old.shape[1:]), 0)

    def write(self, out: BinaryIO) -> None:
        kept = np.append(self.plan.kept, np.full(self.num_rows - self.plan.new_size, -1))
        place = 0
        while place < len(kept):
            run = _run(kept, place)
            if kept[place] < 0:
                for new in range(place, place + run):
                    out.write(self.new.row(new))
            else:
                out.write(self.file.rows(self.name, int(kept[place]), int(kept[place]) + run).data)
            place += run


def _run(kept: np.ndarray, place: int, most: int = 8192) -> int:
    """Return how many rows from `place` on are kept one after the other, or new."""
    part = kept[place : place + most]
    expected = np.full(len(part), -1) if part[0] < 0 else part[0] + np.arange(len(part))
    differs = np.flatnonzero(part != expected)
    return int(differs[0]) if len(differs) else len(part)


def model_files(model: Path) -> list[Path]:
    """Return the safetensors files of a model: a file, an index, or a folder with one of them.

    Raises:
        EmbeddingError: the index is not sound.
    """
    if model.is_dir():
        index = model / INDEX
        model = index if index.exists() else model / "model.safetensors"
    if model.suffix != ".json":
        return [model]
    return [model.with_name(name) for name in _shards(model)]


def _shards(index: Path) -> list[str]:
    """Return the names of the files that an index lists, sorted."""
    weight_map = read_json(index).get("weight_map")
    names = [*weight_map.values()] if isinstance(weight_map, dict) else []
    if not names or not all(isinstance(name, str) and _is_file_name(name) for name in names):
        raise EmbeddingError(
            f"{index}: its weight_map must name files of the same folder, not {weight_map!r:.200}; get it "
            "again"
        )
    return sorted(set(names))


def _is_file_name(name: str) -> bool:
    return (
        name not in {"", ".."}
        and "\0" not in name
        and Path(name).name == name
        and len(name.encode()) <= _LONGEST_NAME
    )


def _chosen(files: list[TensorFile], plan: EmbeddingPlan, names: tuple[str, ...]) -> set[str]:
    """Return the tensors to resize."""
    every = {name: tensor for file in files for name, tensor in file.tensors.items()}
    found = set(names) or {name for name in every if name.endswith(_ENDINGS)}
    for name in sorted(found):
        if name not in every or not every[name].shape or every[name].shape[0] < plan.old_size:
            has = every[name].shape if name in every else "not there"
            raise EmbeddingError(
                f"resize: {name!r:.200} is {has}, but the plan is for {plan.old_size} ids; give the plan of "
                "this model's tokenizer, or name the tensors with --tensor"
            )
    if not found:
        raise EmbeddingError(
            f"resize: no tensor is called as embeddings are ({', '.join(_ENDINGS[:4])}, …); name them with "
            "--tensor"
        )
    sizes = {every[name].shape[0] for name in found}
    others = [n for n, one in every.items() if n not in found and one.shape and one.shape[0] in sizes]
    if others and not names and min(sizes) > 1024:
        raise EmbeddingError(
            f"resize: {others[0]!r:.200} has a row for each id, too; name all tensors to resize with --tensor"
        )
    return found


def _config(model: Path) -> dict[str, Any]:
    file = (model if model.is_dir() else model.parent) / CONFIG
    return read_json(file) if file.exists() else {}


def _write_configs(model: Path, out: Path, config: Mapping[str, Any], plan: EmbeddingPlan, rows: int) -> None:
    """Write the settings with the new size and the new ids."""
    folder = model if model.is_dir() else model.parent
    if config:
        sized = with_new_size(config, rows)
        (out / CONFIG).write_bytes(_json(with_new_ids(sized, plan, folder / CONFIG)))
    generation = folder / GENERATION
    if generation.exists():
        (out / GENERATION).write_bytes(_json(with_new_ids(read_json(generation), plan, generation)))


def _copy_others(model: Path, out: Path, files: list[TensorFile]) -> None:
    """Copy a model's other files, if it is a folder, and write its index for the new sizes."""
    folder = model if model.is_dir() else model.parent
    written = {file.path.name for file in files}
    index = folder / INDEX
    if index.exists() and set(_shards(index)) == written:
        content = read_json(index)
        sizes = (tensor.num_bytes for name in sorted(written) for tensor in _tensors_of(out / name))
        given = content.get("metadata")
        metadata = {**(given if isinstance(given, dict) else {}), "total_size": sum(sizes)}
        (out / INDEX).write_bytes(_json({**content, "metadata": metadata}))
    if model.is_dir():
        for path in sorted(model.iterdir()):
            if path.is_file() and not (out / path.name).exists() and path.suffix != ".safetensors":
                shutil.copyfile(path, out / path.name)


def _tensors_of(path: Path) -> Iterator[Tensor]:
    yield from TensorFile.open(path).tensors.values()


def _json(value: Mapping[str, Any]) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
