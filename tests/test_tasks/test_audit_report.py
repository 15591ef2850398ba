"""The audit's report: what the page shows without JavaScript, its charts, and what a browser makes of it."""

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from pyarrow import parquet
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.test_flows.page import open_browser
from tests.test_tasks.audited import audited
from tests.test_tasks.pages import assert_accessible, assert_plain, assert_quiet, in_browser, needs_axe
from tokmill import tokenizer
from tokmill.tasks.audit.report import write_report
from tokmill.tasks.audit.report.report import charts_of
from tokmill.tasks.audit.report.tables import Tables
from tokmill.tasks.core.errors import AuditError, StoreError
from tokmill.tasks.core.markdown import number
from tokmill.tasks.pages.charts import Bar, Bars, Curves, svg_of

ENGLISH = ["the cat sat on the mat", "a <b>bold</b> cat & the hat", "the cats sat"]
GERMAN = ["die Katze saß auf der Matte", "eine Katze & der Hut", "die Katzen saßen"]
TOK = tokenizer.train(ENGLISH + GERMAN, vocab_size=290, split_pattern="gpt2", special_tokens=["<|end|>"])
TEXTS = {"eng": ENGLISH, "deu": GERMAN}


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = audited(tmp_path_factory.mktemp("audits") / "audit", TOK, TEXTS, TEXTS)
    return write_report(folder, folder, tokenizer=TOK, usage=folder)


class Reader(HTMLParser):
    """Collects the rows of tables."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.cell = False

    def handle_starttag(self, tag, attrs) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
            self.cell = True

    def handle_endtag(self, tag) -> None:
        self.cell = self.cell and tag not in {"td", "th"}

    def handle_data(self, data) -> None:
        if self.cell:
            self.rows[-1][-1] += data


def rows_of(page: Path) -> list[list[str]]:
    reader = Reader()
    reader.feed(page.read_text("utf-8"))
    return reader.rows


def test_the_page_has_the_figures_of_the_tables(report: Path) -> None:
    rows, tables = rows_of(report), Tables(report.parent, report.parent)
    for row in tables.rows("vocab_parity")[:2]:
        shown = next(found for found in rows if found[0] == row["language"] and len(found) == 7)
        assert shown[1:3] == [number(row["num_tokens"]), number(row["premium"])]
    for row in tables.rows("vocab_suspects", 20):
        assert [str(row["rank"]), number(row["token_id"]), row["text"]] in [found[:3] for found in rows]


def test_the_page_loads_nothing_and_is_the_same_again(report: Path, tmp_path: Path) -> None:
    assert_plain(report.read_text("utf-8"))
    again = write_report(report.parent, tmp_path, tokenizer=TOK, usage=report.parent)
    assert again.read_bytes() == report.read_bytes()
    assert sorted(path.name for path in (tmp_path / "charts").glob("*.svg")) == [
        *("bytes-per-token.svg", "fertility.svg", "frequencies.svg", "lengths.svg", "premium.svg"),
        "scripts.svg",
    ]


def test_what_was_not_measured_is_a_gap_and_nothing_is_nan(tmp_path: Path) -> None:
    folder = audited(tmp_path / "audit", TOK, {"eng": ENGLISH, "none": []})
    page = write_report(folder, folder, tokenizer=TOK).read_text("utf-8")
    assert "nothing was encoded" in page.lower()  # so suspects are unknown
    assert "No parallel text" in page
    assert_plain(page)


def test_what_is_no_audit_or_of_another_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"summary\.json"):
        write_report(tmp_path, tmp_path, tokenizer=TOK)
    file = audited(tmp_path, TOK, {"eng": ENGLISH}) / "catalog" / "vocab_tokens.parquet"
    tokens = parquet.read_table(file)
    kind = tokens.column_names.index("kind")
    for other in (tokens.remove_column(kind), tokens.set_column(kind, "kind", pa.array([1] * len(tokens)))):
        parquet.write_table(other, file)
        with pytest.raises(AuditError, match=r"vocab_tokens\.parquet has no 'kind' of type string; make"):
            write_report(tmp_path, tmp_path, tokenizer=TOK)
    file.write_bytes(b"no table")
    with pytest.raises(StoreError, match=r"vocab_tokens\.parquet.* not a readable table"):
        write_report(tmp_path, tmp_path, tokenizer=TOK)


def test_bars_are_sorted(report: Path) -> None:
    for chart in charts_of(Tables(report.parent)):
        values = [bar.value for bar in chart.bars] if isinstance(chart, Bars) else []
        assert values == sorted(values, reverse=True), chart.title


def test_bars_by_hand() -> None:
    bars = Bars("b", "B", "x", (Bar("a<b", 2.0, 1.0, 4.0), Bar("c", 1.0)), reference=1.0)
    drawn = ElementTree.fromstring(svg_of(bars, alone=True))
    first, second = drawn.findall("{*}rect")
    # 460 units less 118 for labels and 58 for values are 4.0, the greatest end of an interval
    assert (first.get("width"), second.get("width")) == ("142.0", "71.0")
    whisker = next(line for line in drawn.findall("{*}line") if line.get("class") == "whisker")
    assert (whisker.get("x1"), whisker.get("x2")) == ("189.0", "402.0")


def test_every_line_has_a_style_of_its_own_and_no_text_is_cut() -> None:
    name = "a source whose name is far longer than the picture was wide before it was given room"
    lines = {f"{name} {k}": [(1, 10 + k), (10, 1 + k)] for k in range(12)}
    drawn = ElementTree.fromstring(svg_of(Curves("c", "C", "rank", "occurrences", lines), alone=True))
    styles = [line.get("class") for line in drawn.findall("{*}polyline")]
    assert len({*styles}) == 12
    assert [text.text for text in drawn.findall("{*}text")][-12:] == [*lines]
    assert int(drawn.get("viewBox").split()[2]) > 6 * len(name)
    bars = ElementTree.fromstring(svg_of(Bars("b", "B", "x", (Bar(name, 1.0),)), alone=True))
    assert name in [text.text for text in bars.findall("{*}text")]
    assert float(bars.find("{*}rect").get("x")) > 6 * len(name)


@pytest.fixture
def page(report: Path, tmp_path: Path) -> Iterator[webdriver.Chrome]:
    with open_browser(tmp_path) as browser:
        browser.get(report.as_uri())
        size = len(Tables(report.parent, report.parent).tables["vocab_tokens"])
        found = browser.find_element(By.ID, "found")
        WebDriverWait(browser, 60).until(lambda _: found.text == f"{size} of {size} tokens")
        yield browser


def enter(browser: webdriver.Chrome, name: str, text: str) -> None:
    """Give a field a text, as typing does; a driver cannot type characters beyond the first 65,536."""
    browser.execute_script(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
        "e.dispatchEvent(new Event('input'))",
        *(name, text),
    )


@in_browser
def test_the_table_of_tokens_in_a_browser(page: webdriver.Chrome) -> None:
    page.execute_script("const g = document.getElementById('grid'); g.scrollTop = g.scrollHeight")
    WebDriverWait(page, 60).until(lambda _: str(TOK.vocab_size - 2) in page.find_element(By.ID, "rows").text)
    enter(page, "search", "/^the$/")
    assert page.find_element(By.ID, "found").text.startswith("1 of ")
    page.find_elements(By.CSS_SELECTOR, "#rows button")[-1].click()
    tree = page.find_element(By.ID, "tree").text.split("\n")
    assert [line.split(" ")[0] for line in tree] == ["the", "th", "t", "h", "e"]
    assert_quiet(page)


@in_browser
@needs_axe
def test_accessibility(page: webdriver.Chrome) -> None:
    assert_accessible(page)
