"""Read a numeric column of a source's files, and check early in a run whether the files have it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.encoded import EncodedShard
from tokmill.tasks.formats.text.detection import format_of
from tokmill.tasks.formats.text.documents import ArrowArray
from tokmill.tasks.formats.text.quarantine import place_of
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.shards import Shard, read_shard
from tokmill.tasks.formats.text.sources import WITH_COLUMNS, ReadOptions
from tokmill.tasks.remote.location import located


def column_of(
    column: str, shard: Shard, roots: Mapping[str, str | Path], encoded: EncodedShard
) -> NDArray[np.float32]:
    """Read a column for the documents of an encoded shard.

    Returns:
        float32 [d]; NaN where a document has no value or null.
    """
    _check_columns(column, shard)
    try:
        values = _read(column, shard, roots, encoded)
    except SourceError as error:
        raise SourceError(
            f"score: column '{column}' of source '{shard.source}' cannot be read: {error}"
        ) from error
    if len(values) and np.isnan(values).all():
        raise SourceError(
            f"score: column '{column}' of source '{shard.source}': no document of shard {shard.index} has a "
            "value; choose another column, or list only the sources that have it in mix.curriculum.sources"
        )
    return values


def _read(
    column: str, shard: Shard, roots: Mapping[str, str | Path], encoded: EncodedShard
) -> NDArray[np.float32]:
    options = shard.options.model_copy(update={"id_column": column})  # values are read in the same way as ids
    values = np.full(len(encoded.ordinals), np.nan, dtype=np.float32)
    for batch in read_shard(shard.model_copy(update={"options": options}), roots):
        _, kept, places = np.intersect1d(
            batch.ordinals, encoded.ordinals, assume_unique=True, return_indices=True
        )
        if batch.ids is not None and len(kept):
            texts = batch.ids.take(pa.array(kept))
            values[places] = _numbers(column, shard, texts, batch.ordinals[kept])
    return values


def _check_columns(column: str, shard: Shard) -> None:
    for segment in shard.segments:
        if segment.format not in WITH_COLUMNS:
            raise SourceError(
                f"score: column '{column}' of source '{shard.source}': {segment.file} is read as "
                f"{segment.format}, which has no columns; leave it out of mix.curriculum.sources"
            )


def _numbers(
    column: str, shard: Shard, texts: ArrowArray, ordinals: NDArray[np.int64]
) -> NDArray[np.float32]:
    trimmed = pc.utf8_trim_whitespace(texts)
    present = pc.if_else(pc.equal(trimmed, ""), pa.scalar(None, trimmed.type), trimmed)
    try:
        numbers = pc.cast(present, pa.float64())
    except pa.ArrowInvalid:
        raise SourceError(_not_a_number(column, shard, present, ordinals)) from None
    return np.asarray(numbers.to_numpy(zero_copy_only=False), dtype=np.float32)


def _not_a_number(column: str, shard: Shard, texts: ArrowArray, ordinals: NDArray[np.int64]) -> str:
    """Describe the first value that is not a number, and its place."""
    for text, ordinal in zip(texts.to_pylist(), ordinals.tolist(), strict=True):
        try:
            float(text or 0)
        except ValueError:
            segment = next(part for part in reversed(shard.segments) if part.first_ordinal <= ordinal)
            row = segment.first_row + ordinal - segment.first_ordinal
            where = place_of(segment.file, row, segment.format)
            return f"{where} holds {text[:40]!r}, which is not a number; choose another column"
    return "it holds values that are not numbers; choose another column"


def missing_values(column: str, files: Sequence[Mapping[str, Any]], options: ReadOptions) -> str:
    """Explain why no document of a source has a value in a column; empty if one has.

    Files are read in order, up to the first document with a value.
    """
    wanted = options.model_copy(update={"id_column": column})  # values are read in the same way as ids
    for file in files:
        path = located(file["path"])
        file_format = format_of(path, options)
        if file_format not in WITH_COLUMNS:
            return f"{file['name']} is read as {file_format}, which has no columns"
        try:
            pieces = read_file_batches(path, file_format, wanted)
            if any(batch.ids is not None and batch.ids.null_count < len(batch.ids) for batch in pieces):
                return ""
        except SourceError as error:
            return str(error).replace("id_column=", "column ")
    return f"no document has a value in column {column!r}"
