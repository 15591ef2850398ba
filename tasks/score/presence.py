"""Whether a source's files have a column at all: a look at their beginnings, before a run spends hours."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.formats.text.readers import read_file_batches
from tokmill.tasks.formats.text.sources import WITH_COLUMNS, ReadOptions, format_of


def missing_values(column: str, files: Sequence[Mapping[str, Any]], options: ReadOptions) -> str:
    """Say why documents of a source cannot have values of a column; nothing where one has.

    Args:
        column: its name; of JSON lines, a key.
        files: the values of what `resolve_files` gives.
        options: how the files are read.

    Files are read from the first on, until a document has a value.
    """
    wanted = options.model_copy(update={"id_column": column})  # a value is read as an id would be
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
