"""Measure what a changed vocabulary does to texts: tokens before and after."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.detection import format_of
from tokmill.tasks.formats.text.documents import FileBatch
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.sources import ReadOptions
from tokmill.tasks.remote.location import located

if TYPE_CHECKING:
    from tokmill.tokenizer import Tokenizer

File = Mapping[str, Any]


class Measured(BaseModel):
    """A file, before and after.

    Attributes:
        name: the file's name.
        num_tokens_before, num_tokens_after: tokens of its text.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    num_bytes: int
    num_tokens_before: int
    num_tokens_after: int

    @property
    def saved(self) -> int:
        """Tokens that are saved; negative where there are more than before."""
        return self.num_tokens_before - self.num_tokens_after


def batches(file: File, options: ReadOptions) -> Iterator[FileBatch]:
    """Yield the documents of a file.

    Raises:
        SourceError: it cannot be read, or a document is bad.
    """
    path = located(file["path"])
    for batch in read_file_batches(path, format_of(path, options), options):
        if batch.bad:
            bad = batch.bad[0]
            raise SourceError(
                f"{file['path']}: row {bad.row} is {bad.reason}; repair the file, or leave it out"
            )
        yield batch


def measure(
    before: "Tokenizer", after: "Tokenizer", file: File, options: ReadOptions
) -> tuple[Measured, NDArray[np.int64]]:
    """Encode a file with both tokenizers; return also how often each id occurs after: int64 [vocab_size]."""
    sizes, counts = np.zeros(3, dtype=np.int64), np.zeros(after.vocab_size, dtype=np.int64)
    for batch in batches(file, options):
        old_ids, new_ids = (
            tok.encode_buffers(batch.data, batch.offsets, as_text=True).ids for tok in (before, after)
        )
        sizes += (len(batch.data), len(old_ids), len(new_ids))
        counts += np.bincount(new_ids, minlength=after.vocab_size)
    num_bytes, old, new = sizes.tolist()
    measured = Measured(
        name=str(file["name"]),
        num_bytes=num_bytes,
        num_tokens_before=old,
        num_tokens_after=new,
    )
    return measured, counts


def token_counts(tok: "Tokenizer", files: Sequence[File], options: ReadOptions) -> NDArray[np.uint64]:
    """Return how often each id occurs in files: uint64 [vocab_size]."""
    counts = np.zeros(tok.vocab_size, dtype=np.uint64)
    for file in files:
        for batch in batches(file, options):
            ids = tok.encode_buffers(batch.data, batch.offsets, as_text=True).ids
            counts += np.bincount(ids, minlength=tok.vocab_size).astype(np.uint64)
    return counts
