"""Pages in a browser: which tests open one, and what every page keeps."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from selenium import webdriver

from tests.test_flows.page import browser_found

_AXE = Path(os.environ.get("TOKMILL_AXE", "axe-core"), "axe.min.js")
needs_axe = pytest.mark.skipif(not _AXE.is_file(), reason="needs the folder of npm's axe-core in TOKMILL_AXE")


def in_browser(test: Callable) -> Callable:
    """Mark a test that opens a browser."""
    found = pytest.mark.skipif(not browser_found(), reason="needs chromium and chromedriver on the PATH")
    return pytest.mark.slow(pytest.mark.browser(found(test)))


def assert_plain(text: str) -> None:
    """A page loads nothing, and shows no value that is none."""
    assert re.findall(r'(?:src|href)="([^#"][^"]*)"', text) == ["data:,"]
    assert not re.search(r"\b(nan|NaN|inf|None|undefined)\b", text.split("<script", maxsplit=1)[0])


def assert_quiet(browser: webdriver.Chrome) -> None:
    """Nothing was loaded, and nothing went wrong."""
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def assert_accessible(browser: webdriver.Chrome, *, minor: bool = False) -> None:
    """Axe finds nothing serious, in light and dark colours; with `minor` it finds nothing at all."""
    browser.execute_script(_AXE.read_text("utf-8"))
    for scheme in ("light", "dark"):
        media = [{"name": "prefers-color-scheme", "value": scheme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": media})
        found = browser.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
        violations = [(one["id"], one["impact"], one["nodes"][0]["html"]) for one in found["violations"]]
        assert [one for one in violations if minor or one[1] in {"serious", "critical"}] == [], scheme
