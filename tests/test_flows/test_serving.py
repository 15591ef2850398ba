"""`tokmill up` and the deployment: runs started from outside, by a script or by a person with a browser."""

import json
import re
import shutil
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml
from selenium.webdriver.support.ui import WebDriverWait

from tests.test_flows.commands import Tokmill, clean_environment, free_port
from tests.test_flows.hostile import hostile_page
from tests.test_flows.page import (
    PAGE_SECONDS,
    below,
    browser_found,
    enter,
    find,
    open_browser,
)
from tests.test_flows.processes import end_all, left_after, processes_with
from tests.test_flows.served import RefusedError, Service, wait_for_line
from tests.test_flows.stopped import wait_until
from tokmill.flows.prefect.deployments import DEPLOYED, Deployed, Deployment
from tokmill.flows.prefect.schedules import first
from tokmill.flows.profile.served import ServedFolder

pytestmark = pytest.mark.server


def as_written(deployed: Deployed) -> dict[str, Any]:
    """The entry of `prefect.yaml` for a deployment of the quickstart, without its work pool."""
    given = None if deployed.of_store else "quickstart"
    made = Deployment(deployed.flow.name, deployed, None, given, deployed.form(None, []))
    limit, options = made.concurrency.values()
    schedules = [
        {"slug": one["slug"], "active": one["active"], **one["schedule"]} for one in first(made.schedule)
    ]
    for one in schedules:
        one.pop("day_or", None)
    return {
        "name": made.name,
        "description": deployed.flow.description,
        "entrypoint": deployed.entrypoint,
        "tags": made.tags,
        "parameters": made.parameters,
        "concurrency_limit": {"limit": limit, **options},
        "schedules": schedules,
    }


def test_prefect_yaml_says_what_is_registered(checkout: Path) -> None:
    written = yaml.safe_load((checkout / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]

    # Deployments and pool are named after the folder elsewhere; a team chooses its own names.
    made = [as_written(deployed) for deployed in DEPLOYED]
    assert made == [{key: each[key] for key in each if key != "work_pool"} for each in written]


@pytest.mark.browser
@pytest.mark.skipif(not browser_found(), reason="needs chromium and chromedriver on the PATH")
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

    assert shown == "600"
    assert "greater than or equal to 2" in str(refusal)
    assert 'Property is type "None"' not in page
    assert [run["id"] for run in service.call("/flow_runs/filter", {})] == [run["id"] for run in known]


@pytest.fixture(scope="module")
def runs(service: Service) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run with a name that somebody typed, and one with another sequence length."""
    asked = {"parameters": {"profile": "tiny.toml"}, "name": "before the holidays"}
    started = service.call(f"/deployments/{service.deployment['id']}/create_flow_run", asked)
    first = service.end_of(started["id"])
    return first, service.run(profile="tiny.toml", pack={"sequence_length": 56})


def test_a_rerun_with_another_sequence_length_shows_what_is_upstream_as_cached(
    service: Service, runs: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    first, again = runs

    assert (first["state_name"], again["state_name"]) == ("Completed", "Completed")
    states = service.ended_task_states(again)
    ran = {name for name, state in states.items() if state != "Cached"}
    assert {name.partition("[")[0] for name in ran} == {"pack", "card"}
    assert len(states) - len(ran) > 10
    assert_summed_up(service, again["id"])


def assert_summed_up(service: Service, run_id: str) -> None:
    """Check that a run has published its summary with the lineage, and what its tasks have made or found."""
    shown = shown_of(service, run_id)
    summary = shown["run-tiny"]["data"]
    assert "```mermaid\nflowchart" in summary
    assert "`pack.sequence_length`" in summary
    assert "| pack[plan] | 1 | differs from v1 | `sequence_length: " in summary
    assert "[tokenizer/tiny@v1](/v2/artifacts/key/tokenizer-tiny)" in summary
    assert "# Tokenizer audit" in shown["audit-tiny"]["data"]
    assert json.loads(shown["audit-sources-tiny"]["data"])[0]["source"]
    assert_report_opens(service, shown["audit-tiny"]["data"])


def shown_of(service: Service, run_id: str) -> dict[str, dict[str, Any]]:
    """Return key → artifact of what a run shows."""
    wanted = {"artifacts": {"flow_run_id": {"any_": [run_id]}}, "limit": 200}
    found = service.call("/artifacts/filter", wanted)
    assert len({artifact["key"] for artifact in found}) == len(found)
    return {artifact["key"]: artifact for artifact in found}


def assert_report_opens(service: Service, text: str) -> None:
    """Check that the link leads to the report, and that another fingerprint is refused with the reason."""
    (url,) = re.findall(r"\[Report\]\((http[^)]+)\)", text)
    assert url.startswith(f"{service.url}/tokmill/report/")
    with urllib.request.urlopen(url, timeout=60) as answer:
        page = answer.read().decode()
    assert page.startswith("<!doctype html>")
    assert 'id="search"' in page
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{url[:-6]}abcdef", timeout=60)
    with refused.value as error:
        assert error.code == 404
        assert "no artifact" in error.read().decode()


def test_each_task_shows_its_artifact_with_links_to_the_runs_that_made_its_inputs(
    service: Service, runs: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    _, again = runs

    shown = shown_of(service, again["id"])
    assert again["name"] == "tiny · sequence length 56"
    assert {"tokmill", "tiny", "byte_bpe"} <= set(again["tags"])
    tasks = tasks_of(service, again)
    alone = {title for title in tasks if "/" not in title}
    assert {shown[key]["task_run_id"] for key in shown} == {*(tasks[title] for title in alone), None}
    packed, tokenizer = shown["packed-tiny"]["data"], shown["tokenizer-tiny"]["data"]
    assert "**Made by this task**" in packed
    assert f"](/v2/runs/flow-run/{again['id']})" in packed
    assert f"](/v2/runs/flow-run/{again['id']})" not in tokenizer
    assert "**Reused**: made on " in tokenizer
    for text, reference in ((packed, "packed/tiny@v"), (tokenizer, "tokenizer/tiny@v1")):
        assert f"`tokmill show {reference}" in text
        assert f"--store {service.tokmill.store}" in text
    made_by = re.findall(r"\]\(/v2/runs/flow-run/([0-9a-f-]+)\)", tokenizer)
    assert made_by
    assert service.call(f"/flow_runs/{made_by[0]}")["state_name"] == "Completed"
    assert "| documents | " in shown["card-tiny"]["data"] or "# Data card" in shown["card-tiny"]["data"]


def test_logs_have_the_figures_of_each_task_and_a_typed_name_is_kept(
    service: Service, runs: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    run, _ = runs

    assert (run["name"], run["state_name"]) == ("before the holidays", "Completed"), run["state"]
    wanted = {"logs": {"flow_run_id": {"any_": [run["id"]]}}, "limit": 200}

    def logged() -> dict[str, str | None]:
        return {log["message"]: log["task_run_id"] for log in service.call("/logs/filter", wanted)}

    said = service.until(logged, lambda found: any(message.startswith("card: ") for message in found))
    tasks = tasks_of(service, run)
    (trained,) = (message for message in said if message.startswith("train: "))
    assert re.match(r"train: (cached|made in [^·]+) · tokenizer/tiny@v1 · vocab size [0-9,]+ · ", trained)
    assert said[trained] == tasks["train"]
    assert {message.partition(": ")[0] for message, task in said.items() if task} >= set(tasks)
    assert not any(message.startswith("Finished in state") for message, task in said.items() if task)


def tasks_of(service: Service, run: dict[str, Any]) -> dict[str, str]:
    """Return title → id of a run's task runs, once the server, which hears of them by events, has all."""
    body = {"flow_runs": {"id": {"any_": [run["id"]]}}, "limit": 200}

    def known() -> dict[str, str]:
        return {task["name"]: task["id"] for task in service.call("/task_runs/filter", body)}

    return service.until(known, lambda found: "card" in found)


def test_a_run_with_a_wrong_profile_fails_and_says_why(service: Service) -> None:
    run = service.run(profile="tiny.toml", more=["pack.sequence_lenght=64"])

    assert run["state_name"] == "Failed"
    assert "sequence_length" in run["state"]["message"]


def test_a_port_in_use_is_told(service: Service, tmp_path: Path) -> None:
    port = service.url.rpartition(":")[2]

    refused = service.tokmill.at(tmp_path)("up", "--port", port)

    assert refused.code == 1
    assert f"127.0.0.1:{port}" in refused.err
    assert "--port" in refused.err


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


def test_a_second_up_is_told_where_the_first_is(service: Service, tmp_path: Path) -> None:
    store = str(service.tokmill.store)

    refused = service.tokmill.at(tmp_path)("up", "--port", "1", "--store", store)

    assert refused.code == 1
    assert f"from {service.tokmill.folder} at {service.url} (process {service.process.pid})" in refused.err


def test_registering_again_keeps_what_people_set(service: Service) -> None:
    before = service.deployment
    url, pool = f"/deployments/{before['id']}", f"/work_pools/{service.served.work_pool}"
    weekly = {"schedule": {"cron": "30 6 * * 1", "timezone": "Europe/Berlin"}, "slug": "weekly"}
    service.call(f"{url}/schedules", [{**weekly, "active": True, "parameters": {"profile": "tiny.toml"}}])
    changed = {"parameters": {"profile": "tiny.toml", "workers": 1}, "tags": ["mine"]}
    service.send(url, changed, service.csrf_headers(), "PATCH")
    service.send(pool, {"concurrency_limit": 3}, service.csrf_headers(), "PATCH")
    asked = service.deployment

    register(service, service.served)

    renewed = service.deployment
    kept = ("id", "parameters", "tags", "paused", "entrypoint", "work_pool_name", "parameter_openapi_schema")
    assert {key: renewed[key] for key in kept} == {key: asked[key] for key in kept}
    assert settings(renewed) == settings(asked)
    assert len(renewed["schedules"]) == len(before["schedules"]) + 1
    assert service.call(pool)["concurrency_limit"] == 3
    for schedule in renewed["schedules"]:
        if schedule["slug"] == "weekly":
            service.send(f"{url}/schedules/{schedule['id']}", None, service.csrf_headers(), "DELETE")


def settings(deployment: dict[str, Any]) -> list[Any]:
    """Return the visible settings of a deployment's schedules."""
    shown = ("id", "schedule", "active", "parameters", "slug")
    return [[schedule[key] for key in shown] for schedule in deployment["schedules"]]


def test_another_folder_gets_a_deployment_of_its_own(service: Service, tmp_path: Path) -> None:
    before, other = service.deployment, ServedFolder.of(tmp_path, tmp_path / "store")

    register(service, other)

    after = service.deployment
    assert {key for key in before if after[key] != before[key]} <= {"last_polled"}
    its_own = service.call(f"/deployments/name/build-corpus/{other.name}.quickstart")
    assert its_own["work_pool_name"] not in {None, before["work_pool_name"]}
    template = service.call(f"/work_pools/{other.work_pool}")["base_job_template"]
    assert template["job_configuration"]["working_dir"] == str(tmp_path)


def register(service: Service, served: ServedFolder) -> None:
    """Register the deployment as `up` does."""
    command = [
        sys.executable,
        "-m",
        "tokmill.flows.prefect.registration",
        str(served.folder),
        str(served.store),
    ]
    environment = {**service.tokmill.environment, "PREFECT_API_URL": f"{service.url}/api"}
    subprocess.run(command, env=environment, capture_output=True, check=True)


@pytest.mark.parametrize(
    "variables",
    [{"command": "touch reached"}, {"env": {"PYTHONSTARTUP": "x"}}, {"env.PATH": "/"}, {"working_dir": "/"}],
)
def test_a_run_sets_neither_command_nor_environment_nor_folder(
    service: Service, variables: dict[str, Any]
) -> None:
    create = f"/deployments/{service.deployment['id']}/create_flow_run"

    with pytest.raises(RefusedError) as refused:
        service.call(create, {"parameters": {"profile": "tiny.toml"}, "job_variables": variables})

    assert 400 <= refused.value.code < 500
    assert "Additional properties are not allowed" in str(refused.value)


def test_a_change_without_the_servers_token_is_refused(service: Service) -> None:
    create = f"/deployments/{service.deployment['id']}/create_flow_run"

    with pytest.raises(RefusedError) as refused:
        service.send(create, {"parameters": {"profile": "tiny.toml"}}, {})

    assert refused.value.code == 403


@pytest.mark.parametrize("host", ["rebound.example", "127.0.0.1", "localhost.rebound.example"])
def test_a_name_that_was_pointed_at_the_server_gets_nothing(service: Service, host: str) -> None:
    port = service.url.rpartition(":")[2]
    named = f"{host}:{port}" if host != "127.0.0.1" else f"{host}:1"
    for path in ("/health", "/csrf-token?client=page", "/admin/settings"):
        with pytest.raises(RefusedError) as refused:
            service.send(path, None, {"Host": named})
        assert refused.value.code == 421


def test_a_run_from_the_page_reads_no_profile_elsewhere(service: Service, tmp_path: Path) -> None:
    elsewhere = tmp_path / "own.toml"
    elsewhere.write_text((service.tokmill.folder / "tiny.toml").read_text("utf-8"), "utf-8")

    with pytest.raises(RefusedError) as refused:
        service.run(profile=str(elsewhere))

    assert refused.value.code == 409
    assert "is not one of ['tiny.toml']" in str(refused.value)


@pytest.mark.browser
@pytest.mark.skipif(not browser_found(), reason="needs chromium and chromedriver on the PATH")
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
        own = browser.execute_async_script(
            "fetch('/api/csrf-token?client=page').then(answer => arguments[0](answer.status))"
        )

    assert achieved == dict.fromkeys(achieved, False)
    assert len(achieved) == 10
    assert "build-corpus" not in framed
    assert "this server answers to" in rebound
    assert own == 200
    assert [run["id"] for run in service.call("/flow_runs/filter", {})] == [run["id"] for run in before]
    assert not reached.exists()
