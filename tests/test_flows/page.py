"""Controls Prefect's UI in a headless Chromium; browser and driver come from the system."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.test_flows.served import Service

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
PAGE_SECONDS = 60
CLICKS = 3  # as a person would if nothing happens for long


# No sandbox, because continuous integration runs as root; and nothing that calls home.
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1400,1900",
)


def browser_found() -> bool:
    """Whether there are a browser and its driver on the PATH."""
    return bool(BROWSER and DRIVER)


@contextmanager
def open_browser(folder: Path, rebound: str | None = None) -> Iterator[webdriver.Chrome]:
    """Open a headless Chromium with an empty profile in a folder.

    Args:
        folder: of the profile.
        rebound: a host name that resolves to 127.0.0.1 in this browser, as in an attack by DNS rebinding.
    """
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for option in (*OPTIONS, f"--user-data-dir={folder}"):
        options.add_argument(option)
    if rebound is not None:
        options.add_argument(f"--host-resolver-rules=MAP {rebound} 127.0.0.1")
    driver = webdriver.Chrome(options, webdriver.ChromeService(str(DRIVER)))
    try:
        yield driver
    finally:
        driver.quit()


def find(browser: webdriver.Chrome, xpath: str) -> WebElement:
    """Wait for an element and bring it into view."""
    element = WebDriverWait(browser, PAGE_SECONDS).until(lambda page: page.find_element(By.XPATH, xpath))
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    return element


def press(browser: webdriver.Chrome, xpath: str) -> None:
    """Click an element; find it again if the page is drawn again in between."""

    def pressed(_: webdriver.Chrome) -> bool:
        find(browser, xpath).click()
        return True

    WebDriverWait(browser, PAGE_SECONDS, ignored_exceptions=[StaleElementReferenceException]).until(pressed)


def below(title: str, what: str) -> str:
    """The first `what` after the form field called `title`."""
    return (
        f"//*[normalize-space(text())='{title}' or normalize-space(.)='{title} (Optional)']/following::{what}"
    )


def submit(browser: webdriver.Chrome, service: Service) -> str:
    """Submit the form that is open; return the id of the run that it made."""
    known = {run["id"] for run in service.call("/flow_runs/filter", {})}

    def new_run(_: webdriver.Chrome) -> str | None:
        found = (run["id"] for run in service.call("/flow_runs/filter", {}))
        return next((run_id for run_id in found if run_id not in known), None)

    for _ in range(CLICKS):
        find(browser, "//button[normalize-space()='Submit']").click()
        with suppress(TimeoutException):
            return WebDriverWait(browser, PAGE_SECONDS / CLICKS).until(new_run)
    return pytest.fail(f"no run was started: {browser.find_element(By.TAG_NAME, 'body').text}")


def enter(browser: webdriver.Chrome, xpath: str, text: str) -> None:
    """Type into a field until it has the text: keys are lost while the page is drawn again."""

    def typed(_: webdriver.Chrome) -> bool:
        field = find(browser, xpath)
        if field.get_attribute("value") != text:
            field.send_keys(Keys.CONTROL, "a")
            field.send_keys(text)
        return field.get_attribute("value") == text

    WebDriverWait(browser, PAGE_SECONDS, ignored_exceptions=[StaleElementReferenceException]).until(typed)
