"""`tokmill up` and the deployment: runs started from outside, by a script or by a person with a browser."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.test_flows.commands import Tokmill, clean_environment, free_port
from tests.test_flows.page import browser_found, find, open_browser, start_run
from tests.test_flows.processes import end_all, left_after, processes_with
from tests.test_flows.served import Service, wait_for_line

pytestmark = pytest.mark.server

SHOW_DEPLOYMENT = """
import json
from flows.deployment import deployment
made = deployment()
schedule = made.schedules[0]
print(json.dumps({
    "name": made.name, "description": made.description, "entrypoint": made.entrypoint, "tags": made.tags,
    "parameters": made.parameters, "cron": schedule.schedule.cron, "timezone": schedule.schedule.timezone,
    "active": schedule.active, "work_pool": made.work_pool_name,
}))
"""


def test_prefect_yaml_says_what_up_registers(checkout: Path) -> None:
    written = yaml.safe_load((checkout / "prefect.yaml").read_text(encoding="utf-8"))["deployments"][0]
    done = subprocess.run(
        [sys.executable, "-c", SHOW_DEPLOYMENT],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )

    made = json.loads(done.stdout)

    (schedule,) = written.pop("schedules")
    assert made == {**written, "work_pool": written["work_pool"]["name"], **schedule}


@pytest.mark.browser
@pytest.mark.skipif(not browser_found(), reason="needs chromium and chromedriver on the PATH")
def test_a_rerun_from_the_page_with_another_sequence_length_shows_cached_tasks(
    service: Service, tmp_path: Path
) -> None:
    with open_browser(tmp_path) as browser:
        first = service.end_of(start_run(browser, service))
        again = service.end_of(start_run(browser, service, sequence_length=72))

        assert (first["state_name"], again["state_name"]) == ("Completed", "Completed")
        ran = {name for name, state in service.task_states(again).items() if state != "Cached"}
        assert {name.partition("[")[0] for name in ran} == {"pack", "card"}
        assert_summed_up(service, again["id"])
        browser.get(f"{service.url}/v2/runs/flow-run/{again['id']}?tab=TaskRuns")
        assert find(browser, "//*[normalize-space()='Cached']").is_displayed()


@pytest.mark.skipif(browser_found(), reason="the page starts the same runs")
def test_a_rerun_with_another_sequence_length_shows_what_is_upstream_as_cached(service: Service) -> None:
    first = service.run(profile="tiny.toml")
    again = service.run(profile="tiny.toml", overrides={"pack": {"sequence_length": 64}})

    assert (first["state_name"], again["state_name"]) == ("Completed", "Completed")
    states = service.task_states(again)
    ran = {name for name, state in states.items() if state != "Cached"}
    assert {name.partition("[")[0] for name in ran} == {"pack", "card"}
    assert len(states) - len(ran) > 10
    assert_summed_up(service, again["id"])


def assert_summed_up(service: Service, run_id: str) -> None:
    """A run has left its summary, with the lineage, and the tokenizer's audit, most of it cached or not."""
    found = service.call("/artifacts/filter", {"artifacts": {"flow_run_id": {"any_": [run_id]}}})
    texts = {artifact["key"]: artifact["data"] for artifact in found if artifact["type"] == "markdown"}
    assert set(texts) == {"run-tiny", "audit-tiny"}
    assert "```mermaid\nflowchart" in texts["run-tiny"]
    assert "tokenizer/tiny@v1" in texts["run-tiny"]
    assert texts["audit-tiny"].startswith("# Tokenizer audit")


def test_a_run_with_a_wrong_profile_fails_and_says_why(service: Service) -> None:
    run = service.run(profile="tiny.toml", overrides={"more": ["pack.sequence_lenght=64"]})

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
        serving = processes_with("PREFECT_HOME", str(home))
        process.send_signal(signal.SIGKILL)
        process.wait()
        left = left_after(5, "PREFECT_HOME", str(home))
        end_all(left)

    assert len(serving) >= 3
    assert not left
