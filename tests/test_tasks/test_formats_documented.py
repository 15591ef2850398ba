"""docs/formats.md says what the code writes: every kind, every table, every column, every reason."""

import re
from pathlib import Path

import pyarrow as pa
import pytest

from tests.test_tasks.golden import all_stages
from tokmill.tasks.audit.stage import TABLES as AUDIT_TABLES
from tokmill.tasks.formats.packed.columnar import SEQUENCE_SCHEMA
from tokmill.tasks.formats.packed.pieces import PIECE_SCHEMA
from tokmill.tasks.formats.text.quarantine import REASONS
from tokmill.tasks.store.lineage_views import VIEWS as CATALOG_VIEWS
from tokmill.tasks.store.record import Record
from tokmill.tasks.store.tables import TABLES as CATALOG_TABLES
from tokmill.tasks.sweep.stage import CELLS, LANGUAGES, SOURCES
from tokmill.tasks.usage.tables import TABLES as USAGE_TABLES


@pytest.fixture(scope="module")
def page(checkout: Path) -> str:
    return (checkout / "docs" / "formats.md").read_text(encoding="utf-8")


def rows(page: str) -> dict[str, str]:
    """The tables' rows by what their first cell holds in backquotes, the last one of a name."""
    return dict(re.findall(r"^\| `([\w./]+)` \|(.*)\|$", page, flags=re.MULTILINE))


def test_every_kind_of_artifact_has_its_part(page: str) -> None:
    headings = re.findall(r"^## (.+)$", page, flags=re.MULTILINE)

    kinds = {stage.kind for stage in all_stages().values()}
    assert kinds <= {kind for heading in headings for kind in heading.split(", ")}


@pytest.mark.parametrize("table", [*CATALOG_TABLES, *CATALOG_VIEWS])
def test_a_catalog_table_is_listed_with_its_columns_in_order(page: str, table: str) -> None:
    columns = re.sub(r" \(.*?\)", "", rows(page)[table].split("|")[-1])

    assert [column.strip() for column in columns.split(",")] == list(
        CATALOG_TABLES[table] if table in CATALOG_TABLES else CATALOG_VIEWS[table]
    )


def test_every_field_of_a_record_is_listed(page: str) -> None:
    part = page.partition("### record.json")[2].partition("###")[0]

    assert set(Record.model_fields) == set(
        re.findall(r"`(\w+)`", "".join(re.findall(r"^\|[^|]+", part, re.M)))
    )


def test_every_reason_for_a_bad_document_is_listed(page: str) -> None:
    sentence = re.search(r"A bad document has a reason: (.*?)\.", page, flags=re.DOTALL)

    assert sentence is not None
    assert re.findall(r"`(\w+)`", sentence[1]) == list(REASONS)


def test_the_columns_of_a_packing_plan_are_listed(page: str) -> None:
    part = page.partition("## pack_plan")[2].partition("## packed_shard")[0]
    listed = [name for cell in re.findall(r"^\|([^|]+)", part, re.M) for name in re.findall(r"`(\w+)`", cell)]

    assert listed == PIECE_SCHEMA.names


def test_the_columns_of_packed_parquet_are_listed(page: str) -> None:
    assert ", ".join(SEQUENCE_SCHEMA.names) in page


@pytest.mark.parametrize("table", [*AUDIT_TABLES, *USAGE_TABLES])
def test_the_audits_tables_are_listed(page: str, table: str) -> None:
    assert f"catalog/{table}.parquet" in rows(page)


@pytest.mark.parametrize(
    ("table", "schema"), [("cells", CELLS), ("sources", SOURCES), ("languages", LANGUAGES)]
)
def test_a_sweeps_tables_are_listed_with_their_columns(page: str, table: str, schema: pa.Schema) -> None:
    assert rows(page)[f"catalog/sweep_{table}.parquet"].split("|")[-1].strip() == ", ".join(schema.names)
