"""Scores on disk: numbers that measure documents, one directory per shard and measure.

    <component>.npy   float32 [d]   one number per document of the encoded shard, in its order
    scores.json       `ScoreManifest`

A measure has one component or several (`COMPONENTS`). NaN stands for a document without a number.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.formats.files.manifests import Manifest
from tokmill.tasks.formats.files.npy import NpyAppender, open_vector

COLUMN = "column:"
COMPONENTS = {
    "noise": ("symbols", "repetition", "compression", "decoding_errors"),
    "perplexity": ("surprisal",),
}


def components_of(measure: str) -> tuple[str, ...]:
    """The components of a measure; a column of the source's files has one."""
    return COMPONENTS.get(measure, ("value",))


class ScoreManifest(Manifest):
    """The content of `scores.json`."""

    FILE: ClassVar[str] = "scores.json"
    TITLE: ClassVar[str] = "list of scores"

    measure: str  # "noise", "perplexity", or "column:NAME"
    components: tuple[str, ...]  # names of the files
    num_documents: int  # numbers in each
    num_missing: int  # documents without a number


def write_scores(path: Path, measure: str, scores: dict[str, NDArray[np.float32]]) -> ScoreManifest:
    """Write one shard's scores, by component, into the directory `path`."""
    for component, values in scores.items():
        with NpyAppender(path / f"{component}.npy", np.float32) as file:
            file.append(values)
    values = np.stack(list(scores.values()))
    missing = int(np.count_nonzero(np.isnan(values).any(axis=0)))
    manifest = ScoreManifest(
        measure=measure, components=tuple(scores), num_documents=values.shape[1], num_missing=missing
    )
    manifest.save(path)
    return manifest


@dataclass(frozen=True)
class ScoredShard:
    """The scores of one shard, in a directory."""

    path: Path
    manifest: ScoreManifest

    @classmethod
    def open(cls, path: Path, measure: str) -> Self:
        """Read the manifest in the directory `path`."""
        manifest = ScoreManifest.open(path)
        if manifest.measure != measure:
            raise StoreError(f"{path}: holds scores of '{manifest.measure}', and '{measure}' is needed")
        return cls(path, manifest)

    def component(self, name: str) -> NDArray[np.float32]:
        """One component, memory-mapped: float32 [d]."""
        values = open_vector(self.path / f"{name}.npy")
        if len(values) != self.manifest.num_documents or values.dtype != np.float32:
            raise StoreError(
                f"{self.path}: {name}.npy holds {len(values)} values of {values.dtype}, not "
                f"{self.manifest.num_documents} of float32; verify the artifact"
            )
        return values
