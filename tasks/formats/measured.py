"""Measured text on disk: what the audit found in some documents of one shard, and their ids.

The files:

tokens.npy      uint32 [t]      ids of all documents, in order
offsets.npy     int64 [d + 1]   document k: tokens[offsets[k]:offsets[k + 1]]
measures.json   `MeasuredFile`
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tokmill.tasks.formats.files.indices import check_ascending, check_within
from tokmill.tasks.formats.files.manifests import read_model, write_model
from tokmill.tasks.formats.files.npy import NpyAppender, open_vector

MEASURES_FILE = "measures.json"


class MeasuredFile(BaseModel):
    """The content of `measures.json`: the sums of `tasks.audit.measuring.Amounts`, and an example."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    amounts: dict[str, int]
    example: str


def write_measured(out: Path, amounts: dict[str, int], example: str, ids: list[NDArray[np.uint32]]) -> None:
    """Write what was measured.

    Args:
        out: the artifact's directory.
        amounts: sums by name.
        example: of a document that does not decode to itself; or empty.
        ids: of each document.
    """
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(one) for one in ids], dtype=np.int64)])
    with NpyAppender(out / "tokens.npy", np.uint32) as tokens:  # says what is wrong if the disk is full
        for one in ids:
            tokens.append(one)
    with NpyAppender(out / "offsets.npy", np.int64) as places:
        places.append(offsets)
    write_model(out / MEASURES_FILE, MeasuredFile(amounts=amounts, example=example))


def read_measured(path: Path, vocab_size: int) -> tuple[dict[str, int], str, list[NDArray[np.uint32]]]:
    """Read what `write_measured` wrote.

    Raises:
        StoreError: a file is missing or broken, or an id is not below `vocab_size`.
    """
    found = read_model(path / MEASURES_FILE, MeasuredFile, "measures of a text")
    tokens = open_vector(path / "tokens.npy", np.uint32)
    offsets = open_vector(path / "offsets.npy", np.int64)
    check_ascending(path / "offsets.npy", "offsets", offsets, first=0, last=len(tokens))
    check_within(path / "tokens.npy", "token", tokens, least=0, below=vocab_size)
    return found.amounts, found.example, np.split(tokens, offsets[1:-1]) if len(offsets) > 1 else []
