"""The page of a comparison of runs: what it shows without JavaScript, and what a browser makes of it."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from tests.test_flows.page import browser_found, open_browser
from tests.test_tasks.store_stages import ask
from tokmill.tasks.comparing.page.writing import data_of, page_of, write_page
from tokmill.tasks.comparing.runs import Comparison
from tokmill.tasks.store import RunArtifact, Store
from tokmill.tasks.store.runs import Begun, Found, read_run, run_path

in_browser = pytest.mark.skipif(not browser_found(), reason="needs chromium and chromedriver on the PATH")
AXE = Path(os.environ.get("TOKMILL_AXE", "axe-core"), "axe.min.js")
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


def test_of_many_parameters_that_differ_those_are_chosen_that_most_runs_have(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    for number in (1, 2):
        parameters = {"more": {f"m{n}": n for n in range(30)}} if number == 2 else {}
        parameters |= {"mix": {f"p{n}": n * number for n in range(4)}}
        store.catalog.add_run(f"{number}" * 8, begun=Begun(name="p", profile="p", parameters=parameters))
        store.catalog.finish_run(f"{number}" * 8, state="completed", found=Found([]))
    runs = [read_run(run_path(store.layout.runs, f"{number}" * 8)) for number in (1, 2)]
    data = data_of(Comparison(store, runs))

    assert data["chosen"] == ["mix.p1", "mix.p2", "mix.p3", "more.m0", "more.m1", "more.m2"]
    assert len(data["columns"]) == 33


@pytest.mark.slow
@pytest.mark.browser
@in_browser
def test_runs_are_sorted_by_keyboard(browser: webdriver.Chrome) -> None:
    button = browser.find_element(By.CSS_SELECTOR, '[data-sort="audit.bytes_per_token"]')
    button.send_keys(Keys.ENTER)
    assert first_column(browser) == ["aaaaaaaa-2", "bbbbbbbb-3", "aaaaaaaa-1"]
    browser.switch_to.active_element.send_keys(Keys.SPACE)
    assert first_column(browser) == ["aaaaaaaa-1", "bbbbbbbb-3", "aaaaaaaa-2"]
    assert "lowest first" in browser.find_element(By.ID, "sorted").text
    browser.find_element(By.CSS_SELECTOR, '[data-sort="audit.fertility"]').click()
    assert first_column(browser)[-1] == "bbbbbbbb-3"  # which has none


@pytest.mark.slow
@pytest.mark.browser
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


@pytest.mark.slow
@pytest.mark.browser
@in_browser
def test_axes_of_numbers_and_of_words_can_be_chosen(browser: webdriver.Chrome) -> None:
    browser.find_element(By.CSS_SELECTOR, "#coordinates summary").click()
    (box,) = [
        label.find_element(By.TAG_NAME, "input")
        for label in browser.find_elements(By.CSS_SELECTOR, "#axes label")
        if label.text == "balance.method"
    ]
    before = len(browser.find_elements(By.CSS_SELECTOR, "#lines line.axis"))
    box.click()
    assert len(browser.find_elements(By.CSS_SELECTOR, "#lines line.axis")) == before + 1
    labels = {text.text for text in browser.find_elements(By.CSS_SELECTOR, "#lines text")}
    assert {"x", "y", "method"} <= labels


@pytest.mark.slow
@pytest.mark.browser
@in_browser
def test_nothing_is_loaded_and_nothing_goes_wrong(browser: webdriver.Chrome) -> None:
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    scrolls = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert browser.execute_script(scrolls) is False


@pytest.mark.slow
@pytest.mark.browser
@in_browser
@pytest.mark.skipif(not AXE.is_file(), reason="needs the folder of npm's axe-core in TOKMILL_AXE")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_accessibility(browser: webdriver.Chrome, scheme: str) -> None:
    media = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
    browser.execute_script(AXE.read_text("utf-8"))
    found = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
    serious = [one["id"] for one in found["violations"] if one["impact"] in {"serious", "critical"}]
    assert serious == []
