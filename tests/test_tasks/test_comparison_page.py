"""The page of a comparison of runs: what it shows without JavaScript, and what a browser makes of it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.test_flows.page import open_browser
from tests.test_tasks.pages import assert_accessible, assert_plain, assert_quiet, in_browser, needs_axe
from tests.test_tasks.store_stages import ask
from tokmill.tasks.comparing.page import page_of, write_page
from tokmill.tasks.comparing.runs import Comparison
from tokmill.tasks.store import RunArtifact, Store
from tokmill.tasks.store.runs import Begun, Found, read_run, run_path


class Ran(NamedTuple):
    """A run: its id, its name, the text that it made, parameters and metrics."""

    run_id: str
    name: str
    text: str
    parameters: dict[str, Any]
    metrics: dict[str, Any]
    failed: str = ""


def compared(folder: Path, *runs: Ran) -> Comparison:
    """Runs of a store that has no others."""
    store = Store.open(folder)
    for run in runs:
        store.catalog.add_run(run.run_id, begun=Begun(name=run.name, profile="p", parameters=run.parameters))
        made = [RunArtifact(task="write", ref=store.realize(ask("one", text=run.text)).ref, how="made")]
        state, found = "failed" if run.failed else "completed", Found(made, metrics=run.metrics)
        store.catalog.finish_run(run.run_id, state=state, message=run.failed, found=found)
    return Comparison(store, [read_run(run_path(store.layout.runs, run.run_id)) for run in runs])


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    figures = [
        {"audit.bytes_per_token": 3.5, "audit.fertility": 1.5, "balance.method": "x"},
        {"audit.bytes_per_token": 4.25, "audit.fertility": 1.25, "balance.method": "y"},
        {"audit.bytes_per_token": 4.0, "balance.method": "x"},
    ]
    parameters = [{"balance": {"temperature": value}, "name": "p"} for value in (2.0, 5.0, 1.0)]
    names = (
        ("aaaaaaaa-1", "p a", "a"),
        ("aaaaaaaa-2", "p <b>bb</b>", "<b>bb</b>"),
        ("bbbbbbbb-3", "p bb", "bb"),
    )
    runs = (Ran(*name, *more) for name, *more in zip(names, parameters, figures, strict=True))
    return compared(tmp_path_factory.mktemp("store"), *runs)


@pytest.fixture(scope="module")
def page(comparison: Comparison, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "comparison.html"
    write_page(comparison, path)
    return path


def test_the_page_has_all_tables_without_javascript_and_loads_nothing(
    comparison: Comparison, page: Path
) -> None:
    text = page.read_text("utf-8")
    body = text.split("<script")[0]

    assert text == page_of(comparison)
    for shown in ("write.text a → ", "balance.temperature", "+21.4 %", "text/one@v1", "aaaaaaaa-1"):
        assert shown in body
    assert "<b>bb" not in text
    assert_plain(text)


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with open_browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


def shown(browser: webdriver.Chrome, page: Path) -> webdriver.Chrome:
    """The browser as it opens a page."""
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(page.as_uri())
    WebDriverWait(browser, 60).until(lambda _: browser.find_elements(By.CSS_SELECTOR, "#points circle"))
    return browser


@pytest.fixture
def browser(opened: webdriver.Chrome, page: Path) -> webdriver.Chrome:
    return shown(opened, page)


def first_column(browser: webdriver.Chrome) -> list[str]:
    return [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "#table tbody th")]


NUM_MANY = 12
LONG = [f"a text that is far too long for the room between two axes {number}" for number in range(NUM_MANY)]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Twelve runs with seeds of 64 bits, texts, and a parameter of both kinds; the first one failed."""
    runs = []
    for number in range(NUM_MANY):
        mix = {"seed": 2**63 - 1 - number, "note": LONG[number], "size": "all" if number == 5 else number}
        named = {f"a_source_with_a_name_of_many_words_{k}": number * k for k in range(20)}
        given = {"mix": mix, "sources": named}, {"m.a": number, "m.b": -number}
        failed = "" if number else "the disk is full"
        runs.append(Ran(f"{number:08d}", f"run {number}", str(number % 3), *given, failed))
    return compared(tmp_path_factory.mktemp("many"), *runs)


def test_of_many_runs_the_reasons_are_folded_and_the_end_of_the_first_is_told_once(many: Comparison) -> None:
    text = page_of(many)

    assert text.count("the disk is full") == 1
    assert text.count("<details><summary>000000") == NUM_MANY - 1
    assert "<summary>00000001 · run 1: 1 cause</summary>" in text
    assert "<summary>00000003 · run 3: no artifact differs</summary>" in text


def test_of_many_runs_all_are_on_paper_a_few_beside_the_first(many: Comparison) -> None:
    for section in ("parameters", "artifacts", "metrics"):
        body = page_of(many).split(f'<section id="{section}">')[1].split("</section>")[0]
        screen, paper = body.split('<div class="paper">')
        heads = [
            re.findall(r'<th scope="col"[^>]*>(\d{8})', part) for part in (screen, *paper.split("<table>"))
        ]
        every = [run.run_id for run in many.runs]
        assert heads[0] == every, section
        assert sorted({head for found in heads[2:] for head in found}) == every
        assert all(found[0] == every[0] and 1 < len(found) <= 5 for found in heads[2:])


@pytest.fixture
def of_many(many: Comparison, opened: webdriver.Chrome, tmp_path: Path) -> webdriver.Chrome:
    write_page(many, tmp_path / "many.html")
    return shown(opened, tmp_path / "many.html")


def column_of(browser: webdriver.Chrome, name: str) -> list[str]:
    heads = [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "#table thead th")]
    rows = browser.find_elements(By.CSS_SELECTOR, "#table tbody tr")
    return [row.find_elements(By.CSS_SELECTOR, "th, td")[heads.index(name)].text for row in rows]


@in_browser
def test_seeds_have_all_their_digits_and_numbers_come_before_words(of_many: webdriver.Chrome) -> None:
    assert column_of(of_many, "mix.seed") == [f"{2**63 - 1 - number:,}" for number in range(NUM_MANY)]

    of_many.find_element(By.CSS_SELECTOR, '[data-sort="mix.size"]').send_keys(Keys.ENTER, Keys.ENTER)

    assert column_of(of_many, "mix.size") == [*(str(n) for n in range(NUM_MANY) if n != 5), "all"]


@in_browser
def test_paper_has_the_table_of_runs_and_the_pictures(of_many: webdriver.Chrome) -> None:
    of_many.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})

    places = ("#runs .without table", "#points svg", "#lines svg", "#metrics .paper", "#metrics .screen")
    displayed = [of_many.find_element(By.CSS_SELECTOR, place).is_displayed() for place in places]

    assert displayed == [True, True, True, True, False]
    reasons = of_many.find_element(By.CSS_SELECTOR, "#why details li")
    assert reasons.size["height"] > 0


@in_browser
def test_on_a_narrow_screen_nothing_reaches_over_the_edge(of_many: webdriver.Chrome) -> None:
    narrow = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    of_many.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", narrow)

    edges = of_many.execute_script(
        "return [...document.querySelectorAll('select')].map(one => one.getBoundingClientRect().right)"
    )
    names = of_many.find_element(By.CSS_SELECTOR, "#parameters tbody th")

    assert len(edges) == 3
    assert max(edges) <= narrow["width"]
    assert names.size["width"] <= narrow["width"] / 2  # so that values are seen beside the names


@in_browser
def test_runs_are_sorted_by_keyboard(browser: webdriver.Chrome) -> None:
    button = browser.find_element(By.CSS_SELECTOR, '[data-sort="audit.bytes_per_token"]')
    button.send_keys(Keys.ENTER)
    assert first_column(browser) == ["aaaaaaaa-2", "bbbbbbbb", "aaaaaaaa-1"]
    browser.switch_to.active_element.send_keys(Keys.SPACE)
    assert first_column(browser) == ["aaaaaaaa-1", "bbbbbbbb", "aaaaaaaa-2"]
    assert "lowest first" in browser.find_element(By.ID, "sorted").text
    browser.find_element(By.CSS_SELECTOR, '[data-sort="audit.fertility"]').click()
    assert first_column(browser)[-1] == "bbbbbbbb"  # which has none


@in_browser
def test_marks_are_reached_by_keyboard_and_say_what_they_show(browser: webdriver.Chrome) -> None:
    points = browser.find_elements(By.CSS_SELECTOR, "#points g[tabindex]")
    assert len(points) == 2  # the third run has no fertility
    browser.execute_script("arguments[0].focus()", points[1])
    said = browser.find_element(By.ID, "point").text
    assert "audit.bytes_per_token 4.25" in said
    assert browser.find_element(By.CSS_SELECTOR, "#table tr.chosen th").text == "aaaaaaaa-2"
    lines = browser.find_elements(By.CSS_SELECTOR, "#lines g[tabindex]")
    assert len(lines) == 3
    assert "balance.temperature 1" in str(lines[2].get_attribute("aria-label"))


@in_browser
def test_nothing_is_loaded_and_nothing_goes_wrong(browser: webdriver.Chrome) -> None:
    assert_quiet(browser)
    scrolls = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert browser.execute_script(scrolls) is False


@in_browser
@needs_axe
def test_accessibility(browser: webdriver.Chrome) -> None:
    assert_accessible(browser)
