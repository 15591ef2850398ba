"""The page of a comparison of runs: what it shows without JavaScript, and what a browser makes of it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.test_flows.page import open_browser
from tests.test_tasks.pages import assert_accessible, assert_quiet, in_browser, needs_axe
from tests.test_tasks.store_stages import ask
from tokmill.tasks.comparing.page import page_of, write_page
from tokmill.tasks.comparing.runs import Comparison
from tokmill.tasks.store import RunArtifact, Store
from tokmill.tasks.store.runs import Begun, Found, read_run, run_path

RUNS = {
    "aaaaaaaa-1": ("a", 2.0, {"audit.bytes_per_token": 3.5, "audit.fertility": 1.5, "balance.method": "x"}),
    "aaaaaaaa-2": (
        "<b>bb</b>",
        5.0,
        {"audit.bytes_per_token": 4.25, "audit.fertility": 1.25, "balance.method": "y"},
    ),
    "bbbbbbbb-3": ("bb", 1.0, {"audit.bytes_per_token": 4.0, "balance.method": "x"}),
}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    store = Store.open(tmp_path_factory.mktemp("store"))
    for run_id, (text, temperature, metrics) in RUNS.items():
        parameters = {"balance": {"temperature": temperature}, "name": "p"}
        store.catalog.add_run(run_id, begun=Begun(name=f"p {text}", profile="p", parameters=parameters))
        ref = store.realize(ask("one", text=text)).ref
        made = [RunArtifact(task="write", ref=ref, how="made")]
        store.catalog.finish_run(run_id, state="completed", found=Found(made, metrics=metrics))
    return Comparison(store, [read_run(run_path(store.layout.runs, run_id)) for run_id in RUNS])


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
    assert re.findall(r'(?:src|href)="([^#"][^"]*)"', text) == ["data:,"]
    assert not re.search(r"\b(nan|NaN|None|undefined)\b", body)


@pytest.fixture(scope="module")
def browser(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with open_browser(tmp_path_factory.mktemp("browser")) as opened:
        opened.get(page.as_uri())
        WebDriverWait(opened, 60).until(lambda _: opened.find_elements(By.CSS_SELECTOR, "#points circle"))
        yield opened


def first_column(browser: webdriver.Chrome) -> list[str]:
    return [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "#table tbody th")]


NUM_MANY = 12
LONG = [f"a text that is far too long for the room between two axes {number}" for number in range(NUM_MANY)]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """Twelve runs with seeds of 64 bits, texts, and a parameter of both kinds; the first one failed."""
    store = Store.open(tmp_path_factory.mktemp("many"))
    ids = [f"{number:08d}" for number in range(NUM_MANY)]
    for number, run_id in enumerate(ids):
        mix = {"seed": 2**63 - 1 - number, "note": LONG[number], "size": "all" if number == 5 else number}
        named = {f"a_source_with_a_name_of_many_words_{k}": number * k for k in range(20)}
        parameters = {"mix": mix, "sources": named}
        store.catalog.add_run(run_id, begun=Begun(name=f"run {number}", profile="p", parameters=parameters))
        ref = store.realize(ask("one", text=str(number % 3))).ref
        found = Found(
            [RunArtifact(task="write", ref=ref, how="made")], metrics={"m.a": number, "m.b": -number}
        )
        state, message = ("completed", "") if number else ("failed", "the disk is full")
        store.catalog.finish_run(run_id, state=state, message=message, found=found)
    return Comparison(store, [read_run(run_path(store.layout.runs, run_id)) for run_id in ids])


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
def of_many(many: Comparison, browser: webdriver.Chrome, page: Path) -> Iterator[webdriver.Chrome]:
    path = page.with_name("many.html")
    write_page(many, path)
    browser.get(path.as_uri())
    WebDriverWait(browser, 60).until(lambda _: browser.find_elements(By.CSS_SELECTOR, "#points circle"))
    yield browser
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.get(page.as_uri())
    WebDriverWait(browser, 60).until(lambda _: browser.find_elements(By.CSS_SELECTOR, "#points circle"))


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

    shown = {
        what: of_many.find_element(By.CSS_SELECTOR, what).is_displayed()
        for what in (
            "#runs .without table",
            "#points svg",
            "#lines svg",
            "#metrics .paper",
            "#metrics .screen",
        )
    }

    assert shown == {what: what != "#metrics .screen" for what in shown}
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
