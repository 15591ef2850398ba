"""docs/formats.md says what the code writes; the sample texts and the guides' pictures are what is said."""

import importlib
import re
import unicodedata
from pathlib import Path

import pyarrow as pa
import pytest

from tests.test_tasks.golden import all_stages
from tokmill.tasks.audit.report.tables import SCHEMAS
from tokmill.tasks.audit.stage import TABLES as AUDIT_TABLES
from tokmill.tasks.formats.packed.columnar import SEQUENCE_SCHEMA
from tokmill.tasks.formats.packed.pieces import PIECE_SCHEMA
from tokmill.tasks.formats.text.quarantine import REASONS
from tokmill.tasks.store.record import Record
from tokmill.tasks.store.tables import TABLES as CATALOG_TABLES
from tokmill.tasks.store.tables import VIEWS as CATALOG_VIEWS
from tokmill.tasks.sweep.stage import CELLS, LANGUAGES, SOURCES
from tokmill.tasks.usage.tables import SCHEMAS as USAGE_TABLES


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
    columns = re.findall(
        r"\w+", re.sub(r"\(.*?\)", "", rows(page)[f"catalog/{table}.parquet"].split("|")[-1])
    )
    unlisted = [name for name in getattr(SCHEMAS.get(table), "names", ()) if name not in columns]
    assert unlisted == [], f"docs/formats.md, row catalog/{table}.parquet"


@pytest.mark.parametrize(
    ("table", "schema"), [("cells", CELLS), ("sources", SOURCES), ("languages", LANGUAGES)]
)
def test_a_sweeps_tables_are_listed_with_their_columns(page: str, table: str, schema: pa.Schema) -> None:
    assert rows(page)[f"catalog/sweep_{table}.parquet"].split("|")[-1].strip() == ", ".join(schema.names)


# Names of scripts as they begin the names of their characters in the Unicode database.
SCRIPTS = {
    **{key: {"LATIN"} for key in ("de", "es", "fi", "fr", "pl", "pt", "sw", "tr", "vi")},
    **{"am": {"ETHIOPIC"}, "ar": {"ARABIC"}, "bn": {"BENGALI"}, "el": {"GREEK"}, "he": {"HEBREW"}},
    **{"hi": {"DEVANAGARI"}, "ja": {"CJK", "HIRAGANA", "KATAKANA"}, "ka": {"GEORGIAN"}, "ko": {"HANGUL"}},
    **{"ru": {"CYRILLIC"}, "th": {"THAI"}, "uk": {"CYRILLIC"}, "zh": {"CJK"}},
}


@pytest.fixture(scope="module")
def samples(checkout: Path) -> Path:
    return checkout / "profiles" / "samples"


def scripts(text: str) -> set[str]:
    """The scripts of the letters and marks of a text; digits, punctuation and spaces have none."""
    written = {char for char in text if unicodedata.category(char)[0] in "LM"}
    return {re.split("[ -]", unicodedata.name(char))[0] for char in written}


def test_at_least_sixteen_languages_and_nine_scripts(samples: Path) -> None:
    found = {path.stem: scripts(path.read_text(encoding="utf-8")) for path in samples.glob("*.txt")}

    assert found == SCRIPTS
    assert len(found) >= 16
    assert len(set().union(*found.values())) >= 9


@pytest.mark.parametrize("language", SCRIPTS)
def test_text_is_normalized_utf8_with_one_newline_at_the_end(samples: Path, language: str) -> None:
    text = (samples / f"{language}.txt").read_bytes().decode("utf-8", errors="strict")

    assert unicodedata.is_normalized("NFC", text)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")
    assert not {char for char in text if unicodedata.category(char) in {"Cc", "Cf", "Co", "Cn"}} - {"\n"}


def test_the_readme_lists_every_file_and_no_other(samples: Path) -> None:
    readme = (samples / "README.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| `(\w+)\.txt` \|", readme, flags=re.MULTILINE)

    assert listed == sorted(SCRIPTS)


@pytest.fixture(params=["packing", "mixing", "tokenizers"])
def drawing(request, checkout, monkeypatch):
    """A page's text, and the script that draws its pictures."""
    monkeypatch.syspath_prepend(str(checkout / "docs"))
    page = (checkout / "docs" / f"{request.param}.md").read_text(encoding="utf-8")
    return page, importlib.import_module(f"draw_{request.param}")


@pytest.mark.slow
def test_the_pictures_are_up_to_date(checkout, drawing):
    _, script = drawing
    svg = importlib.import_module("drawing").svg
    for name, draw in script.PICTURES.items():
        kept = (checkout / "docs" / "pictures" / name).read_text(encoding="utf-8")
        assert kept == svg(draw()), f"run: python docs/{script.__name__}.py"


def test_the_page_shows_them_all(drawing):
    page, script = drawing
    assert script.PICTURES
    assert all(f"(pictures/{name})" in page for name in script.PICTURES)
