"""Resize the embeddings of a model for a changed vocabulary: a file, or shards with an index.

Every tensor with a row for each id is resized: input and output embeddings, and output biases. Rows of kept
ids are copied bit by bit, new rows are computed (`safetensors.NewRows`), and rows beyond the old vocabulary
(padding) are left out. All other tensors and files are copied. Tied embeddings are one tensor, and stay so;
equal ones stay equal.

In the settings, `vocab_size` becomes the number of rows, that of `text_config` too, where models of several
kinds of input have it. Ids of special tokens (`eos_token_id`, `image_token_index`, lists of them) get their
new numbers, without which a trimmed model would never end a text. What is not an old id (-1, say) stays.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson
from numpy.typing import NDArray

from tokmill.tasks.core.errors import EmbeddingError
from tokmill.tasks.core.faults import read_named
from tokmill.tasks.embeddings.safetensors import Method, NewRows, Tensor, TensorFile, Write, write_file
from tokmill.tasks.store.disk import whole_folder
from tokmill.tokenizer.adaptation.plan import EmbeddingPlan

INDEX = "model.safetensors.index.json"
CONFIG, GENERATION = "config.json", "generation_config.json"
_IDS = ("_token_id", "_token_ids", "_token_index")
_TEXT = "text_config"
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
    folder = model if model.is_dir() else model.parent
    config = read_json(folder / CONFIG) if (folder / CONFIG).exists() else {}
    done = Resized(tied=bool(config.get("tie_word_embeddings", False)))
    chosen = _chosen(files, plan, names)
    rows = -(-plan.new_size // pad_to_multiple_of) * pad_to_multiple_of
    kept = np.append(plan.kept, np.full(rows - plan.new_size, -1))
    with whole_folder(out) as unfinished:
        for file in files:
            parts: dict[str, tuple[Tensor, Write]] = {}
            for name, tensor in file.tensors.items():
                parts[name] = tensor, partial(file.copy, name)
                if name in chosen:
                    resized = replace(tensor, shape=(rows, *tensor.shape[1:]))
                    new = NewRows(file, name, plan, method, seed)
                    parts[name] = resized, partial(_write_rows, file, name, kept, new)
                    done.tensors[name] = tensor.shape, resized.shape
            write_file(unfinished / file.path.name, parts, file.metadata)
            done.files.append(out / file.path.name)
        changed = _new_sizes(folder, unfinished, {file.path.name for file in files})
        if config:
            changed[CONFIG] = _with_new_ids(_with_new_size(config, rows), plan, folder / CONFIG)
        if (folder / GENERATION).exists():
            changed[GENERATION] = _with_new_ids(read_json(folder / GENERATION), plan, folder / GENERATION)
        for name, value in changed.items():
            data = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
            (unfinished / name).write_bytes(data)
        for path in sorted(model.iterdir()) if model.is_dir() else ():
            if path.is_file() and path.suffix != ".safetensors" and not (unfinished / path.name).exists():
                shutil.copyfile(path, unfinished / path.name)
    return done


def _write_rows(file: TensorFile, name: str, kept: NDArray[np.int64], new: NewRows, out: BinaryIO) -> None:
    """Write a matrix, or a bias, with the rows of the new vocabulary: runs of kept ones, and new ones."""
    place = 0
    for run in np.split(kept, np.flatnonzero((np.diff(kept) != 1) | (kept[:-1] < 0)) + 1):
        if run[0] < 0:
            out.write(new.row(place))
        else:
            out.write(file.rows(name, int(run[0]), int(run[-1]) + 1).data)
        place += len(run)


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


def _new_sizes(folder: Path, out: Path, written: set[str]) -> dict[str, dict[str, Any]]:
    """Return a model's index, if it is of the files that were written, with their size in `out`."""
    index = folder / INDEX
    if not index.exists() or set(_shards(index)) != written:
        return {}
    content = read_json(index)
    tensors = (tensor for name in written for tensor in TensorFile.open(out / name).tensors.values())
    given = content.get("metadata")
    metadata = {
        **(given if isinstance(given, dict) else {}),
        "total_size": sum(one.num_bytes for one in tensors),
    }
    return {INDEX: {**content, "metadata": metadata}}


def read_json(file: Path) -> dict[str, Any]:
    """Return the object in a file.

    Raises:
        EmbeddingError: the file cannot be read, or holds something else.
    """
    try:
        value = orjson.loads(read_named(file))
        orjson.dumps(value)  # which refuses what is nested so deeply that it could not be written again
    except (OSError, orjson.JSONDecodeError, orjson.JSONEncodeError) as error:
        raise EmbeddingError(f"{file}: cannot be read as JSON: {error}; get it again") from error
    if not isinstance(value, dict):
        raise EmbeddingError(f"{file}: is not a JSON object; get it again")
    return value


def _with_new_size(config: Mapping[str, Any], num_rows: int) -> dict[str, Any]:
    """Return the settings with another size of the vocabulary, wherever they have it."""
    text = config.get(_TEXT)
    within = isinstance(text, Mapping) and "vocab_size" in text
    changed = dict(config)
    if within:
        changed[_TEXT] = {**config[_TEXT], "vocab_size": num_rows}
    if not within or "vocab_size" in config:
        changed["vocab_size"] = num_rows
    return changed


def _with_new_ids(config: Mapping[str, Any], plan: EmbeddingPlan, where: Path) -> dict[str, Any]:
    """Return the settings with the new ids of their tokens."""
    new = np.full(plan.old_size, -1, dtype=np.int64)
    kept = np.flatnonzero(plan.kept >= 0)
    new[plan.kept[kept]] = kept

    def renumbered(name: str, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: renumbered(key, inner) for key, inner in value.items()}
        if not name.endswith(_IDS):
            return value
        if isinstance(value, list):
            return [renumbered(name, inner) for inner in value]
        if type(value) is not int or not 0 <= value < plan.old_size:
            return value
        if new[value] < 0:
            raise EmbeddingError(
                f"{where}: {name}={value} is the id of a token that the new vocabulary does not have; set it "
                "to another, or make the token a special one before trimming"
            )
        return int(new[value])

    return {key: renumbered(key, value) for key, value in config.items()}
