"""Artifacts and files of text as datasets of OpenLineage.

A dataset has a name and many versions: `kind/name` in a store, whose versions are artifacts, by their content
digests; or a file, whose version is its digest. Names follow https://openlineage.io/docs/spec/naming: the
namespace `file` with an absolute path, or `s3://bucket` with a key.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import pyarrow.parquet as pq
from openlineage.client import facet_v2 as facets
from openlineage.client.event_v2 import InputDataset, OutputDataset

from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store
from tokmill.tasks.store.record import InputEntry, Record

PRODUCER: Final = f"pkg:pypi/tokmill@{metadata.version('tokmill')}"
"""The URI by which events and facets say who made them: a package URL, which needs no server."""
facets.set_producer(PRODUCER)

_ROWS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("corpus", "hashes_shard", "encoded_shard", "encoded", "mixture"), "num_documents"),
    **dict.fromkeys(("pack_plan", "packed_shard", "packed"), "num_sequences"),
    "counts_shard": "num_distinct",
    "counts": "num_distinct_by_source",
    "tokenizer": "vocab_size",
}
"""By kind, the metric that counts what an artifact consists of; other kinds have no rows."""
_POINTED_AT: Final = {
    "corpus": ("text", "string", "the files that the corpus points at"),
    "packed": ("input_ids", "integer", "the packed sequences"),
    "packed_shard": ("input_ids", "integer", "the packed sequences"),
}
"""Columns whatever the format: name, type, and where they are."""
_ORIGINS: Final[Mapping[str, Mapping[str, tuple[str, str, str]]]] = {
    "corpus": {"text": ("", "text", "IDENTITY")},
    "counts_shard": {
        "pretoken": ("corpus", "text", "TRANSFORMATION"),
        "count": ("corpus", "text", "AGGREGATION"),
    },
    "counts": {
        "pretoken": ("counts_shard", "pretoken", "IDENTITY"),
        "count": ("counts_shard", "count", "AGGREGATION"),
    },
    "encoded_shard": {"tokens": ("corpus", "text", "TRANSFORMATION")},
    "packed_shard": {"input_ids": ("encoded_shard", "tokens", "IDENTITY")},
    "packed": {"input_ids": ("packed_shard", "input_ids", "IDENTITY")},
}
"""By kind and column: the kind and column that it is made of (a file for no kind), and how."""


def named(location: str) -> tuple[str, str]:
    """Return the namespace and the name of a path or URL."""
    if "://" not in location:
        return "file", str(Path(location).absolute())
    parts = urlsplit(location)
    if parts.scheme == "file":
        return "file", parts.path
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{parts.hostname or ''}{port}", parts.path.lstrip("/")


class Datasets:
    """The datasets of one store; `lists` are artifacts that list inputs which are none themselves."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._namespace, self._base = named(store.location)

    def promised(self, kind: str, name: str) -> OutputDataset:
        """Return the output of a task that has not ended; it has no version yet."""
        return OutputDataset(*self._place(kind, name))

    def output(self, record: Record, lists: Sequence[ArtifactRef]) -> OutputDataset:
        """Return an artifact as the output of the task that made it."""
        statistics = facets.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet
        return OutputDataset(
            *self._place(record.kind, record.name),
            facets=self._facets(record, lists),
            outputFacets={"outputStatistics": statistics(**_statistics(record))},
        )

    def inputs(self, entries: Sequence[InputEntry], lists: Sequence[ArtifactRef]) -> list[InputDataset]:
        """Return inputs that are artifacts or files."""
        made = [self._input(entry) for entry in entries if entry.ref or entry.origin]
        return made + [self._artifact(ref) for ref in lists]

    def _input(self, entry: InputEntry) -> InputDataset:
        if entry.ref is not None:
            return self._artifact(entry.ref)
        return InputDataset(*named(entry.origin or ""), facets={"version": _version(entry.digest)})

    def _artifact(self, ref: ArtifactRef) -> InputDataset:
        statistics = facets.input_statistics_input_dataset.InputStatisticsInputDatasetFacet
        return InputDataset(
            *self._place(ref.kind, ref.name),
            facets={"version": _version(ref.content_digest)},
            inputFacets={"inputStatistics": statistics(**_statistics(self._store.record(ref)))},
        )

    def _place(self, kind: str, name: str) -> tuple[str, str]:
        path = f"{self._base.rstrip('/')}/{kind}/{name}"
        return self._namespace, path if self._namespace == "file" else path.lstrip("/")

    def _facets(self, record: Record, lists: Sequence[ArtifactRef]) -> dict[str, Any]:
        tags = {"kind": record.kind, "label": record.label, "fingerprint": record.fingerprint}
        tag, of = facets.tags_dataset.TagsDatasetFacetFields, facets.schema_dataset
        columns = [of.SchemaDatasetFacetFields(*each) for each in self._columns(record)]
        found = {
            "version": _version(record.content_digest),
            "datasetType": facets.dataset_type_dataset.DatasetTypeDatasetFacet("FILE"),
            "tags": facets.tags_dataset.TagsDatasetFacet([tag(*pair, "TOKMILL") for pair in tags.items()]),
        }
        if columns:
            found["schema"] = of.SchemaDatasetFacet(columns)
        if lineage := dict(self._lineage(record, lists)):
            found["columnLineage"] = facets.column_lineage_dataset.ColumnLineageDatasetFacet(lineage)
        return found

    def _columns(self, record: Record) -> list[tuple[str, str, str]]:
        """Return name, type and file of each column; files that differ only by numbers count as one."""
        folder = self._store.layout.artifact(record.kind, record.fingerprint)
        alike = {re.sub(r"\d+", "0", entry.path): entry.path for entry in reversed(record.files)}
        columns = [_POINTED_AT[record.kind]] if record.kind in _POINTED_AT else []
        for path in reversed(alike.values()):
            if (folder / path).is_file():
                columns += _headers(folder / path, path)
        return list({column[0]: column for column in reversed(columns)}.values())[::-1]

    def _lineage(
        self, record: Record, lists: Sequence[ArtifactRef]
    ) -> Iterator[tuple[str, facets.column_lineage_dataset.Fields]]:
        of = facets.column_lineage_dataset
        for column, (kind, field, subtype) in _ORIGINS.get(record.kind, {}).items():
            how = [of.Transformation("DIRECT", subtype)]
            inputs: list[InputEntry | ArtifactRef] = [*record.inputs, *lists]
            names = [entry.name for entry in inputs if entry.kind == kind and entry.name]
            files = [entry.origin for entry in record.inputs if not kind and not entry.kind and entry.origin]
            places = dict.fromkeys([*(self._place(kind, name) for name in names), *map(named, files)])
            if places:
                fields = [of.InputField(*place, field, transformations=how) for place in places]
                yield column, of.Fields(fields)


def _headers(path: Path, name: str) -> Iterator[tuple[str, str, str]]:
    if path.suffix == ".parquet":
        for column in pq.read_schema(path):
            yield column.name, str(column.type), name
    elif path.suffix == ".npy":
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        yield path.name.split(".")[-2], str(array.dtype), name


def _version(digest: str) -> Any:
    return facets.dataset_version_dataset.DatasetVersionDatasetFacet(digest)


def _statistics(record: Record) -> dict[str, Any]:
    number: Any = record.metrics.get(_ROWS.get(record.kind, ""))
    rows = None if number is None else int(number)
    return {"rowCount": rows, "size": record.num_bytes, "fileCount": len(record.files)}
