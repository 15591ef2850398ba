"""What a person does in Prefect's page, from the form to the report: in a real browser, on a real server.

With TOKMILL_SCREENSHOTS=FOLDER every step leaves a picture there, to be looked at.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.test_flows.page import PAGE_SECONDS, below, browser_found, enter, find, open_browser, press, submit
from tests.test_flows.seen_stores import FolderSeen
from tests.test_flows.served import Service
from tests.test_flows.stopped import FINAL, Running, served, wait_until, write_profile, write_text

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,
    pytest.mark.browser,
    pytest.mark.skipif(not browser_found(), reason="needs chromium and chromedriver on the PATH"),
]

MENU = "//button[normalize-space()='Open menu']"


@pytest.fixture(scope="module")
def project(migrated_home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A served project with a profile whose runs can be interrupted."""
    folder = tmp_path_factory.mktemp("page") / "project"
    write_text(folder)
    write_profile(folder, "long")
    with served(folder, migrated_home, {}) as service:
        yield service


class Person:
    """Looks at the page, and clicks."""

    def __init__(self, browser: webdriver.Chrome, service: Service) -> None:
        self.browser = browser
        self.service = service
        self._steps = 0

    def see(self, text: str) -> None:
        """Wait until a text is on the page."""
        find(self.browser, f"//*[contains(normalize-space(text()), '{text}')]")
        self.picture(text)

    def picture(self, text: str) -> None:
        """Leave a picture of the page, if somebody wants to look at it."""
        self._steps += 1
        folder = os.environ.get("TOKMILL_SCREENSHOTS")
        if folder:
            name = f"{self._steps:02}-{text.lower().replace(' ', '-')}.png"
            self.browser.save_screenshot(str(Path(folder) / name))

    def start(self, sequence_length: int | None = None) -> Running:
        """Open the deployment, go to its form, fill it in and submit it."""
        deployment = self.service.deployment_of("long.toml")["id"]
        page = f"{self.service.url}/v2/deployments/deployment/{deployment}"
        self.browser.get(page)
        self.see("build-corpus")
        self.browser.get(f"{page}/run")
        if sequence_length is not None:
            enter(self.browser, f"({below('Sequence length', 'input')})[1]", str(sequence_length))
        self.see("Sequence length")
        store = FolderSeen(str(self.service.tokmill.store))
        return Running(self.service, store, submit(self.browser, self.service))

    def open(self, run: Running, tab: str = "Logs") -> None:
        """Open the page of a run."""
        self.browser.get(f"{self.service.url}/v2/runs/flow-run/{run.id}?tab={tab}")

    def choose(self, item: str, confirm: str) -> None:
        """Choose an item of the menu of the open run, and confirm it."""
        press(self.browser, MENU)
        press(self.browser, f"//*[@role='menuitem'][normalize-space()='{item}']")
        press(self.browser, f"//*[contains(@role, 'dialog')]//button[normalize-space()='{confirm}']")

    def follow(self, link: Callable[[str], bool]) -> None:
        """Follow the first link of the page that leads where it should."""
        drawn_again = [StaleElementReferenceException]
        links = WebDriverWait(self.browser, PAGE_SECONDS, ignored_exceptions=drawn_again).until(
            lambda page: [
                found
                for found in (a.get_attribute("href") for a in page.find_elements(By.TAG_NAME, "a"))
                if found and link(found)
            ]
        )
        self.browser.get(links[0])


def test_a_person_runs_reruns_cancels_retries_and_reads(project: Service, tmp_path: Path) -> None:
    with open_browser(tmp_path) as browser:
        person = Person(browser, project)

        cancelled = person.start()
        person.open(cancelled)  # before the stage, which may be over when a page has come on a busy machine
        cancelled.wait_for("count")
        person.choose("Cancel", "Cancel Flow Run")
        assert ended(cancelled) == "Cancelled"
        person.open(cancelled)
        person.see("Cancelled")

        library = project.tokmill.folder / "library"
        whole = library.rename(library.with_name("elsewhere"))
        failed = person.start()
        assert ended(failed) == "Failed"
        person.open(failed)
        person.see("Failed")
        whole.rename(library)
        person.choose("Retry", "Retry")
        wait_until(lambda: failed.state["type"] != "FAILED", "it was retried")
        assert ended(failed) == "Completed"
        person.open(failed)
        person.see("Completed")

        again = person.start(sequence_length=320)
        assert ended(again) == "Completed"
        assert project.started_by(again.id) == "page"
        assert project.call(f"/flow_runs/{again.id}")["name"] == "long · sequence length 320"
        states = project.ended_task_states({"id": again.id})
        ran = {name.partition("[")[0] for name, state in states.items() if state != "Cached"}
        assert ran == {"pack", "card"}
        person.open(again, "TaskRuns")
        person.see("Cached")

        person.open(again, "Artifacts")
        person.see("audit-long")
        audit = next(task for task in tasks_of(project, again) if task["name"] == "audit")
        browser.get(f"{project.url}/v2/runs/task-run/{audit['id']}?tab=Artifacts")
        person.see("audit-long")
        person.follow(lambda url: "/v2/artifacts/artifact/" in url and is_text(project, url))
        person.follow(lambda url: "/tokmill/report/" in url)
        assert find(browser, "//*[@id='search']").is_displayed()
        person.picture("report")


def ended(run: Running) -> str:
    """Wait until a run has ended; return its state's name."""
    wait_until(lambda: run.state["type"] in FINAL, "the run ended", pause=1.0)
    return str(run.state["name"])


def tasks_of(service: Service, run: Running) -> list[dict[str, str]]:
    """Return the task runs of a run."""
    found: list[dict[str, str]] = service.call(
        "/task_runs/filter", {"flow_runs": {"id": {"any_": [run.id]}}, "limit": 200}
    )
    return found


def is_text(service: Service, url: str) -> bool:
    """Whether an artifact's page shows a text, and not a table."""
    return bool(service.call(f"/artifacts/{url.rpartition('/')[2]}")["type"] == "markdown")
