"""Artifacts and files of text as datasets of OpenLineage.

A dataset is what has a name and many versions: `kind/name` in a store, of which an artifact is one version,
by its content digest; or a file, whose version is its digest. Names follow OpenLineage's conventions: the
namespace `file` with an absolute path, or `s3://bucket` with a key.

Source: https://openlineage.io/docs/spec/naming
"""

from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from openlineage.client.event_v2 import InputDataset, OutputDataset
from openlineage.client.facet_v2 import (
    DatasetFacet,
    column_lineage_dataset,
    dataset_type_dataset,
    dataset_version_dataset,
    input_statistics_input_dataset,
    output_statistics_output_dataset,
    schema_dataset,
    tags_dataset,
)

from tokmill.flows.tracking.columns import FIELDS, Field, columns_of, origins
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store
from tokmill.tasks.store.record import InputEntry, Record

PRODUCER: Final = f"pkg:pypi/tokmill@{metadata.version('tokmill')}"
"""The URI by which events and facets say who made them: a package URL, which needs no server."""

_ROWS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("corpus", "hashes_shard", "encoded_shard", "encoded", "mixture"), "num_documents"),
    **dict.fromkeys(("pack_plan", "packed_shard", "packed"), "num_sequences"),
    "counts_shard": "num_distinct",
    "counts": "num_distinct_by_source",
    "tokenizer": "vocab_size",
}
"""By kind, the metric that counts what an artifact consists of; other kinds have no rows."""


def named(location: str) -> tuple[str, str]:
    """Return the namespace and the name of a path or URL."""
    if "://" not in location:
        return "file", str(Path(location).absolute())
    parts = urlsplit(location)
    if parts.scheme == "file":
        return "file", parts.path
    return f"{parts.scheme}://{parts.hostname or ''}{_port(parts.port)}", parts.path.lstrip("/")


def _port(port: int | None) -> str:
    return "" if port is None else f":{port}"


class Datasets:
    """The datasets of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._namespace, self._base = named(store.location)

    def name_of(self, kind: str, name: str) -> str:
        """Return the name of the dataset whose versions are the artifacts of a kind and name."""
        return f"{self._base.rstrip('/')}/{kind}/{name}".lstrip("" if self._namespace == "file" else "/")

    def output(self, record: Record, lists: Sequence[ArtifactRef] = ()) -> OutputDataset:
        """Return an artifact as the output of the task that made it; see `Asked.lists`."""
        statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=_num_rows(record),
            size=record.num_bytes,
            fileCount=len(record.files),
            producer=PRODUCER,
        )
        return OutputDataset(
            self._namespace,
            self.name_of(record.kind, record.name),
            facets=self._facets(record, lists),
            outputFacets={"outputStatistics": statistics},
        )

    def promised(self, kind: str, name: str) -> OutputDataset:
        """Return the output of a task that has not ended; it has no version yet."""
        return OutputDataset(self._namespace, self.name_of(kind, name))

    def input(self, entry: InputEntry) -> InputDataset | None:
        """Return an input; None for one that is neither an artifact nor a file."""
        if entry.ref is not None:
            return self.artifact(entry.ref)
        if entry.origin is None:
            return None
        namespace, name = named(entry.origin)
        return InputDataset(namespace, name, facets={"version": _version(entry.digest)})

    def artifact(self, ref: ArtifactRef) -> InputDataset:
        """Return an artifact as an input."""
        record = self._store.record(ref)
        statistics = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
            rowCount=_num_rows(record),
            size=record.num_bytes,
            fileCount=len(record.files),
            producer=PRODUCER,
        )
        return InputDataset(
            self._namespace,
            self.name_of(ref.kind, ref.name),
            facets={"version": _version(ref.content_digest)},
            inputFacets={"inputStatistics": statistics},
        )

    def _facets(self, record: Record, lists: Sequence[ArtifactRef]) -> dict[str, DatasetFacet]:
        tags = {"kind": record.kind, "label": record.label, "fingerprint": record.fingerprint}
        facets: dict[str, DatasetFacet] = {
            "version": _version(record.content_digest),
            "datasetType": dataset_type_dataset.DatasetTypeDatasetFacet(
                datasetType="FILE", producer=PRODUCER
            ),
            "tags": tags_dataset.TagsDatasetFacet(
                tags=[
                    tags_dataset.TagsDatasetFacetFields(key, value, "TOKMILL") for key, value in tags.items()
                ],
                producer=PRODUCER,
            ),
        }
        fields = columns_of(self._store, record)
        if fields:
            facets["schema"] = schema_dataset.SchemaDatasetFacet(
                fields=[_field(each) for each in fields], producer=PRODUCER
            )
        lineage = dict(self._lineage(record, lists))
        if lineage:
            facets["columnLineage"] = column_lineage_dataset.ColumnLineageDatasetFacet(
                fields=lineage, producer=PRODUCER
            )
        return facets

    def _lineage(
        self, record: Record, lists: Sequence[ArtifactRef]
    ) -> Iterator[tuple[str, column_lineage_dataset.Fields]]:
        for column, (kind, field, subtype) in FIELDS.get(record.kind, {}).items():
            how = [column_lineage_dataset.Transformation("DIRECT", subtype)]
            places = dict.fromkeys(self._place(entry) for entry in origins(record, kind, lists))
            found = [
                column_lineage_dataset.InputField(*place, field, transformations=how)
                for place in places
                if place
            ]
            if found:
                yield column, column_lineage_dataset.Fields(found)

    def _place(self, entry: InputEntry) -> tuple[str, str] | None:
        if entry.kind is not None and entry.name is not None:
            return self._namespace, self.name_of(entry.kind, entry.name)
        return None if entry.origin is None else named(entry.origin)


def _version(digest: str) -> dataset_version_dataset.DatasetVersionDatasetFacet:
    return dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=digest, producer=PRODUCER)


def _field(field: Field) -> schema_dataset.SchemaDatasetFacetFields:
    return schema_dataset.SchemaDatasetFacetFields(name=field.name, type=field.type, description=field.where)


def _num_rows(record: Record) -> int | None:
    metrics: Mapping[str, Any] = record.metrics
    number = metrics.get(_ROWS.get(record.kind, ""))
    return None if number is None else int(number)
