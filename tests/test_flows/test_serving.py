"""`tokmill up` and its deployments: runs started from outside, by a script, a person, or an attacker.

What single requests are refused is in test_server_guard.py.
"""

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver.support.ui import WebDriverWait

from tests.test_flows.commands import (
    Tokmill,
    clean_environment,
    end_all,
    free_port,
    left_after,
    processes_with,
)
from tests.test_flows.page import PAGE_SECONDS, below, browser_found, enter, find, open_browser
from tests.test_flows.served import RefusedError, Service, wait_for_line
from tests.test_flows.stopped import wait_until
from tokmill.flows.profile.served import ServedFolder

pytestmark = pytest.mark.server
needs_browser = pytest.mark.skipif(not browser_found(), reason="needs chromium and chromedriver on the PATH")


@pytest.fixture(scope="module")
def runs(service: Service) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run with a name that somebody typed, and one with another sequence length."""
    asked = {"parameters": {"profile": "tiny.toml"}, "name": "before the holidays"}
    started = service.call(f"/deployments/{service.deployment['id']}/create_flow_run", asked)
    first = service.end_of(started["id"])
    return first, service.run(profile="tiny.toml", pack={"sequence_length": 56})


Runs = tuple[dict[str, Any], dict[str, Any]]


def test_a_rerun_with_another_sequence_length_shows_what_is_upstream_as_cached(
    service: Service, runs: Runs
) -> None:
    first, again = runs
    assert (first["name"], first["state_name"]) == ("before the holidays", "Completed"), first["state"]
    assert (again["name"], again["state_name"]) == ("tiny · sequence length 56", "Completed")
    assert {"tokmill", "tiny", "byte_bpe"} <= set(again["tags"])
    states = service.ended_task_states(again)
    ran = {name for name, state in states.items() if state != "Cached"}
    assert {name.partition("[")[0] for name in ran} == {"pack", "card"}
    assert len(states) - len(ran) > 10


def shown_of(service: Service, run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return key → artifact of what a run shows; Prefect's own, of the results of states, have no key."""
    wanted = {"artifacts": {"flow_run_id": {"any_": [run["id"]]}}, "limit": 200}
    found = [artifact for artifact in service.call("/artifacts/filter", wanted) if artifact["key"]]
    assert len({artifact["key"] for artifact in found}) == len(found)
    return {artifact["key"]: artifact for artifact in found}


def test_a_run_sums_up_what_its_tasks_made_or_found_and_each_shows_its_own(
    service: Service, runs: Runs
) -> None:
    _, again = runs
    shown, tasks = shown_of(service, again), tasks_of(service, again)
    alone = {tasks[title] for title in tasks if "/" not in title}
    assert {artifact["task_run_id"] for artifact in shown.values()} == {*alone, None}
    texts = {key: artifact["data"] for key, artifact in shown.items()}
    here, store = f"](/v2/runs/flow-run/{again['id']})", f"--store {service.tokmill.store}"
    for key, words in {
        "run-tiny": [
            "```mermaid\nflowchart",
            "`pack.sequence_length`",
            "| pack[plan] | 1 | differs from v1 | `sequence_length: ",
            "[tokenizer/tiny@v1](/v2/artifacts/key/tokenizer-tiny)",
        ],
        "audit-tiny": ["# Tokenizer audit"],
        "card-tiny": ["| documents | "],
        "packed-tiny": ["**Made by this task**", here, "`tokmill show packed/tiny@v", store],
        "tokenizer-tiny": ["**Reused**: made on ", "`tokmill show tokenizer/tiny@v1", store],
    }.items():
        assert [each for each in words if each not in texts[key]] == []
    assert here not in texts["tokenizer-tiny"]
    made_by = re.findall(r"\]\(/v2/runs/flow-run/([0-9a-f-]+)\)", texts["tokenizer-tiny"])
    assert service.call(f"/flow_runs/{made_by[0]}")["state_name"] == "Completed"


def test_the_report_of_an_audit_is_served_and_that_of_nothing_is_not(service: Service, runs: Runs) -> None:
    (url,) = re.findall(r"\[Report\]\((http[^)]+)\)", shown_of(service, runs[1])["audit-tiny"]["data"])
    assert url.startswith(f"{service.url}/tokmill/report/")
    with urllib.request.urlopen(url, timeout=60) as answer:
        assert answer.read().startswith(b"<!doctype html>")
    for wrong, says in ((f"{url[:-6]}abcdef", "no artifact"), (f"{url[:-64]}--help", "fingerprint")):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(wrong, timeout=60)
        with refused.value as error:
            assert (error.code, says in error.read().decode()) == (404, True)


def test_logs_have_the_figures_of_each_task(service: Service, runs: Runs) -> None:
    run, _ = runs
    wanted = {"logs": {"flow_run_id": {"any_": [run["id"]]}}, "limit": 200}

    def logged() -> dict[str, str | None]:
        return {log["message"]: log["task_run_id"] for log in service.call("/logs/filter", wanted)}

    said = service.until(logged, lambda found: any(message.startswith("card: ") for message in found))
    tasks = tasks_of(service, run)
    (trained,) = (message for message in said if message.startswith("train: "))
    assert re.match(r"train: (cached|made in [^·]+) · tokenizer/tiny@v1 · vocab size [0-9,]+ · ", trained)
    assert said[trained] == tasks["train"]
    assert {message.partition(": ")[0] for message, task in said.items() if task} >= set(tasks)


def tasks_of(service: Service, run: dict[str, Any]) -> dict[str, str]:
    """Return title → id of a run's task runs, once the server, which hears of them by events, has all."""
    body = {"flow_runs": {"id": {"any_": [run["id"]]}}, "limit": 200}

    def known() -> dict[str, str]:
        return {task["name"]: task["id"] for task in service.call("/task_runs/filter", body)}

    return service.until(known, lambda found: "card" in found)


def test_flows_of_their_own_train_audit_pack_verify_and_collect(service: Service) -> None:
    trained = service.run_flow("train-tokenizer", profile="tiny.toml", train={"vocab_size": 640})
    built = service.run(profile="tiny.toml", train={"vocab_size": 640})
    named, sample = {"use": "tokenizer/tiny@latest"}, {"sample_megabytes": 1}
    audited = service.run_flow("audit-tokenizer", profile="tiny.toml", tokenizer=named, audit=sample)
    packed = service.run_flow("repack", profile="tiny.toml", pack={"sequence_length": 80})
    checked = service.run_flow("verify-store")
    listed = service.run_flow("collect-garbage", apply=False, older_than_days=0)

    ended = (trained, built, audited, packed, checked, listed)
    assert [run["state_name"] for run in ended] == ["Completed"] * 6, [run["state"] for run in ended]
    assert trained["name"].startswith("tiny · tokenizer")
    stages = (
        {"train", "audit", "audit.counts"},
        {"ingest", "count", "balance", "encode", "usage", "tokenizer_card"},
    )
    assert stages[0] <= states(service, trained, "tokenizer_card").keys() <= stages[0] | stages[1]
    assert states(service, built, "card")["train"] == "Cached"
    assert states(service, audited, "audit").keys() == {"ingest", "audit"}
    assert states(service, packed, "pack").keys() == {"pack"}
    deployment = service.call(f"/deployments/name/verify-store/{service.served.name}")
    schedules = [(each["schedule"]["cron"], each["active"]) for each in deployment["schedules"]]
    assert schedules == [("0 1 * * *", False)]


def states(service: Service, run: dict[str, Any], last: str) -> dict[str, str]:
    """Stage → the state of its last task; `last` is the last task of the run."""
    found = service.ended_task_states(run, last).items()
    return {name.partition("[")[0]: state for name, state in found if not name.startswith("pack[plan]")}


def test_a_run_that_is_refused_says_why_on_its_page(service: Service) -> None:
    run = service.run(profile="tiny.toml", more=["pack.sequence_lenght=64"])
    assert (run["state_name"], "sequence_length" in run["state"]["message"]) == ("Failed", True)
    (summary,) = shown_of(service, run).values()
    assert summary["data"].startswith("# tiny.toml: refused")
    run = service.run_flow("repack", profile="tiny.toml", mixture="mixture/none")
    assert (run["state_name"], "mixture/none" in run["state"]["message"]) == ("Failed", True)
    (summary,) = shown_of(service, run).values()
    assert all(words in summary["data"] for words in ("mixture/none", "## What a retry does"))
    assert service.task_states(run) == {}


def test_a_run_reads_no_profile_elsewhere(service: Service, tmp_path: Path) -> None:
    elsewhere = shutil.copy(service.tokmill.folder / "tiny.toml", tmp_path / "own.toml")
    with pytest.raises(RefusedError, match=r"is not one of \['tiny.toml'\]") as refused:
        service.run(profile=str(elsewhere))
    assert refused.value.code == 409
    with pytest.raises(RefusedError, match="is not one of"):
        service.run_flow("train-tokenizer", profile="other.toml")


@pytest.mark.parametrize(
    "variables",
    [{"command": "touch reached"}, {"env": {"PYTHONSTARTUP": "x"}}, {"env.PATH": "/"}, {"working_dir": "/"}],
)
def test_a_run_sets_neither_command_nor_environment_nor_folder(
    service: Service, variables: dict[str, Any]
) -> None:
    create = f"/deployments/{service.deployment['id']}/create_flow_run"
    asked = {"parameters": {"profile": "tiny.toml"}, "job_variables": variables}
    with pytest.raises(RefusedError, match="Additional properties are not allowed") as refused:
        service.call(create, asked)
    assert 400 <= refused.value.code < 500


def test_a_change_needs_the_servers_token_and_a_request_its_name(service: Service) -> None:
    create = f"/deployments/{service.deployment['id']}/create_flow_run"
    with pytest.raises(RefusedError) as refused:
        service.send(create, {"parameters": {"profile": "tiny.toml"}}, {})
    assert refused.value.code == 403
    for path in ("/health", "/csrf-token?client=page", "/admin/settings"):
        with pytest.raises(RefusedError) as refused:
            service.send(path, None, {"Host": f"rebound.example:{service.url.rpartition(':')[2]}"})
        assert refused.value.code == 421


def test_a_port_in_use_and_a_second_up_are_told(service: Service, tmp_path: Path) -> None:
    port, store = service.url.rpartition(":")[2], str(service.tokmill.store)
    refused = service.tokmill.at(tmp_path)("up", "--port", port)
    assert (refused.code, f"127.0.0.1:{port}" in refused.err, "--port" in refused.err) == (1, True, True)
    refused = service.tokmill.at(tmp_path)("up", "--port", "1", "--store", store)
    where = f"from {service.tokmill.folder} at {service.url} (process {service.process.pid})"
    assert (refused.code, where in refused.err) == (1, True)


REGISTER = """
import sys
from pathlib import Path
from tokmill.flows.prefect.registration import register
from tokmill.flows.profile.served import ServedFolder
register(ServedFolder(*map(Path, sys.argv[1:])), print, here=True)
"""


def register(service: Service, served: ServedFolder) -> None:
    """Register a folder's deployments as `up` does."""
    command = [sys.executable, "-c", REGISTER, str(served.folder), str(served.store)]
    environment = {**service.tokmill.environment, "PREFECT_API_URL": f"{service.url}/api"}
    subprocess.run(command, env=environment, capture_output=True, check=True)


def test_registering_again_keeps_what_people_set_and_other_folders_have_their_own(
    service: Service, tmp_path: Path
) -> None:
    before = service.deployment
    url, pool = f"/deployments/{before['id']}", f"/work_pools/{service.served.work_pool}"
    weekly = {"schedule": {"cron": "30 6 * * 1", "timezone": "Europe/Berlin"}, "slug": "weekly"}
    service.call(f"{url}/schedules", [{**weekly, "active": True, "parameters": {"profile": "tiny.toml"}}])
    changed = {"parameters": {"profile": "tiny.toml", "workers": 1}, "tags": ["mine"]}
    service.send(url, changed, service.csrf_headers(), "PATCH")
    service.send(pool, {"concurrency_limit": 3}, service.csrf_headers(), "PATCH")
    asked, other = service.deployment, ServedFolder.of(tmp_path, tmp_path / "store")

    register(service, service.served)
    register(service, other)

    renewed = service.deployment
    kept = ("id", "parameters", "tags", "paused", "entrypoint", "work_pool_name", "parameter_openapi_schema")
    assert {key: renewed[key] for key in kept} == {key: asked[key] for key in kept}
    shown = ("id", "schedule", "active", "parameters", "slug")
    settings = [[[one[key] for key in shown] for one in each["schedules"]] for each in (renewed, asked)]
    assert settings[0] == settings[1]
    assert len(renewed["schedules"]) == len(before["schedules"]) + 1
    assert service.call(pool)["concurrency_limit"] == 3
    its_own = service.call(f"/deployments/name/build-corpus/{other.name}.quickstart")
    assert its_own["work_pool_name"] not in {None, before["work_pool_name"]}
    template = service.call(f"/work_pools/{other.work_pool}")["base_job_template"]
    assert template["job_configuration"]["working_dir"] == str(tmp_path)
    (mine,) = [schedule["id"] for schedule in renewed["schedules"] if schedule["slug"] == "weekly"]
    service.send(f"{url}/schedules/{mine}", None, service.csrf_headers(), "DELETE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")
def test_what_serves_is_gone_when_up_is_killed(migrated_home: Path, tmp_path: Path) -> None:
    home = shutil.copytree(migrated_home, tmp_path / "home")
    tokmill = Tokmill(tmp_path, clean_environment(PREFECT_HOME=str(home), PYTHONUNBUFFERED="1"))
    with tokmill.start("up", "--port", str(free_port())) as process:
        wait_for_line(process, "up: ")
        # `up`, the server and the worker; one that is just being started has no environment for a moment
        wait_until(lambda: len(processes_with("PREFECT_HOME", str(home))) >= 3, "all of them were there")
        process.send_signal(signal.SIGKILL)
        process.wait()
        left = left_after(5, "PREFECT_HOME", str(home))
        end_all(left)
    assert not left


@pytest.mark.browser
@needs_browser
def test_the_form_shows_the_profiles_values_and_refuses_a_wrong_one(service: Service, tmp_path: Path) -> None:
    known = service.call("/flow_runs/filter", {})
    size = f"({below('Vocab size', 'input')})[1]"
    with open_browser(tmp_path) as browser:
        browser.get(f"{service.url}/v2/deployments/deployment/{service.deployment['id']}/run")
        shown = find(browser, size).get_attribute("value")
        enter(browser, size, "1")
        find(browser, "//button[normalize-space()='Submit']").click()
        refusal = find(browser, size).get_attribute("validationMessage")
        page = browser.page_source
    assert (shown, "greater than or equal to 2" in str(refusal)) == ("600", True)
    assert 'Property is type "None"' not in page
    assert [run["id"] for run in service.call("/flow_runs/filter", {})] == [run["id"] for run in known]


# It knows everything that an attacker could find out: the port, the deployment's id, and Prefect's API.
HOSTILE_PAGE = """<!doctype html><title>working</title>
<iframe name="posted"></iframe><iframe id="shown" src="URL/v2/deployments"></iframe>
<form id="form" method="post" enctype="text/plain" target="posted" action="CREATE">
<input name='BODY_START' value='"}'></form>
<script>
const body = BODY, json = {"Content-Type": "application/json"}
const post = (more) => fetch("CREATE", {method: "POST", body: JSON.stringify(body), ...more})
const token = () => fetch("URL/api/csrf-token?client=page").then(answer => answer.json())
const socket = (path) => new Promise((done, failed) => {
  const opened = new WebSocket("URL".replace("http", "ws") + path)
  opened.onopen = () => done({ok: true}); opened.onerror = () => failed(new Error("closed"))
})
const tries = {
  settings: () => fetch("URL/api/admin/settings"),
  token, json: () => post({headers: json}),
  blind: () => post({mode: "no-cors", headers: {"Content-Type": "text/plain"}}),  // never ok to the page
  form: () => { document.getElementById("form").submit(); return {ok: false} },
  events: () => socket("/api/events/in"), logs: () => socket("/api/logs/out"),
}
const outcome = async (attempt) => {
  try { return (await attempt()).ok ?? "answered" } catch (error) { return false }
}
Promise.all(Object.entries(tries).map(async ([name, attempt]) => [name, await outcome(attempt)])).then(
  (ended) => { document.title = JSON.stringify(Object.fromEntries(ended)) })
</script>
"""


@contextmanager
def hostile_page(url: str, deployment: str, run: dict[str, Any]) -> Iterator[str]:
    """Serve a foreign page that wants a run of a deployment; its title becomes its results, as JSON."""
    body, create = json.dumps(run), f"{url}/api/deployments/{deployment}/create_flow_run"
    page = HOSTILE_PAGE.replace("CREATE", create).replace("BODY_START", f'{body[:-1]}, "x": "')
    page = page.replace("BODY", body).replace("URL", url)

    class Answer(BaseHTTPRequestHandler):
        timeout = 2  # a browser opens spare connections

        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        server.daemon_threads = False  # waited for, so that every socket is closed
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.browser
@needs_browser
def test_a_hostile_page_gets_nothing_done_and_reads_nothing(service: Service, tmp_path: Path) -> None:
    reached, deployment = tmp_path / "reached", service.deployment["id"]
    wanted = {"parameters": {"profile": "tiny.toml"}, "job_variables": {"command": f"touch {reached}"}}
    before = service.call("/flow_runs/filter", {})
    with (
        hostile_page(service.url, deployment, wanted) as page,
        open_browser(tmp_path / "browser", rebound="rebound.example") as browser,
    ):
        browser.get(page)
        WebDriverWait(browser, PAGE_SECONDS).until(lambda shown: shown.title.startswith("{"))
        achieved = json.loads(browser.title)
        browser.switch_to.frame("shown")
        framed = browser.page_source
        browser.get(f"http://rebound.example:{service.url.rpartition(':')[2]}/api/admin/settings")
        rebound = browser.page_source
        browser.get(f"{service.url}/v2/deployments")
        token = "fetch('/api/csrf-token?client=page').then(answer => arguments[0](answer.status))"
        own = browser.execute_async_script(token)

    assert (achieved, len(achieved)) == (dict.fromkeys(achieved, False), 7)
    assert ("build-corpus" not in framed, "this server answers to" in rebound, own) == (True, True, 200)
    assert [run["id"] for run in service.call("/flow_runs/filter", {})] == [run["id"] for run in before]
    assert not reached.exists()
