"""Check early in a run whether a source's files have a column, by reading their beginnings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.sources import WITH_COLUMNS, ReadOptions, format_of


def missing_values(column: str, files: Sequence[Mapping[str, Any]], options: ReadOptions) -> str:
    """Explain why no document of a source has a value in a column; empty if one has.

    Args:
        column: name of the column, or of the key in JSON lines.
        files: the values of the externals that `resolve_files` returns.
        options: how to read the files.

    Files are read in order, up to the first document with a value.
    """
    wanted = options.model_copy(update={"id_column": column})  # values are read in the same way as ids
    for file in files:
        path, file_format = Path(file["path"]), format_of(file["name"], options)
        if file_format not in WITH_COLUMNS:
            return f"{file['name']} is read as {file_format}, which has no columns"
        try:
            pieces = read_file_batches(path, file_format, wanted)
            if any(batch.ids is not None and batch.ids.null_count < len(batch.ids) for batch in pieces):
                return ""
        except SourceError as error:
            return str(error).replace("id_column=", "column ")
    return f"no document has a value in column {column!r}"
