"""The page of a lineage: what it shows without JavaScript, and what a browser makes of it."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.test_flows.page import open_browser
from tests.test_tasks.pages import assert_accessible, assert_plain, assert_quiet, in_browser, needs_axe
from tests.test_tasks.store_stages import ask, ask_joined
from tokmill.flows.figures import key_figures, labelled
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Provenance, Store, lineage
from tokmill.tasks.store.runs import Begun
from tokmill.tasks.tracing.page import page_of, write_page

FIGURES = {"figures": key_figures, "labelled": labelled}
Made = tuple[Store, dict[str, ArtifactRef]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Twelve shards and a header joined; that joined again; and an earlier header, removed since."""
    store = Store.open(tmp_path_factory.mktemp("store"))
    begun = Begun(name="<b>first</b>", profile="p", url="http://127.0.0.1:1/runs/1")
    store.catalog.add_run("run-1", begun=begun)
    by = Provenance.collect(run_id="run-1")
    refs = {
        f"web/{n}": store.realize(ask(f"p.web/{n}", text=f"{n}.", seed=f"/raw/{n}.txt"), by).ref
        for n in range(12)
    }
    refs["head"] = store.realize(ask("head", text="h", seed="/raw/<i>head</i>.txt"), by).ref
    refs["all"] = store.realize(ask_joined("all", refs["head"], *refs.values()), by).ref
    refs["book"] = store.realize(ask_joined("book", refs["all"], refs["head"], text="-"), by).ref
    refs["other"] = store.realize(ask_joined("other", refs["all"], refs["head"], text="+"), by).ref
    return store, refs


@pytest.fixture(scope="module")
def page(made: Made, tmp_path_factory: pytest.TempPathFactory) -> Path:
    (store, refs), path = made, tmp_path_factory.mktemp("page") / "lineage.html"
    write_page(store, lineage(store, refs["all"], "both"), path, **FIGURES)
    return path


def test_the_page_has_tree_and_table_without_javascript_and_loads_nothing(made: Made, page: Path) -> None:
    store, refs = made
    text = page.read_text("utf-8")
    body = text.split("<script")[0]

    assert text == page_of(store, lineage(store, refs["all"], "both"), **FIGURES)
    assert "text/p.* (12)" in body  # of the tree
    shards = [f"text/p.web/{n}@v1" for n in range(12)]
    for shown in (*shards, "joined/other@v1", refs["head"].content_digest[:12]):
        assert f">{shown}<" in body
    assert "&lt;i&gt;head" in body
    assert "<i>head" not in text
    assert_plain(text)


def test_a_removed_artifact_says_when_by_whom_and_why(tmp_path: Path) -> None:
    store = Store.open(tmp_path)
    once = store.realize(ask("once")).ref
    joined = store.realize(ask_joined("all", once)).ref
    store.remove(joined, reason="no longer wanted")
    by = store.tombstone(joined.kind, joined.fingerprint).by
    text = page_of(store, lineage(store, joined), **FIGURES)

    assert f"UTC by {by}: no longer wanted" in text.split("<script")[0]
    assert "joined/all@v1 (removed)" in text


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_families_that_use_each_other_have_a_place_each() -> None:
    """`a1` was made from `b1`, which was made from `a2`; folded, they are a circle."""
    layout = resources.files("tokmill.tasks.tracing").joinpath("static", "layout.js")
    families = {"a1": "A", "b1": "B", "a2": "A", "b2": "B", "c": "c"}
    nodes = [{"key": key, "family": family} for key, family in families.items()]
    script = f"""
        const {{boxesOf, placed}} = require({json.dumps(str(layout))});
        const edges = [["a2", "b1"], ["b1", "a1"], ["a1", "c"]];
        const {{boxes, arrows}} = boxesOf({json.dumps(nodes)}, edges, new Set(["A", "B"]));
        console.log(JSON.stringify([...placed(boxes, arrows, 8).corner]));
    """
    done = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True)
    corners = dict(json.loads(done.stdout))
    assert corners.keys() == {"A", "B", "c"}
    assert len({corner["y"] for corner in corners.values()}) == 3
    assert corners["A"]["y"] < corners["c"]["y"]


@pytest.fixture(scope="module")
def opened(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    with open_browser(tmp_path_factory.mktemp("browser")) as browser:
        browser.get(page.as_uri())
        yield browser


@pytest.fixture
def browser(opened: webdriver.Chrome, page: Path) -> webdriver.Chrome:
    """The page as it opens."""
    opened.set_window_size(1400, 1100)
    opened.get(page.as_uri())
    WebDriverWait(opened, 60).until(lambda _: opened.find_elements(By.CSS_SELECTOR, "#scene .box"))
    return opened


def boxes(browser: webdriver.Chrome, also: str = "") -> list[str]:
    found = browser.find_elements(By.CSS_SELECTOR, f"#scene .box{also}")
    return sorted(str(box.get_attribute("data-name")) for box in found)


def box(browser: webdriver.Chrome, words: str) -> WebElement:
    return browser.find_element(By.CSS_SELECTOR, f'#scene .box[data-name^="{words}"]')


def record(browser: webdriver.Chrome) -> str:
    return browser.find_element(By.ID, "record").text


@in_browser
def test_the_map_opens_at_the_artifact_with_shards_folded(browser: webdriver.Chrome) -> None:
    joined = [f"joined {name}@v1" for name in ("all", "book", "other")]
    files = ["files /raw/<i>head</i>.txt", "files p.* seed"]
    assert boxes(browser) == [*files, *joined, "text head@v1", "text p.*"]
    assert boxes(browser, "[aria-pressed=true]") == ["joined all@v1"]
    assert boxes(browser, ".far") == []
    shown = record(browser)
    assert "4 above it, 2 below it." in shown
    assert "run-1 <b>first</b>" in shown
    assert browser.find_element(By.LINK_TEXT, "http://127.0.0.1:1/runs/1")


@in_browser
def test_a_click_shows_the_record_and_what_is_above_and_below(browser: webdriver.Chrome) -> None:
    box(browser, "joined other").click()
    assert boxes(browser, ".far") == ["joined book@v1"]
    assert "tokmill show joined/other@v1" in record(browser)
    assert browser.find_element(By.ID, "chosen").text == "joined other@v1: 5 above it, 0 below it."

    browser.find_element(By.XPATH, "//*[@id='record']//button[.='joined/all@v1']").click()
    assert boxes(browser, "[aria-pressed=true]") == ["joined all@v1"]


@in_browser
def test_boxes_are_reached_and_chosen_by_keyboard(browser: webdriver.Chrome) -> None:
    start = browser.find_elements(By.CSS_SELECTOR, '#scene .box[tabindex="0"]')
    assert len(start) == 1  # one stop for Tab
    browser.execute_script("arguments[0].focus()", start[0])
    browser.switch_to.active_element.send_keys(Keys.ARROW_UP)
    above = str(browser.switch_to.active_element.get_attribute("data-name"))
    assert above.startswith("text")
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert boxes(browser, "[aria-pressed=true]") == [above]
    browser.switch_to.active_element.send_keys(Keys.ARROW_DOWN)
    assert str(browser.switch_to.active_element.get_attribute("data-name")).startswith("joined all")


@in_browser
def test_search_finds_folded_artifacts_and_source_files(browser: webdriver.Chrome) -> None:
    field = browser.find_element(By.ID, "search")
    field.send_keys("p.web/7@")
    assert boxes(browser, ".match") == ["text p.*"]
    tick = browser.find_element(By.CSS_SELECTOR, '#folds [data-kind="text"]')
    tick.click()
    assert boxes(browser, ".match") == ["text p.web/7@v1"]
    assert len(boxes(browser)) == 6 + 12
    tick.click()
    assert len(boxes(browser)) == 7
    field.send_keys(Keys.ENTER)
    assert record(browser).startswith("text/p.web/7@v1\none of 12 in text/p.*")
    field.clear()
    field.send_keys("/raw/7.txt", Keys.ENTER)
    assert record(browser).startswith("/raw/7.txt")
    field.clear()
    field.send_keys("nothing of this kind")
    assert browser.find_element(By.ID, "found").text == "Nothing found."


@in_browser
@pytest.mark.parametrize("width", [390, 1400])
def test_nothing_is_loaded_nothing_goes_wrong_and_no_page_is_wider_than_its_window(
    browser: webdriver.Chrome, width: int
) -> None:
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    assert_quiet(browser)
    scrolls = "return [document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    needed, there = browser.execute_script(scrolls)
    assert width - 20 < needed <= there
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@in_browser
@needs_axe
def test_accessibility(browser: webdriver.Chrome) -> None:
    assert_accessible(browser, minor=True)


@pytest.mark.slow
@pytest.mark.browser
@in_browser
def test_the_map_is_zoomed_and_moved(browser: webdriver.Chrome) -> None:
    def width() -> float:
        return float(box(browser, "joined all").rect["width"])

    before = width()
    browser.find_element(By.ID, "in").click()
    assert width() > before * 1.2
    browser.find_element(By.ID, "whole").click()
    frame = browser.find_element(By.ID, "scene").rect
    for mark in browser.find_elements(By.CSS_SELECTOR, "#scene .box"):
        assert frame["x"] <= mark.rect["x"]
        assert mark.rect["x"] + mark.rect["width"] <= frame["x"] + frame["width"] + 1
    place = box(browser, "joined all").rect["x"]
    webdriver.ActionChains(browser).move_to_element_with_offset(
        browser.find_element(By.ID, "scene"), -int(frame["width"] / 2) + 8, 0
    ).click_and_hold().move_by_offset(60, 0).release().perform()
    assert box(browser, "joined all").rect["x"] == pytest.approx(place + 60, abs=2)
