"""A person with a browser: starts a run from Prefect's page, and again with another sequence length.

Drives headless Chromium through its own driver, both from the system; skips, saying so, where they are
absent.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.test_flows.served import Service

BROWSER, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
PAGE_SECONDS = 60

pytestmark = [
    pytest.mark.server,
    pytest.mark.browser,
    pytest.mark.skipif(not (BROWSER and DRIVER), reason="needs chromium and chromedriver on the PATH"),
]

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


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[webdriver.Chrome]:
    """A headless Chromium with an empty profile."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(BROWSER)
    for option in (*OPTIONS, f"--user-data-dir={tmp_path}"):
        options.add_argument(option)
    driver = webdriver.Chrome(options, webdriver.ChromeService(str(DRIVER)))
    yield driver
    driver.quit()


def find(browser: webdriver.Chrome, xpath: str) -> WebElement:
    """Wait for an element and bring it into view."""
    element = WebDriverWait(browser, PAGE_SECONDS).until(lambda page: page.find_element(By.XPATH, xpath))
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", element)
    return element


def below(title: str, what: str) -> str:
    """The first `what` after the form field called `title`."""
    return (
        f"//*[normalize-space(text())='{title}' or normalize-space(.)='{title} (Optional)']/following::{what}"
    )


def start_run(browser: webdriver.Chrome, service: Service, sequence_length: int | None = None) -> str:
    """Fill the deployment's form in and submit it; return the id of the run that it made."""
    deployment = service.call("/deployments/name/build-corpus/build-corpus")["id"]
    known = {run["id"] for run in service.call("/flow_runs/filter", {})}
    browser.get(f"{service.url}/v2/deployments/deployment/{deployment}/run")
    profile = find(browser, f"({below('profile', 'textarea')})[1]")
    profile.send_keys(Keys.CONTROL, "a")
    profile.send_keys("tiny.toml")
    if sequence_length is not None:
        find(browser, f"({below('Sequence Length', 'button')}[normalize-space()='int'])[1]").click()
        find(browser, f"({below('Sequence Length', 'input')})[1]").send_keys(str(sequence_length))
    find(browser, "//button[normalize-space()='Submit']").click()
    return WebDriverWait(browser, PAGE_SECONDS).until(
        lambda _: next(
            (run["id"] for run in service.call("/flow_runs/filter", {}) if run["id"] not in known), None
        )
    )


def test_a_rerun_from_the_page_with_another_sequence_length_shows_cached_tasks(
    browser: webdriver.Chrome, service: Service
) -> None:
    first = service.end_of(start_run(browser, service))
    again = service.end_of(start_run(browser, service, sequence_length=72))

    assert (first["state_name"], again["state_name"]) == ("Completed", "Completed")
    ran = {name for name, state in service.task_states(again).items() if state != "Cached"}
    assert {name.partition("[")[0] for name in ran} == {"pack", "card"}
    browser.get(f"{service.url}/v2/runs/flow-run/{again['id']}?tab=TaskRuns")
    assert find(browser, "//*[normalize-space()='Cached']").is_displayed()
