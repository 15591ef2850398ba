"""Controls Prefect's UI in a headless Chromium; browser and driver come from the system."""

import os
import shutil
from collections.abc import Callable, Iterator
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


class Person:
    """Looks at the page, and clicks; with TOKMILL_SCREENSHOTS=FOLDER every step leaves a picture there."""

    def __init__(self, browser: webdriver.Chrome, service: Service, profile: str) -> None:
        self.browser = browser
        self.service = service
        self.profile = profile
        self._steps = 0

    def see(self, text: str) -> None:
        """Wait until a text is on the page."""
        find(self.browser, f"//*[contains(normalize-space(text()), '{text}')]")
        self.picture(text)

    def picture(self, text: str) -> None:
        """Leave a picture of the page, if somebody wants to look at it."""
        self._steps += 1
        if folder := os.environ.get("TOKMILL_SCREENSHOTS"):
            name = f"{self._steps:02}-{text.lower().replace(' ', '-')}.png"
            self.browser.save_screenshot(str(Path(folder) / name))

    def start(self, sequence_length: int | None = None) -> str:
        """Open the deployment, go to its form, fill it in and submit it; return the id of the run."""
        deployment = self.service.deployment_of(self.profile)["id"]
        page = f"{self.service.url}/v2/deployments/deployment/{deployment}"
        self.browser.get(page)
        self.see("build-corpus")
        self.browser.get(f"{page}/run")
        if sequence_length is not None:
            enter(self.browser, f"({below('Sequence length', 'input')})[1]", str(sequence_length))
        self.see("Sequence length")
        return submit(self.browser, self.service)

    def open(self, run: str, tab: str = "Logs") -> None:
        """Open the page of a run."""
        self.browser.get(f"{self.service.url}/v2/runs/flow-run/{run}?tab={tab}")

    def choose(self, item: str, confirm: str) -> None:
        """Choose an item of the menu of the open run, and confirm it."""
        press(self.browser, "//button[normalize-space()='Open menu']")
        press(self.browser, f"//*[@role='menuitem'][normalize-space()='{item}']")
        press(self.browser, f"//*[contains(@role, 'dialog')]//button[normalize-space()='{confirm}']")

    def follow(self, link: Callable[[str], bool]) -> None:
        """Follow the first link of the page that leads where it should."""

        def links(page: webdriver.Chrome) -> list[str]:
            found = (a.get_attribute("href") for a in page.find_elements(By.TAG_NAME, "a"))
            return [url for url in found if url and link(url)]

        drawn_again = [StaleElementReferenceException]
        wait = WebDriverWait(self.browser, PAGE_SECONDS, ignored_exceptions=drawn_again)
        self.browser.get(wait.until(links)[0])
