"""Trigram models on disk: one per half of a corpus, to score the documents of the other half.

    <fold>-<name>.npy   the arrays of `tasks.kernels.surprisal.TrigramModel`, for fold 0 and 1
    model.json          `ModelManifest`

Model k was trained on documents of fold k, and scores those of fold 1 - k.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.indices import check_ascending, check_within
from tokmill.tasks.formats.files.manifests import read_model, write_model
from tokmill.tasks.formats.files.npy import NpyAppender, open_vector
from tokmill.tasks.kernels.surprisal import TrigramModel

MANIFEST_FILE = "model.json"
_DTYPES: dict[str, type[np.generic]] = {
    "unigrams": np.float32,
    "rests": np.float32,
    "starts": np.int64,
    "second": np.uint32,
    "bigrams": np.float32,
    "bigram_rests": np.float32,
    "bigram_starts": np.int64,
    "third": np.uint32,
    "trigrams": np.float32,
}


class ModelManifest(BaseModel):
    """The content of `model.json`.

    Attributes:
        vocab_size: number of ids of the models.
        seed: seed that decided the folds.
        end_of_document_id: the end token, which is left out of documents, or None.
        num_tokens: tokens that each model was trained on.
        num_documents: documents that each model was trained on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    vocab_size: int
    seed: int
    end_of_document_id: int | None
    num_tokens: tuple[int, int]
    num_documents: tuple[int, int]


@dataclass(frozen=True)
class TrigramModels:
    """Both models in a directory."""

    manifest: ModelManifest
    models: tuple[TrigramModel, TrigramModel]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read the models in the directory `path`.

        Raises:
            StoreError: a file is missing or broken, or the arrays do not fit each other.
        """
        manifest = read_model(path / MANIFEST_FILE, ModelManifest, "trigram model")
        return cls(manifest, (_read(path, 0, manifest), _read(path, 1, manifest)))


def write_trigrams(path: Path, fold: int, model: TrigramModel) -> None:
    """Write one model into the directory `path`."""
    for name, dtype in _DTYPES.items():
        with NpyAppender(path / f"{fold}-{name}.npy", dtype) as file:
            file.append(getattr(model, name))


def write_manifest(path: Path, manifest: ModelManifest) -> None:
    """Write `model.json` into the directory `path`."""
    write_model(path / MANIFEST_FILE, manifest)


def _read(path: Path, fold: int, manifest: ModelManifest) -> TrigramModel:
    files = {name: open_vector(path / f"{fold}-{name}.npy", dtype) for name, dtype in _DTYPES.items()}
    arrays = {name: np.array(values, dtype=_DTYPES[name]) for name, values in files.items()}
    model = TrigramModel(**arrays)
    size, bigrams = manifest.vocab_size + 1, len(model.second)
    found = [len(model.unigrams), len(model.rests), len(model.starts) - 1, _last(model.starts)]
    found += [len(model.bigrams), len(model.bigram_rests), len(model.bigram_starts) - 1]
    found += [_last(model.bigram_starts), len(model.trigrams)]
    if found != [size] * 3 + [bigrams] * 4 + [len(model.third)] * 2:
        raise StoreError(f"{path}: the arrays of model {fold} do not fit each other; verify the artifact")
    for name, end in (("starts", bigrams), ("bigram_starts", len(model.third))):
        check_ascending(path / f"{fold}-{name}.npy", name, getattr(model, name), first=0, last=end)
    for name in ("second", "third"):
        check_within(path / f"{fold}-{name}.npy", name, getattr(model, name), least=0, below=size)
    return model


def _last(values: NDArray[np.int64]) -> int:
    return int(values[-1]) if len(values) else -1
