"""The columns of artifacts, and which columns they come from, where that means something.

Columns are read from the headers of an artifact's files, as far as they are local: of a store behind a URL,
nothing is fetched for this. Text and token ids are columns, too, whatever the format: `text` of a corpus,
which points at files, and `input_ids` of what is packed.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow.parquet as pq

from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store
from tokmill.tasks.store.record import InputEntry, Record

TEXT: Final = "text"
_TOKENS: Final = "input_ids"
_NUMBER = re.compile(r"\d+")


class Field(NamedTuple):
    """A column: its name, its type in Arrow's words, and the file that has it."""

    name: str
    type: str
    where: str | None = None


_POINTED_AT: Final[Mapping[str, Sequence[Field]]] = {
    "corpus": [Field(TEXT, "string", "the files that the corpus points at")],
    "packed": [Field(_TOKENS, "integer", "the packed sequences")],
    "packed_shard": [Field(_TOKENS, "integer", "the packed sequences")],
}

FIELDS: Final[Mapping[str, Mapping[str, tuple[str, str, str]]]] = {
    "corpus": {TEXT: ("", TEXT, "IDENTITY")},
    "counts_shard": {
        "pretoken": ("corpus", TEXT, "TRANSFORMATION"),
        "count": ("corpus", TEXT, "AGGREGATION"),
    },
    "counts": {
        "pretoken": ("counts_shard", "pretoken", "IDENTITY"),
        "count": ("counts_shard", "count", "AGGREGATION"),
    },
    "encoded_shard": {"tokens": ("corpus", TEXT, "TRANSFORMATION")},
    "packed_shard": {_TOKENS: ("encoded_shard", "tokens", "IDENTITY")},
    "packed": {_TOKENS: ("packed_shard", _TOKENS, "IDENTITY")},
}
"""By kind and column: the kind and column that it is made of (a file for no kind), and how."""


def columns_of(store: Store, record: Record) -> list[Field]:
    """Return the columns of an artifact, each once; files that differ only by numbers count as one."""
    place, seen = store.layout.artifact(record.kind, record.fingerprint), set[str]()
    fields = list(_POINTED_AT.get(record.kind, ()))
    for entry in record.files:
        pattern = _NUMBER.sub("0", entry.path)
        if pattern not in seen and (place / entry.path).is_file():
            seen.add(pattern)
            fields += _columns(place / entry.path, entry.path)
    return list({field.name: field for field in reversed(fields)}.values())[::-1]


def _columns(path: Path, where: str) -> Iterator[Field]:
    if path.suffix == ".parquet":
        for column in pq.read_schema(path):
            yield Field(column.name, str(column.type), where)
    elif path.suffix == ".npy":
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        yield Field(path.name.split(".")[-2].split("/")[-1], str(array.dtype), where)


def origins(record: Record, kind: str, lists: Sequence[ArtifactRef]) -> Iterator[InputEntry]:
    """Yield the inputs of an artifact that have a kind; for no kind, the files.

    Args:
        record: of the artifact.
        kind: of the inputs.
        lists: artifacts that list inputs which are none themselves.
    """
    for entry in record.inputs:
        if (entry.kind or "") == kind:
            yield entry
    for ref in lists:
        if ref.kind == kind:
            yield InputEntry(
                role="lists",
                digest=ref.content_digest,
                kind=ref.kind,
                name=ref.name,
                fingerprint=ref.fingerprint,
            )
